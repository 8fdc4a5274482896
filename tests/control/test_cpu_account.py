"""Who has the CPU of whom: what is lent is borrowed, and nothing is counted twice."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.control.cpu_account import Accountant, CpuAccount
from dlsched.model.facts import Usage
from dlsched.model.forecast import Forecast, ForecastKind
from dlsched.model.spec import Bounds, Limits
from dlsched.model.state import JobState, JobView, NodeView, Snapshot
from tests.store.journal.hours import view


def node_of(*jobs: JobView, capacity_cores: float = 4.0) -> Snapshot:
    return Snapshot(1, 1.0, NodeView(capacity_cores, capacity_cores, 1 << 30), jobs)


def accounts(*jobs: JobView, capacity_cores: float = 4.0) -> dict[str, CpuAccount]:
    return Accountant().accounts(node_of(*jobs, capacity_cores=capacity_cores), {})


def test_who_uses_more_than_a_fair_share_borrows_it_of_who_uses_less() -> None:
    found = accounts(view("busy", usage_cores=3.0, limit_cores=3.5), view("idle", usage_cores=0.5))
    assert found["busy"] == CpuAccount(3.0, 3.5, 3.0, lent=0.0, borrowed=1.0)
    assert found["idle"] == CpuAccount(0.5, 1.0, 0.5, lent=1.0, borrowed=0.0)


def test_fair_shares_are_by_weight_within_floor_and_ceiling() -> None:
    heavy = view("heavy", usage_cores=2.5)
    heavy = replace(heavy, spec=replace(heavy.spec, weight=3.0))
    bound = view("bound", usage_cores=1.5)
    bound = replace(bound, spec=replace(bound.spec, bounds=Bounds(0.1, 0.5)))
    assert accounts(heavy, view("light", usage_cores=1.0))["heavy"].borrowed == 0.0
    found = accounts(bound, view("other", usage_cores=2.0))
    assert found["bound"].borrowed == 1.0
    assert found["other"].lent == 1.0


def test_what_no_job_has_as_its_share_is_lent_by_none() -> None:
    one = view("one", usage_cores=2.0, limit_cores=None)
    one = replace(one, spec=replace(one.spec, bounds=Bounds(0.1, 0.5)))
    assert accounts(one) == {"one": CpuAccount(2.0, 2.0, 2.0, lent=0.0, borrowed=1.5)}


def test_a_job_asks_for_what_its_forecast_says_it_needs() -> None:
    crowded = Forecast(ForecastKind.CROWDED, "latency", needs_cores=2.5)
    modest = Forecast(ForecastKind.MET, "latency", needs_cores=0.25)
    jobs = (view("slow", usage_cores=1.0), view("fast", usage_cores=0.5))
    found = Accountant().accounts(node_of(*jobs), {"slow": (crowded,), "fast": (modest,)})
    assert (found["slow"].asked, found["fast"].asked) == (2.5, 0.5)


def test_a_job_that_waits_asks_for_its_floor_and_one_that_has_ended_for_nothing() -> None:
    waits = view("waits", usage_cores=None, limit_cores=None, state=JobState.WAITING)
    waits = replace(waits, spec=replace(waits.spec, bounds=Bounds(1.5)))
    ended = view("ended", usage_cores=None, state=JobState.FINISHED)
    assert accounts(waits, ended) == {"waits": CpuAccount(asked=1.5)}


def test_what_is_used_while_it_stops_is_counted_too() -> None:
    found = accounts(view("stops", usage_cores=0.75, state=JobState.STOPPING))
    assert found["stops"] == CpuAccount(0.75, 0.75, 0.75, lent=0.0, borrowed=0.75)


@pytest.mark.parametrize("cores", [math.nan, math.inf, -1.0, None])
def test_a_use_that_is_not_known_is_none(cores: float | None) -> None:
    assert accounts(view("odd", usage_cores=cores))["odd"].used == 0.0


def test_remembered_shares_follow_the_jobs() -> None:
    accountant = Accountant()
    alone, other = view("alone", usage_cores=3.0), view("other", usage_cores=0.5)
    assert accountant.accounts(node_of(alone), {})["alone"].borrowed == 0.0
    assert accountant.accounts(node_of(alone, other), {})["alone"].borrowed == 1.0
    heavier = replace(alone, spec=replace(alone.spec, weight=9.0))
    assert accountant.accounts(node_of(heavier, other), {})["alone"].borrowed == 0.0


CORES = st.floats(0.0, 8.0)
JOBS = st.lists(
    st.builds(
        lambda state, usage, limit, floor, weight: replace(
            view("x", state=state, usage_cores=usage),
            actual=Limits(limit),
            usage=Usage(cpu_cores=usage),
            spec=replace(view("x").spec, bounds=Bounds(floor), weight=weight),
        ),
        st.sampled_from(JobState),
        st.none() | CORES,
        st.none() | CORES,
        st.floats(0.01, 2.0),
        st.floats(0.1, 10.0),
    ),
    max_size=6,
)


@given(JOBS, st.floats(0.5, 16.0))
def test_what_is_lent_is_borrowed_and_all_use_is_in_one_account(
    drawn: list[JobView], capacity_cores: float
) -> None:
    jobs = [
        replace(job, spec=replace(job.spec, name=f"job-{number}"))
        for number, job in enumerate(drawn)
    ]
    found = accounts(*jobs, capacity_cores=capacity_cores).values()
    used = math.fsum(job.usage.cpu_cores or 0.0 for job in jobs)
    lent, borrowed = (
        math.fsum(one.lent for one in found),
        math.fsum(one.borrowed for one in found),
    )
    assert math.fsum(one.used for one in found) == pytest.approx(used)
    assert lent <= borrowed * (1 + 1e-9) + 1e-9
    for one in found:
        assert one.asked >= one.used >= one.borrowed
        assert one.lent == 0.0 or one.borrowed == 0.0
        assert min(one) >= 0.0
