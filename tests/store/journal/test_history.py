"""Curves of a range of the journal: the right minutes in the right steps, whatever the file is."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.model.cycle import CycleReport
from dlsched.model.errors import NoJournal
from dlsched.store.journal.history import (
    CHANGES_MAX,
    DEFAULT_POINTS,
    JOB_JOINS,
    STEPS_S,
    VALUES_MAX,
    Cancelled,
    Curves,
    Range,
    Steps,
    TooMuch,
    default_step_s,
    read_curves,
    read_minutes,
)
from dlsched.store.journal.minutes import JobMinute
from dlsched.store.journal.reader import JournalReader
from tests.store.journal.hours import BEGIN_S, cycle, view, write


def curves(path: Path, asked: Range) -> Curves:
    return read_curves(path, asked, lambda: False)


def half_an_hour(path: Path) -> None:
    write(
        path,
        (
            cycle(number, view("alpha", ratio=1.0 + number // 600, limit_cores=float(number // 60)))
            for number in range(1, 1800)
        ),
    )


@pytest.mark.timed
def test_steps_are_the_means_of_their_minutes(path: Path) -> None:
    half_an_hour(path)
    found = curves(path, Range(BEGIN_S + 300, BEGIN_S + 1500, 300.0))
    (alpha,) = found.jobs.values()
    assert alpha.curves()["limit_cores"] == (7.0, 12.0, 17.0, 22.0)
    assert found.node.curves()["used_cores"] == (0.5,) * 4
    assert found.notes == ()


@pytest.mark.timed
def test_only_the_jobs_asked_for_are_answered_and_all_are_known(path: Path) -> None:
    write(path, (cycle(n, view("alpha"), view("beta"), changed=["beta"]) for n in range(1, 61)))
    found = curves(path, Range(BEGIN_S, BEGIN_S + 60, 60.0, ("alpha", "ghost")))
    assert set(found.jobs) == {"alpha"}
    assert found.known == ("alpha", "beta")
    assert found.changes == ()
    assert [one.job for one in found.events] == ["alpha"]


@pytest.mark.timed
def test_changes_are_those_of_the_range_the_last_ones_oldest_first(path: Path) -> None:
    count = CHANGES_MAX + 40
    write(
        path, (cycle(number, view("alpha"), changed=["alpha"]) for number in range(1, count + 10))
    )
    found = curves(path, Range(BEGIN_S + 5, BEGIN_S + count + 5, 60.0))
    assert len(found.changes) == CHANGES_MAX
    assert found.changes_left_out == 40
    assert [one.cycle for one in found.changes] == list(range(45, count + 5))
    assert (found.events, found.events_left_out) == ((), 0)


def cycles(
    first: int, end: int, limit_cores: float = 1.0, set_by_s: float = 0.0
) -> Iterator[CycleReport]:
    """`set_by_s`: how far the clock was set before them."""
    for number in range(first, end):
        at_s = BEGIN_S + number + set_by_s
        yield cycle(number, view("alpha", limit_cores=limit_cores), at_s=at_s)


@pytest.mark.timed
@pytest.mark.parametrize(
    ("reports", "limits", "notes"),
    [
        ((*cycles(1, 60), *cycles(180, 240)), (1.0, None, None, 1.0), ()),
        (
            (*cycles(1, 120), *cycles(120, 240, 3.0, -120.0)),
            (2.0, 2.0, None, None),
            ("the clock was set back by 60 s in this range",),
        ),
        ((*cycles(1, 60), *cycles(60, 120, 1.0, 120.0)), (1.0, None, None, 1.0), ()),
    ],
    ids=["no record", "clock set back", "clock set forward"],
)
def test_each_minute_is_where_its_clock_was(
    path: Path,
    reports: tuple[CycleReport, ...],
    limits: tuple[float | None, ...],
    notes: tuple[str, ...],
) -> None:
    write(path, reports)
    found = curves(path, Range(BEGIN_S, BEGIN_S + 240, 60.0))
    assert found.jobs["alpha"].curves()["limit_cores"] == limits
    capacity = found.node.curves()["capacity_cores"]
    assert capacity == tuple(None if cores is None else 4.0 for cores in limits)
    assert found.notes == notes


@pytest.mark.timed
def test_more_values_than_fit_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlsched.store.journal.history.VALUES_MAX", 20)
    write(path, (cycle(n, view("alpha"), view("beta"), view("gamma")) for n in range(1, 61)))
    line = "10 steps of at least 3 jobs are more than 20 values: ask for a longer step, or for"
    with pytest.raises(TooMuch, match=line):
        curves(path, Range(BEGIN_S, BEGIN_S + 600, 60.0))
    assert set(curves(path, Range(BEGIN_S, BEGIN_S + 600, 60.0, ("beta",))).jobs) == {"beta"}
    assert len(curves(path, Range(BEGIN_S, BEGIN_S + 600, 120.0)).jobs) == 3


# ---------------------------------------------------------------------- damaged files


def test_a_journal_that_is_not_there_is_one_line(path: Path) -> None:
    with pytest.raises(NoJournal, match="no such journal"):
        curves(path, Range(BEGIN_S, BEGIN_S + 60, 60.0))


@pytest.mark.timed
def test_reading_ends_soon_after_it_is_cancelled(path: Path) -> None:
    half_an_hour(path)
    calls = iter([False, False, True])
    with JournalReader(path) as reader:
        minutes = read_minutes(reader, BEGIN_S, BEGIN_S + 1800, lambda: next(calls))
        next(minutes)
        next(minutes)
        with pytest.raises(Cancelled):
            next(minutes)


# ---------------------------------------------------------------------- steps


@given(st.floats(0.0, 4e9), st.floats(1.0, 366 * 86_400.0))
def test_the_default_step_is_the_shortest_with_few_points(from_s: float, length_s: float) -> None:
    step_s = default_step_s(from_s, from_s + length_s)
    assert step_s in STEPS_S
    fits = [one for one in STEPS_S if length_s / one <= DEFAULT_POINTS]
    assert step_s == pytest.approx(fits[0] if fits else STEPS_S[-1]) or step_s in fits[:2]


@given(st.floats(3600.0, 366 * 86_400.0), st.integers(0, 1000))
def test_the_default_step_fits_for_all_jobs(length_s: float, jobs: int) -> None:
    step_s = default_step_s(0.0, length_s, jobs)
    points = Range(0.0, length_s, step_s).points
    assert points * jobs <= VALUES_MAX or step_s == STEPS_S[-1]


@given(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(60, 10**5))
def test_the_steps_cover_the_range(from_s: int, length_s: int, step_s: int) -> None:
    asked = Range(float(from_s), float(from_s + length_s), float(step_s))
    assert asked.points == math.ceil(length_s / step_s)
    assert asked.times[0] == asked.from_s
    assert asked.times[-1] < asked.to_s <= asked.times[-1] + asked.step_s


VALUE = st.none() | st.floats(0.001, 1000.0)


@given(st.lists(st.tuples(st.integers(0, 4), VALUE, VALUE), max_size=40))
def test_a_step_is_the_mean_the_bounds_and_the_last_of_what_is_known(
    drawn: list[tuple[int, float | None, float | None]],
) -> None:
    steps = Steps(5, JOB_JOINS)
    for step, value, metric in drawn:
        row = [60, None, value, value, value, value, metric, value, value, *[0.0] * 5]
        steps.add(step, JobMinute(*row))  # type: ignore[arg-type]
    found = steps.curves()
    for step in range(5):
        values = [value for at, value, _ in drawn if at == step and value is not None]
        metrics = [metric for at, _, metric in drawn if at == step and metric is not None]
        if values:
            mean = pytest.approx(math.fsum(values) / len(values), rel=1e-4)
            assert [found[key][step] for key in ("ratio", "measured_s", "limit_cores")] == [
                mean
            ] * 3
            assert found["ratio_low"][step] == pytest.approx(min(values), rel=1e-4)
            assert found["ratio_high"][step] == pytest.approx(max(values), rel=1e-4)
        else:
            assert [found[key][step] for key in found if key != "metric"] == [None] * 6
        assert found["metric"][step] == (pytest.approx(metrics[-1], rel=1e-4) if metrics else None)
