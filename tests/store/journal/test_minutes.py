"""The rows of minutes: what is in them, how they are packed, and that the writer keeps them."""

from __future__ import annotations

import json
import math
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.control.cpu_account import CpuAccount
from dlsched.model.cycle import CycleReport, Shadow
from dlsched.model.facts import Sample
from dlsched.model.spec import AccuracyTarget, Limits
from dlsched.model.state import JobState, JobView, Progress
from dlsched.store.journal.history import by_owner, read_usage
from dlsched.store.journal.minutes import (
    JobMinute,
    Minute,
    Minutes,
    NodeMinute,
    packed,
    unpacked,
    wall_s,
    wall_text,
)
from dlsched.store.journal.reader import JournalReader
from dlsched.store.journal.writer import Journal
from tests.properties import examples
from tests.store.journal.hours import BEGIN_S, cycle, view, write
from tests.store.journal.reports import execute


def minute_of(*reports: CycleReport) -> Minute:
    """What is recorded of these cycles, which are of one minute."""
    minutes = Minutes()
    assert [one for one in map(minutes.take, reports) if one is not None] == []
    found = minutes.current()
    assert found is not None
    return found


def rows(path: Path) -> list[Minute]:
    with JournalReader(path) as reader:
        found = list(reader.minutes(0.0, 1e11))
        assert reader.problem is None
    return found


def test_a_minute_has_means_bounds_and_the_last_metric() -> None:
    target = AccuracyTarget("accuracy", 0.9, 0.97)

    def trained(accuracy: float | None) -> JobView:
        one = view("trained")
        samples = () if accuracy is None else (Sample(1.0, 1, (("accuracy", accuracy),)),)
        spec = replace(one.spec, target=target)
        return replace(one, spec=spec, progress=Progress(samples=samples))

    found = minute_of(
        cycle(0, view("served", ratio=1.0, limit_cores=None), trained(0.5)),
        cycle(1, view("served", ratio=3.0, limit_cores=1.0), trained(0.6)),
        cycle(2, view("served", ratio=None, limit_cores=2.0), trained(None)),
    )
    served, trained_row = found.jobs["served"], found.jobs["trained"]
    assert served.cycles == 3
    ratios = served.ratio, served.ratio_low, served.ratio_high
    assert ratios == pytest.approx((2.0, 1.0, 3.0), rel=0.02)
    assert served.limit_cores == 1.5
    assert (trained_row.ratio, trained_row.metric) == (None, 0.6)
    assert (found.first_cycle, found.last_cycle, found.at_s) == (0, 2, BEGIN_S)
    assert found.node.cycles == 3
    assert found.node.used_core_s == pytest.approx(2.0), "two jobs, half a core, two seconds"


def test_the_next_minute_begins_with_the_clock_on_the_wall() -> None:
    minutes = Minutes()
    done = [minutes.take(cycle(number, view("alpha"))) for number in range(50, 130)]
    found = [one for one in done if one is not None]
    assert [(one.first_cycle, one.last_cycle) for one in found] == [(50, 59), (60, 119)]
    assert found[1].node.seconds == 60.0


def test_a_clock_that_is_set_back_begins_another_row() -> None:
    minutes = Minutes()
    minutes.take(cycle(1, view("alpha")))
    done = minutes.take(cycle(2, view("alpha"), at_s=BEGIN_S - 3600))
    assert done is not None
    assert done.last_cycle == 1


def test_a_cycle_without_a_valid_time_is_in_no_minute() -> None:
    minutes = Minutes()
    assert minutes.take(replace(cycle(1), wall_time="then")) is None
    assert minutes.current() is None


@given(st.floats(0.0, 4e9))
def test_wall_times_come_back(at_s: float) -> None:
    assert wall_s(wall_text(at_s)) == pytest.approx(at_s, abs=0.002)


@pytest.mark.parametrize("text", ["", "then", "cycle 7", "9999999-01-01T00:00:00Z"])
def test_what_is_no_time_is_none(text: str) -> None:
    assert wall_s(text) is None


