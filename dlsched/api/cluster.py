"""The answer of `/v1/cluster`: what the controller on this host last reported, cut to what a page
can show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from dlsched.api.cluster_schema import ClusterAnswer, ClusterStatus, LeftOut
from dlsched.api.schema import SCHEMA_VERSION
from dlsched.store.journal.minutes import wall_s

T = TypeVar("T")

ROWS_MAX = 1000
"""Of nodes, of jobs and of the queue."""
OLD_S = 60.0
"""An older status is not the present one: the controller has ended, or hangs."""
LINES_MAX = 100
"""Of what is asked, rejected and alarmed."""


def cluster_answer(status: ClusterStatus | None, now_s: float) -> ClusterAnswer:
    """`now_s` is unix time."""
    if status is None:
        return ClusterAnswer(SCHEMA_VERSION, None, None, None, LeftOut(0, 0, 0, 0))
    shown = replace(
        status,
        nodes=_most(status.nodes, lambda one: one.state == "ready"),
        # Moves are what people wait for.
        jobs=_most(status.jobs, lambda one: (one.target is None, one.state == "running")),
        queue=status.queue[:ROWS_MAX],
        asked=status.asked[:LINES_MAX],
        rejected=status.rejected[:LINES_MAX],
        alarms=status.alarms[:LINES_MAX],
    )
    left_out = LeftOut(
        nodes=len(status.nodes) - len(shown.nodes),
        jobs=len(status.jobs) - len(shown.jobs),
        queue=len(status.queue) - len(shown.queue),
        lines=_lines(status) - _lines(shown),
    )
    written, observed = (age_s(at, now_s) for at in (status.written_at, status.observed_at))
    return ClusterAnswer(SCHEMA_VERSION, shown, written, observed, left_out)


def _most(rows: Sequence[T], key: Callable[[T], Any]) -> tuple[T, ...]:
    """All of them, or the first by that key."""
    return tuple(rows) if len(rows) <= ROWS_MAX else tuple(sorted(rows, key=key)[:ROWS_MAX])


def _lines(status: ClusterStatus) -> int:
    return len(status.asked) + len(status.rejected) + len(status.alarms)


def age_s(at: str, now_s: float) -> float | None:
    """How long before `now_s`, unix time, that was; None: it is no time."""
    then_s = wall_s(at)
    return None if then_s is None else max(now_s - then_s, 0.0)
