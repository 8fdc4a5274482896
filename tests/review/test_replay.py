"""A replay of the policy that decided is exact; of another, it starts from what was there."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest

from dlsched.control.decider import NamedPolicy
from dlsched.control.guards import GuardOptions
from dlsched.model.cycle import CycleReport
from dlsched.model.decision import Decision, PolicyTraits
from dlsched.model.errors import DlschedError
from dlsched.model.spec import Limits
from dlsched.policies.registry import known, load
from dlsched.review.replay import AGREE_RATIO, News, Replay, first_cycle_from, last_cycle_until
from dlsched.simulation.run import simulate
from dlsched.simulation.trace import Recipe, generate, parse_trace
from dlsched.store.journal.reader import JournalReader
from dlsched.store.journal.writer import Journal
from dlsched.store.policy_memory import memory_text
from tests.doubles import decide, snapshot, view
from tests.lanes import but_the_first_long

EXAMPLES = Path(__file__).parents[2] / "examples" / "traces"
STEADY = GuardOptions(dead_band_ratio=0.05, cooldown_s=20.0)

Record = Callable[[NamedPolicy, GuardOptions], Path]


def named(policy: str) -> NamedPolicy:
    return NamedPolicy(policy, load(policy))


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """The journal of a bad day under that policy: services, trainings, crashes, and a queue."""
    bad = parse_trace((EXAMPLES / "a-bad-day.yaml").read_text(), "a-bad-day")
    more = generate(Recipe(jobs=4, duration_s=240.0, kind="training", cores=4.0, seed=5)).jobs
    trace = replace(bad, jobs=(*bad.jobs, *more), duration_s=240.0)

    def made(policy: NamedPolicy, guards: GuardOptions) -> Path:
        path = tmp_path / "journal.db"
        journal = Journal(path, frame_s=30.0, queue_reports=100_000)
        simulate(trace, policy, 1, guards=guards, publish=journal.write)
        journal.close()
        assert journal.lost_cycles == 0
        return path

    return made


@pytest.mark.parametrize(
    ("policy", "guards"),
    but_the_first_long(
        [
            *((policy, GuardOptions()) for policy in known()),
            ("fair", STEADY),
            ("tradl?interval_s=3&least_ratio=0.2", STEADY),
        ],
        spread=True,
    ),
)
@pytest.mark.timed
def test_a_replay_of_the_policy_that_decided_agrees_exactly(
    record: Record, policy: str, guards: GuardOptions
) -> None:
    path = record(named(policy), guards)
    again = Replay(named(policy), guards)
    decided = 0
    with JournalReader(path) as reader:
        for report in reader.reports():
            would, rows = again.take(report)
            assert would.limits == report.limits
            assert would.guarded == report.guarded
            assert (would.decision is None) == (report.decision is None)
            if would.decision is not None and report.decision is not None:
                decided += 1
                assert would.decision.limits == report.decision.limits
                assert would.decision.why == report.decision.why
                assert json.loads(memory_text(would.decision.memory)) == report.decision.memory
            assert all(row.difference_cores == 0.0 and row.agrees for row in rows)
            assert all(row.done_why == row.would_why for row in rows)
        assert reader.problem is None
    assert again.cycles >= 240
    assert again.recorded == {policy: decided}
    assert (again.asks, again.failures, again.all.agreed_ratio) == (decided, 0, 1.0)
    assert len(again.jobs) >= 6


# ---------------------------------------------------------------------- single cycles


@dataclass(frozen=True)
class Fixed:
    """A policy with one answer."""

    answer: Any
    Parameters: ClassVar[type[Any]] = object
    Memory: ClassVar[type[Any] | None] = None
    traits: ClassVar[PolicyTraits] = PolicyTraits()

    def decide(self, seen: Any, memory: object) -> Decision:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def replay_of(answer: Any) -> Replay:
    return Replay(NamedPolicy("fixed", Fixed(answer)), GuardOptions())


def cycle(number: int, *, done: float | None = 1.0, why: str | None = "as it was") -> CycleReport:
    """One job with a core in force, of four."""
    seen = replace(snapshot(view("a", 1.0)), cycle=number, now_s=100.0 + number)
    decision = None if why is None else Decision({"a": Limits(done)}, {"a": why})
    return CycleReport(
        seen,
        "dqoes",
        decision,
        {"a": Limits(done)},
        wall_time=datetime.fromtimestamp(1000.0 + number, UTC).isoformat(),
    )


def test_a_row_tells_both_sides_and_reasons_hold_until_the_next_decision() -> None:
    again = replay_of(replace(decide(a=1.5), why={"a": "late"}, next_s=5.0))
    again.take(cycle(1))
    would, (row,) = again.take(cycle(2, why=None))
    assert would.decision is None
    assert (row.cycle, row.now_s, row.job, row.acting, row.asked) == (2, 102.0, "a", "dqoes", False)
    assert (row.done_cores, row.done_why) == (1.0, "as it was")
    assert (row.would_cores, row.would_why, row.difference_cores) == (1.5, "late", 0.5)
    assert (again.asks, again.recorded, again.cycles) == (1, {"dqoes": 1}, 2)


@pytest.mark.parametrize(
    ("done", "would", "apart_cores", "agrees"),
    [
        (1.0, 1.0 + AGREE_RATIO, AGREE_RATIO, True),
        (1.0, 1.0 - 1.5 * AGREE_RATIO, 1.5 * AGREE_RATIO, False),
        (None, None, 0.0, True),
        (None, 4.0, 0.0, True),  # no ceiling on four cores
        (None, 1.0, 3.0, False),
        (3.0, None, 1.0, False),
    ],
)
def test_they_agree_within_two_in_a_hundred_and_no_ceiling_is_all_there_is(
    done: float | None, would: float | None, apart_cores: float, agrees: bool
) -> None:
    again = Replay(NamedPolicy("fixed", Fixed(decide(a=would))), GuardOptions(0.0))
    _, (row,) = again.take(cycle(1, done=done))
    assert row.agrees is agrees
    assert abs(row.difference_cores) == pytest.approx(apart_cores)
    assert again.jobs["a"].mean_apart_cores == pytest.approx(apart_cores)
    assert again.all.agreed_ratio == float(agrees)


def test_a_policy_that_fails_is_counted_and_ends_in_plain_docker() -> None:
    again = replay_of(ValueError("boom"))
    rows = [again.take(cycle(number))[1][0] for number in range(1, 6)]
    assert [row.would_cores for row in rows] == [1.0, 1.0, 1.0, None, None]
    assert rows[-1].would_why == "plain Docker: policy fixed failed: ValueError: boom"
    assert (again.asks, again.failures) == (3, 3)


def test_news_are_a_jobs_first_row_and_each_with_another_limit() -> None:
    news, again = News(), replay_of(replace(decide(a=1.5), next_s=2.0))
    done = [1.0, 1.0, 2.0, 2.0, 2.0]
    told = [
        news.differs(again.take(cycle(number, done=cores))[1][0])
        for number, cores in enumerate(done, 1)
    ]
    assert told == [True, False, True, False, False]


@pytest.mark.timed
def test_cycles_are_found_by_time_also_where_some_were_lost(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = Journal(path, frame_s=3.0)
    for number in (3, 4, 5, 9, 10, 11):
        journal.write(cycle(number))
    journal.close()
    with JournalReader(path) as reader:
        for second, first, last in (
            (0.0, 3, 2),
            (1004.0, 4, 4),
            (1004.5, 5, 4),
            (1007.0, 6, 5),
            (1009.0, 6, 9),
            (2000.0, 12, 11),
        ):
            moment = datetime.fromtimestamp(second, UTC)
            assert (first_cycle_from(reader, moment), last_cycle_until(reader, moment)) == (
                first,
                last,
            )


@pytest.mark.parametrize("told", ["", "yesterday", "\x1b[2J"])
@pytest.mark.timed
def test_a_journal_that_tells_no_time_is_said_to(tmp_path: Path, told: str) -> None:
    path = tmp_path / "journal.db"
    journal = Journal(path)
    journal.write(replace(cycle(3), wall_time=told))
    journal.close()
    with (
        JournalReader(path) as reader,
        pytest.raises(
            DlschedError, match="cycle 3 has no valid time: name cycles by their numbers"
        ),
    ):
        first_cycle_from(reader, datetime.fromtimestamp(0, UTC))
