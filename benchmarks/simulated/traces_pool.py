"""Simulated comparisons on several processes.

Owns the pool and the order of what comes out of it. It must not know what is compared.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from rich.console import Console

Row = TypeVar("Row")
Task = TypeVar("Task")


class Named(Protocol):
    """A kind of trace."""

    @property
    def name(self) -> str:
        """As it is told."""
        ...


def compare_all(
    console: Console,
    compare: Callable[..., Sequence[Row]],
    scenarios: Sequence[Named],
    counts: Sequence[int],
    seeds: Sequence[int],
    processes: int,
    *more: object,
) -> list[Row]:
    """The rows of `compare(scenario, n, seed, *more)` for all of them; their order is fixed.

    `compare` is a module's own function, and raises when a policy fails: what is logged beside
    (targets out of reach are no news here) is not shown.
    """
    wanted = [
        (compare, (scenario, n, seed, *more))
        for scenario in scenarios
        for n in counts
        for seed in seeds
    ]
    found: list[Row] = []
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, logging.disable, (logging.WARNING,)) as pool:
        for (_, (scenario, n, seed, *_)), rows in zip(
            wanted, pool.imap(_called, wanted, chunksize=1), strict=True
        ):
            found += rows
            if seed == seeds[-1]:
                console.print(f"   {scenario.name}, n = {n}: {len(seeds)} seeds", highlight=False)
    return found


def in_processes(
    run: Callable[[Task], Row], tasks: Sequence[Task], processes: int | None = None
) -> list[Row]:
    """`run`, a module's own function, of every task, in their order."""
    context = multiprocessing.get_context("spawn")
    count = processes or len(os.sched_getaffinity(0))
    with context.Pool(count, logging.disable, (logging.WARNING,)) as pool:
        return pool.map(run, tasks, chunksize=1)


def _called(wanted: tuple[Callable[..., Any], tuple[Any, ...]]) -> Any:
    compare, arguments = wanted
    return compare(*arguments)
