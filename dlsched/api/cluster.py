"""The answer of `/v1/cluster`: what the controller on this host last reported, with its age."""

from __future__ import annotations

from dlsched.api.cluster_schema import ClusterAnswer, ClusterStatus
from dlsched.api.schema import SCHEMA_VERSION
from dlsched.store.journal.minutes import wall_s

OLD_S = 60.0
"""An older status is not the present one: the controller has ended, or hangs."""


def cluster_answer(status: ClusterStatus | None, now_s: float) -> ClusterAnswer:
    """`now_s` is unix time."""
    if status is None:
        return ClusterAnswer(SCHEMA_VERSION, None, None, None)
    written, observed = (age_s(at, now_s) for at in (status.written_at, status.observed_at))
    return ClusterAnswer(SCHEMA_VERSION, status, written, observed)


def age_s(at: str, now_s: float) -> float | None:
    """How long before `now_s`, unix time, that was; None: it is no time."""
    then_s = wall_s(at)
    return None if then_s is None else max(now_s - then_s, 0.0)
