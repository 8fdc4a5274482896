"""Effects of changes, as read from the journal of a node with several jobs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dlsched.estimate.effect import Effect, Verdict
from dlsched.estimate.sketch import from_latencies
from dlsched.model.actions import Outcome, Resize
from dlsched.model.cycle import CycleReport
from dlsched.model.spec import Limits
from dlsched.model.state import Progress
from dlsched.store.journal.effects import EFFECTS_MAX, Effects
from dlsched.store.journal.reader import JournalReader
from tests.store.journal.hours import write
from tests.store.journal.reports import execute, job, report

pytestmark = pytest.mark.timed


def cycle(number: int, slow_until: int, *changed: str, status: str = "done") -> CycleReport:
    """A second in which `alpha` answers 4 requests, in 80 ms up to that cycle and in 40 after."""
    latency_s = 0.08 if number <= slow_until else 0.04
    one = report(number, job("alpha"), job("beta"), job("gamma"))
    progress = Progress(fresh=from_latencies([latency_s] * 4))
    jobs = tuple(
        replace(view, progress=progress if view.name == "alpha" else Progress())
        for view in one.snapshot.jobs
    )
    outcomes = tuple(
        Outcome(Resize(name, "id", Limits(0.5), Limits(0.75), 768, "late"), status)  # type: ignore[arg-type]
        for name in changed
    )
    return replace(one, snapshot=replace(one.snapshot, jobs=jobs), outcomes=outcomes)


def written(path: Path, *reports: CycleReport, frame_s: float = 25.0) -> None:
    write(path, reports, frame_s)


def told(path: Path, name: str = "alpha", limit: int = 10) -> dict[int, Effect]:
    return Effects(path).last(name, None, limit)


def test_a_change_that_helped_is_told_with_those_that_changed_too(path: Path) -> None:
    also = {95: ("beta",), 100: ("alpha",), 110: ("beta", "gamma"), 160: ("delta",)}
    written(path, *(cycle(n, 100, *also.get(n, ())) for n in range(1, 201)))
    found = told(path)
    assert {n: str(one) for n, one in found.items()} == {
        100: "helped: 80 -> 40 ms (240 requests), 2 other jobs changed too"
    }
    assert (found[100].requests_before, found[100].requests_after) == (120, 120)


def test_the_same_is_told_whatever_frames_are_whole(path: Path) -> None:
    reports = [cycle(n, 100, *("alpha",) * (n in (100, 145, 190))) for n in range(1, 250)]
    found = []
    for frame_s in (1.0, 7.0, 60.0, 1000.0):
        each = path.with_name(f"{frame_s}.db")
        written(each, *reports, frame_s=frame_s)
        found.append(told(each))
    assert [str(one) for _, one in sorted(found[0].items())] == [
        "helped: 80 -> 40 ms (240 requests)",
        "no effect: 40 -> 40 ms (240 requests)",
        "no effect: 40 -> 40 ms (240 requests)",
    ]
    assert found.count(found[0]) == len(found)


def test_a_change_before_the_next_is_not_judged_and_none_that_failed_counts(path: Path) -> None:
    failed = [cycle(n, 100, *("alpha",) * (n == 110), status="failed") for n in range(107, 112)]
    rest = [cycle(n, 100, *("alpha",) * (n in (100, 106))) for n in range(1, 107)]
    written(path, *rest, *failed, *(cycle(n, 100) for n in range(112, 130)))
    assert {n: str(one) for n, one in told(path).items()} == {
        100: "not judged: the job's limits changed again after 6 s",
        106: "effect: measured in 17 s",
    }


def test_the_history_may_begin_and_end_anywhere(path: Path) -> None:
    written(path, *(cycle(n, 9, *("alpha",) * (n == 9)) for n in range(4, 60)))
    found = told(path)[9]
    assert (found.requests_before, found.requests_after) == (24, 120)
    assert found.verdict is Verdict.HELPED
    assert told(path, "beta") == {}


def test_only_the_last_changes_are_judged(path: Path) -> None:
    written(path, *(cycle(n, 0, *("alpha",) * (n % 50 == 0)) for n in range(1, 800)))
    assert sorted(told(path, limit=1000)) == [50 * n for n in range(6, 16)]
    assert len(told(path, limit=1000)) == EFFECTS_MAX
    assert sorted(told(path, limit=2)) == [700, 750]


def test_what_is_known_is_not_read_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(path, *(cycle(n, 100, *("alpha",) * (n in (100, 150))) for n in range(1, 180)))
    effects = Effects(path)
    first = effects.last("alpha", None, 10)
    assert [one.verdict for one in first.values()] == [Verdict.LATER, Verdict.HELPED]

    def decoded(*_: object) -> None:
        raise AssertionError("frames are read again")

    with monkeypatch.context() as forbidden:
        forbidden.setattr(JournalReader, "latencies", decoded)
        assert effects.last("alpha", None, 10) == first
    written(path, *(cycle(n, 100) for n in range(180, 200)))
    assert effects.last("alpha", None, 10)[150].verdict is Verdict.NONE
    assert effects.last("alpha", 0.5, 10)[100].verdict is Verdict.HELPED


def test_a_journal_that_cannot_be_read_tells_nothing(path: Path) -> None:
    assert told(path) == {}
    written(path, *(cycle(n, 100, *("alpha",) * (n == 100)) for n in range(1, 200)))
    execute(path, "UPDATE frames SET body = x'00ff' WHERE cycle > 60")
    assert str(told(path)[100]) == "too few requests (0 after the change)"


def test_a_history_gets_what_is_known_and_a_few_more_each_time(path: Path) -> None:
    at = range(100, 100 + 12 * 80, 80)
    written(path, *(cycle(n, 100, *(["alpha"] if n in at else [])) for n in range(1, 1110)))
    with JournalReader(path) as reader:
        changes = reader.last_changes(None, 100)[::-1]
    effects, never = Effects(path), lambda: False
    first = effects.some(changes, {"alpha": None}, never)
    assert set(first) == {("alpha", number) for number in at[-EFFECTS_MAX:]}
    then = effects.some(changes, {"alpha": None}, never)
    assert set(then) == {("alpha", number) for number in at}
    assert then["alpha", 100].verdict is Verdict.HELPED
    alone = {("alpha", number): one for number, one in told(path).items()}
    assert alone.items() <= then.items()

    crowd = {f"job-{number}": None for number in range(200)}
    slowly = Effects(path)
    assert len(slowly.some(changes, {"alpha": None, **crowd}, never)) == 1
    assert len(slowly.some(changes, {"alpha": None, **crowd}, never)) == 2
    assert slowly.some(changes, {"beta": None}, never) == {}, "no latency target, no effect"
    assert Effects(path).some(changes, {"alpha": None}, lambda: True) == {}, (
        "the client has closed the connection"
    )
