"""Simulated runs: a trace under a policy, and comparisons on several processes.

Owns the pool, the order of what comes out of it, and how it is saved. It must not know what is
compared.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, TypeVar

from benchmarks.options import options
from benchmarks.publish import results
from dlsched.control.decider import NamedPolicy
from dlsched.simulation.run import simulate
from dlsched.simulation.scoring import RunResult
from dlsched.simulation.trace import Trace

Row = TypeVar("Row")


def play(trace: Trace, policy: str | NamedPolicy, seed: int, **watching: Any) -> RunResult:
    """That trace under a new instance of that policy. RuntimeError where it fails."""
    run = simulate(trace, policy, seed, **watching)
    if run.alarms:
        raise RuntimeError(f"{trace.name}, {run.policy}, seed {seed}: {run.alarms}")
    return run


def in_processes(run: Callable[..., Row], tasks: Iterable[tuple[object, ...]]) -> list[Row]:
    """`run`, a module's own function, of every task's parts, in their order.

    What is logged meanwhile (targets out of reach are no news here) is not shown.
    """
    tasks, found = list(tasks), []
    context = multiprocessing.get_context("spawn")
    cores = len(os.sched_getaffinity(0))
    with context.Pool(cores, logging.disable, (logging.WARNING,)) as pool:
        for number, one in enumerate(pool.imap(partial(_called, run), tasks), start=1):
            found.append(one)
            if 10 * number // len(tasks) > 10 * (number - 1) // len(tasks):
                print(f"   {number} of {len(tasks)}", flush=True)
    return found


def _called(run: Callable[..., Row], task: tuple[object, ...]) -> Row:
    return run(*task)


def compare_all(
    compare: Callable[..., Sequence[Row]],
    scenarios: Iterable[object],
    counts: Iterable[int],
    seeds: Iterable[int],
) -> list[Row]:
    """The rows of `compare(scenario, n, seed)` for all of them; their order is fixed."""
    return [
        row for rows in in_processes(compare, product(scenarios, counts, seeds)) for row in rows
    ]


def judge_seeds(
    name: str,
    doc: str | None,
    arguments: list[str] | None,
    seeds: Sequence[int],
    rows_of: Callable[[Sequence[int]], list[Row]],
    tables_of: Callable[[Sequence[Row]], Mapping[str, Sequence[Mapping[str, object]]]],
    headlines_of: Callable[[Sequence[Row]], Sequence[str]] = lambda _: (),
) -> int:
    """A bench's `main`: plays the seeds, prints tables and headlines, saves a whole run."""
    chosen = options(doc, arguments, seeds=(len(seeds), "how many; fewer: not saved"))
    some = seeds[: chosen.seeds]
    rows = rows_of(some)
    whole = len(some) == len(seeds)
    results.finish(name, "none", some, rows, tables_of(rows), headlines_of(rows), whole=whole)
    return 0