VALUES = st.none() | st.floats(-1e12, 1e12)
CORE_S = st.floats(0.0, 1e9)
JOB_ROWS = st.builds(
    JobMinute, st.integers(1, 60), st.none() | st.integers(0, 1 << 31), *[VALUES] * 7, *[CORE_S] * 5
)
NODES = st.builds(NodeMinute, st.integers(1, 60), *[VALUES] * 5, CORE_S, CORE_S, VALUES)


@given(NODES, st.dictionaries(st.text(), JOB_ROWS, max_size=4))
def test_a_packed_minute_comes_back_to_six_digits(
    node: NodeMinute, jobs: dict[str, JobMinute]
) -> None:
    one = Minute(7, 9, 5.0, node, jobs)
    back = unpacked(7, 9, 5.0, packed(one))
    assert back.jobs.keys() == jobs.keys()
    pairs = [(node, back.node), *((jobs[name], back.jobs[name]) for name in jobs)]
    for before, after in pairs:
        for value, found in zip(before, after, strict=True):
            assert found == (None if value is None else pytest.approx(value, rel=1e-5))


def test_a_number_that_is_not_finite_is_not_known() -> None:
    node = NodeMinute(1, math.nan, math.inf, 1.0, -math.inf, None, 1.0, 1.0)
    assert unpacked(1, 1, 1.0, packed(Minute(1, 1, 1.0, node, {}))).node[1:5] == (
        None,
        None,
        1,
        None,
    )


def test_a_later_version_may_add_fields() -> None:
    row = [60, None, *[1.0] * 7, *[2.0] * 5, "more"]
    body = zlib.compress(
        json.dumps([[60, *[4.0] * 5, 60.0, 3.0, 2.5, "more"], {"a": row}]).encode()
    )
    found = unpacked(1, 1, 1.0, body)
    assert found.jobs["a"].account == CpuAccount(*[2.0] * 5)
    assert (found.node.used_core_s, found.node.shadow_cores) == (3.0, 2.5)


def test_a_minute_has_the_mean_sum_of_what_the_shadow_policy_would_set() -> None:
    jobs = (view("alpha"), view("beta"), view("waiting", state=JobState.WAITING))
    limits = {"alpha": Limits(0.75), "beta": Limits()}  # beta would use 0.5 as now
    shadow = Shadow("fair", limits=limits)
    failing = replace(shadow, limits={"alpha": Limits(), "beta": Limits()}, trouble="boom")
    shadows = [None, shadow, replace(shadow, limits={}), failing]
    minute = minute_of(*(replace(cycle(n, *jobs), shadow=one) for n, one in enumerate(shadows)))
    assert minute.node.shadow_cores == (1.25 + 0.0) / 2
    assert minute_of(cycle(1, view("alpha"))).node.shadow_cores is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no",
        b"x\x9c\x03\x00\x00\x00\x00\x01",
        zlib.compress(b"[1,2]"),
        zlib.compress(json.dumps([[60, *[4.0] * 5, 60.0, 3.0], {"a": [1.0] * 13}]).encode()),
    ],
)
def test_what_is_no_minute_is_one_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"not a minute|Expecting value"):
        unpacked(1, 1, 1.0, body)


# ---------------------------------------------------------------------- the writer


@pytest.mark.timed
def test_the_writer_keeps_a_row_for_each_minute_with_the_last_part(path: Path) -> None:
    write(path, (cycle(number, view("alpha")) for number in range(1, 151)))
    found = rows(path)
    assert [(one.first_cycle, one.last_cycle) for one in found] == [(1, 59), (60, 119), (120, 150)]


@pytest.mark.timed
def test_a_crash_loses_ten_seconds_of_it_at_most(path: Path) -> None:
    journal = Journal(path, queue_reports=200)
    for number in range(1, 100):
        journal.write(cycle(number, view("alpha")))
    journal.flush()
    assert rows(path)[-1].last_cycle >= 89, "before it is closed"
    journal.close()


