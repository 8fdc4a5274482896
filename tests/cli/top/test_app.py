"""What top shows, beside its pictures in `test_looks`, and what its keys do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from rich.text import Text

from dlsched.api.client import Daemon
from dlsched.cli.top import app as app_module
from dlsched.cli.top.texts import NOTES_MAX
from dlsched.model.cycle import CycleReport
from dlsched.model.errors import Refused
from dlsched.model.state import JobState
from tests.cli.top.conftest import Play, view_of
from tests.status_source import FakeSource, example_report, job, report_of

pytestmark = [pytest.mark.timed, pytest.mark.anyio]

ESCAPES = {"\x1b", "\x07", "\u202e"}
HOSTILE = "[blink]a[/]\x1b[2J\x1b]0;title\x07\n\u202eb{0}$x"
HOSTILE_NAME = "[blink]a\x1b[2k\x07\u202e{0}$x"
EXAMPLE = view_of(example_report(), {"digits-resnet": 1.6})


def jobs_report(*names: str) -> CycleReport:
    return report_of(*map(job, names), alarms=(), rejected=())


async def test_hostile_names_and_reasons_are_text(play: Play, daemon: FakeSource) -> None:
    hostile = job(HOSTILE_NAME, state=JobState.WAITING, reason=HOSTILE)
    report = report_of(hostile, alarms=(HOSTILE,), policy=HOSTILE, wall_time=HOSTILE * 3)
    daemon.report = report
    async with play(view_of(report)) as top:
        await top.shows("now: [blink]a[/]")
        await top.shows("─why [blink]a")
        for key in ("w", "escape", "l", "escape"):
            await top.press(key)
            await top.shows("[blink]a")
            assert not ESCAPES & set("".join(top.lines)), key


async def test_the_cursor_is_on_the_job_wherever_its_row_goes(play: Play) -> None:
    report = jobs_report("a", "b", "c")
    async with play(view_of(report, {"a": 1.0, "b": 2.0, "c": 3.0})) as top:

        def shown() -> tuple[list[str], str | None]:
            return top.names, top.app.table.selected

        await top.press("down")
        await top.becomes(shown, (["c", "b", "a"], "b"))
        top.give(view_of(report, {"a": 1.0, "b": 3.0, "c": 2.0}))
        await top.becomes(shown, (["b", "c", "a"], "b"))
        top.give(view_of(jobs_report("a", "c"), {"a": 1.0, "c": 2.0}))
        await top.becomes(shown, (["c", "a"], "c"))  # the next in its row
        top.give(view_of(jobs_report()))
        await top.shows("no jobs yet: `dlsched submit FILE` adds one")
        assert top.app.table.selected is None


@pytest.mark.long
async def test_of_200_jobs_the_selected_one_is_on_the_screen(play: Play) -> None:
    rows = 13  # half of the terminal above the keys, without the header
    async with play(view_of(jobs_report(*(f"job-{n:03}" for n in range(200))))) as top:
        await top.becomes(lambda: len(top.names), rows)
        for key, at in (("pagedown", rows - 1), ("down", rows), ("end", 199), ("up", 198)):
            await top.press(key)
            await top.becomes(
                lambda: (top.app.table.selected, top.app.table.selected in top.names),
                (f"job-{at:03}", True),
            )
        await top.press("home")
        await top.becomes(lambda: top.names[0], "job-000")
        assert len(top.names) == rows


async def test_s_sorts_by_target_name_and_cpu(play: Play) -> None:
    *others, last = map(job, "bac")
    busy = replace(last, usage=replace(last.usage, cpu_cores=2.0))
    async with play(view_of(report_of(*others, busy, alarms=(), rejected=()))) as top:
        for names, order in (("bac", "worst first"), ("abc", "by name"), ("cba", "by CPU")):
            await top.becomes(lambda: top.names, list(names))
            await top.shows(f"3 jobs | {order} | 11:02:03 UTC")
            await top.press("s")
        await top.shows("3 jobs | worst first")


async def test_no_news_is_said_with_its_reason_and_the_old_is_kept(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "monotonic", lambda: 1012.0)
    async with play() as top:
        top.give(replace(view_of(jobs_report("a")), heard_s=1000.0))
        await top.shows("the daemon has sent nothing for 12 s; what you see is from 11:02:03 UTC")
        await top.becomes(lambda: (top.names, top.app.table.dimmed), (["a"], True))
        top.feed.problem = "no daemon answers"
        await top.shows("no daemon answers; what you see is from 11:02:03 UTC")
        top.give(view_of(jobs_report("a", "b")))
        await top.shows("2 jobs | worst first")
        assert not top.app.table.dimmed


async def test_before_the_first_cycle_it_waits(play: Play) -> None:
    async with play() as top:
        await top.shows("waiting for the daemon's first cycle")
        await top.press("s", "g", "q", "w", "l", "down")
        top.feed.problem = "gone\x1b[2J"
        await top.shows("the daemon has sent nothing for ")
        await top.shows("s; gone")


async def test_the_whole_page_and_the_help_open_and_close(play: Play) -> None:
    async with play(EXAMPLE, size=(100, 24)) as top:
        await top.press("down")
        for opens, closes in (("w", "escape"), ("enter", "q")):
            await top.press(opens)
            await top.becomes(lambda: top.lines[:1], ["why digits-resnet"])
            await top.shows("now: resize failed: engine said: busy")
            await top.press(closes)
            await top.shows("8 jobs | worst first")
        await top.press("question_mark")
        await top.shows("Nothing is changed from here")
        await top.press("q")
        await top.shows("8 jobs | worst first")


class Log:
    """A log that grows each time it is read."""

    read = 0

    def __iter__(self) -> Iterator[bytes]:
        self.read += 1
        lines = b"".join(b"line %d\x1b[2J\n" % n for n in range(1000))
        return iter((lines, b"end of reading %d" % self.read))


@pytest.mark.long
async def test_logs_are_the_last_lines_read_again_and_again(
    play: Play, daemon: FakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "LOG_S", 0.1)
    daemon.log = log = Log()  # type: ignore[assignment]
    async with play(EXAMPLE) as top:

        def reading() -> int:
            """The reading whose end is on the screen; 0: none."""
            ends = (line.split()[-1] for line in top.lines if line.startswith("end of"))
            return max(map(int, ends), default=0)

        await top.press("l")
        await top.until(lambda: reading() > 2)
        assert ("logs", "typo", 500, False) in daemon.asked
        await top.press("home")
        await top.until(lambda: reading() == 0)
        before = log.read
        await top.until(lambda: log.read > before + 2)
        assert reading() == 0, "it stays where its reader went"
        await top.press("q")
        await top.shows("8 jobs | worst first")


async def test_logs_of_others_are_refused_in_one_line(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise Refused(403, "status.sock is not open for the output of typo")

    monkeypatch.setattr(Daemon, "logs", refuse)
    async with play(EXAMPLE) as top:
        await top.press("l")
        await top.shows("status.sock is not open for the output of typo")


@pytest.mark.long
async def test_no_key_changes_anything(play: Play, daemon: FakeSource) -> None:
    async with play(EXAMPLE) as top:
        for opener in ("w", "l", "question_mark"):
            await top.press(opener, *"kxdrS", "enter", "delete", "escape")
        await top.press(*"abcdefghijkmnoprstuvxyz", *"ADKRSX", "tab", "delete", "ctrl+d", "f5")
        await top.pause()
    assert {one[0] for one in daemon.asked} <= {"changes", "logs"}


async def test_a_low_terminal_is_for_the_jobs(play: Play) -> None:
    async with play(EXAMPLE, size=(80, 17)) as top:
        await top.becomes(lambda: len(top.names), 8)
        assert not top.app.why.display
        await top.press("w")
        await top.shows("now: image example/inferense")


@pytest.mark.parametrize("width", [30, 60, 80, 100, 140, 200])
async def test_each_width_shows_names_targets_and_how_to_leave(play: Play, width: int) -> None:
    async with play(EXAMPLE, size=(width, 50)) as top:
        await top.becomes(lambda: len(top.names), 8)
        assert max(map(len, top.lines)) <= width
        if width >= 60:
            await top.shows("81.7 ms / 50 ms  LATE +63%")
            await top.keys_show(lambda line: line.endswith("q Quit"))  # so all keys are there


async def test_many_alarms_leave_room_for_jobs(play: Play) -> None:
    report = replace(example_report(), alarms=tuple(f"alarm {n}" for n in range(50)), rejected=())
    async with play(view_of(report)) as top:
        await top.shows(f"and {50 - NOTES_MAX} more lines: `dlsched ps`")
        await top.until(lambda: len(top.names) >= 8)


async def test_the_newest_of_why_is_shown_and_few_jobs_leave_it_the_room(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Text("\n".join(f"change {number}" for number in range(60)))
    monkeypatch.setattr(app_module, "why_of", lambda *_: text)
    async with play(view_of(jobs_report("digits-resnet")), size=(80, 20)) as top:
        await top.shows("change 59")
        await top.becomes(lambda: top.app.table.size.height, 2)  # the header and the only job
