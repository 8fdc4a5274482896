"""How many decisions it takes until limits stay."""

from __future__ import annotations

import pytest

from benchmarks.judge.trainings import settling_steps
from dlsched.model.cycle import CycleReport
from dlsched.model.decision import Decision
from dlsched.model.spec import ContainerSpec, JobSpec, Limits
from dlsched.model.state import JobState, JobView, NodeView, Snapshot


def report(
    limits: dict[str, float | None], *, wakes: tuple[str, ...] = (), decides: bool = True
) -> CycleReport:
    decided = {name: Limits(cores) for name, cores in limits.items()}
    jobs = tuple(
        JobView(JobSpec(name, ContainerSpec("image")), JobState.RUNNING) for name in limits
    )
    return CycleReport(
        snapshot=Snapshot(1, 1.0, NodeView(2.0, 2.0, 1 << 30), jobs, wakes=wakes),
        policy="some",
        decision=Decision(decided) if decides else None,
        limits=decided,
    )


def test_decisions_count_up_to_the_last_change_of_each_stretch():
    reports = [
        report({"a": 2.0}),
        report({"a": 1.0}),
        report({"a": 0.5}, decides=False),
        report({"a": 1.05}),
        report({"a": 1.0, "b": 1.0}, wakes=("b: came",)),
        report({"a": 1.0, "b": 1.0}),
    ]
    assert settling_steps(reports) == pytest.approx((2 + 1) / 2)


def test_what_stays_within_a_tenth_of_where_it_ends_has_settled():
    assert settling_steps([report({"a": cores}) for cores in (1.0, 1.09, 1.0, 1.05)]) == 1
    assert settling_steps([report({"a": cores}) for cores in (1.0, 1.0, 1.2)]) == 3
    assert settling_steps([report({"a": cores}) for cores in (1.0, None)]) == 2


def test_small_steps_that_lead_far_are_all_counted():
    creeping = [report({"a": 1.09**step}) for step in range(20)]
    assert settling_steps([*creeping, *[creeping[-1]] * 5]) == 19


def test_a_policy_that_sets_nothing_has_settled_from_the_start():
    assert settling_steps([report({"a": None})] * 5) == 0.0
    assert settling_steps([]) == 0.0