@pytest.mark.timed
def test_a_second_run_goes_on_in_the_same_minute(path: Path) -> None:
    write(path, (cycle(number, view("alpha")) for number in range(1, 31)))
    write(path, (cycle(number, view("alpha")) for number in range(41, 61)))
    found = rows(path)
    assert [(one.first_cycle, one.last_cycle) for one in found] == [(1, 30), (41, 59), (60, 60)]
    assert sum(one.node.seconds for one in found) == 29 + 19, "not the time between"


@pytest.mark.timed
def test_rows_of_deleted_frames_go_too(path: Path) -> None:
    journal = Journal(path, frame_s=60.0, max_age_s=300.0, queue_reports=2000)
    for number in range(1, 1201):
        journal.write(cycle(number, view("alpha")))
        if number % 100 == 0:
            journal.flush()
    journal.close()
    found = rows(path)
    with JournalReader(path) as reader:
        kept = reader.cycles()
    assert found[0].last_cycle >= kept.start > 600


@pytest.mark.timed
def test_a_sum_that_is_not_finite_counts_as_none_in_usage(path: Path) -> None:
    huge = view("huge", usage_cores=1.7e308, limit_cores=None)
    write(path, (cycle(number, huge, view("alpha")) for number in range(1, 51)))
    found = read_usage(path, 0.0, BEGIN_S + 60)
    assert found.recorded_s == 49.0
    assert found.accounts[None, "alpha"].used == 24.5
    assert found.accounts[None, "huge"].used == 0.0


JOBS = st.lists(
    st.builds(
        view,
        st.sampled_from(["a", "b", "c"]),
        ratio=st.none() | st.floats(0.01, 10.0),
        usage_cores=st.none() | st.floats(0.0, 4.0),
        limit_cores=st.none() | st.floats(0.05, 4.0),
        owner=st.none() | st.integers(1000, 1002),
        state=st.sampled_from(JobState),
    ),
    max_size=3,
    unique_by=lambda one: one.name,
).map(lambda jobs: sorted(jobs, key=lambda one: one.name))


@settings(max_examples=examples(60))
@given(st.lists(JOBS, min_size=2, max_size=15))
@pytest.mark.timed
def test_users_and_jobs_add_up_to_the_nodes_total(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[list[JobView]]
) -> None:
    path = tmp_path_factory.mktemp("sum") / "journal.db"
    write(path, (cycle(7 * number, *jobs) for number, jobs in enumerate(drawn, start=1)))
    found = read_usage(path, 0.0, 1e11)
    expected = math.fsum(7.0 * (job.usage.cpu_cores or 0.0) for jobs in drawn[1:] for job in jobs)
    users = by_owner(found.accounts)
    near = {"rel": 1e-4, "abs": 1e-3}
    assert found.recorded_s == pytest.approx(7.0 * (len(drawn) - 1))
    assert found.used_core_s == pytest.approx(expected, **near)
    for sums in (found.accounts, users):
        assert math.fsum(one.used for one in sums.values()) == pytest.approx(expected, **near)
    for name in CpuAccount._fields:
        total = math.fsum(getattr(one, name) for one in found.accounts.values())
        by_users = math.fsum(getattr(one, name) for one in users.values())
        assert by_users == pytest.approx(total, **near)


@pytest.mark.timed
def test_one_job_name_of_two_owners_is_two_accounts(path: Path) -> None:
    write(path, (cycle(n, view("alpha", owner=1000 if n < 60 else 1001)) for n in range(1, 121)))
    found = read_usage(path, 0.0, 1e11).accounts
    assert set(found) == {(1000, "alpha"), (1001, "alpha")}
    assert found[1000, "alpha"].used == pytest.approx(0.5 * 58)


@pytest.mark.timed
def test_a_damaged_row_is_left_out_and_named(path: Path) -> None:
    write(path, (cycle(number, view("alpha")) for number in range(1, 151)))
    execute(path, "UPDATE minutes SET body = x'00' WHERE first_cycle = 60")
    found = read_usage(path, 0.0, 1e11)
    assert found.recorded_s == pytest.approx(58 + 31)
    (note,) = found.notes
    assert note.startswith(f"{path}: the minute of cycle 60 cannot be read: ")
    assert "\n" not in note
