"""What top shows, cell by cell, and what its keys do."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from rich.text import Text
from textual.pilot import Pilot
from textual.widgets import Input

from dlsched.api.client import Daemon
from dlsched.api.cluster import ROWS_MAX
from dlsched.cli.top import app as app_module
from dlsched.cli.top.app import Top
from dlsched.cli.top.command import _of_cluster
from dlsched.cli.top.texts import NOTES_MAX
from dlsched.model.cycle import CycleReport
from dlsched.model.errors import Refused
from dlsched.model.state import JobState
from tests.cli.top.conftest import (
    GivenFeed,
    Play,
    becomes,
    keys_show,
    screen_lines,
    shows,
    until,
    view_of,
)
from tests.cluster_status import example
from tests.status_source import FakeSource, example_report, gpu_report, job

pytestmark = pytest.mark.timed

RATIOS = (0.5, 0.9, 1.0, 1.05, 1.3, 2.0)


def jobs_report(*names: str, **more: object) -> CycleReport:
    report = example_report()
    jobs = tuple(job(name, **more) for name in names)  # type: ignore[arg-type]
    return replace(report, snapshot=replace(report.snapshot, jobs=jobs), alarms=(), rejected=())


def names_shown(app: Top) -> list[str]:
    """The first word of each row below the header; none before that is painted."""
    lines = screen_lines(app)
    header = next((at for at, line in enumerate(lines) if line.startswith("NAME")), len(lines))
    rows = lines[header + 1 : header + 1 + app.table.size.height - 1]
    return [line.split()[0] for line in rows if line.split()]


def test_node_alarms_jobs_and_the_page_of_the_first(play: Play) -> None:
    trends = {"digits-resnet": [None] * 14 + list(RATIOS)}

    async def person(pilot: Pilot[None], feed: GivenFeed) -> None:
        await shows(pilot, "now: image example/inferense: not found")
        lines = screen_lines(app := pilot.app)  # type: ignore[arg-type]
        assert " ".join(lines[:2]) == (
            "policy dqoes | 1 of 7 services OK, 1 within 10 % | 0 of 1 training delivered | "
            "capacity 4 cores, 3.12 used, CPU limits add up to 3.65, 1 job without | engine ok | "
            "0.10 used by others"
        )
        assert lines[2:5] == [
            "  alarm: limits stay as they are: policy dqoes failed",
            "  rejected: bad.yaml:3:7: cpus.max: 0 is too low",
            "8 jobs | worst first | 11:02:03 UTC",
        ]
        rows = {line.split()[0]: line.split()[1:] for line in lines[5:14]}
        assert rows["NAME"] == [
            *("STATE", "MEASURED", "/", "TARGET", "RESULT", "TREND", "CPU", "/", "LIMIT")
        ]
        assert " ".join(rows["digits-resnet"]) == (
            "running p95 81.7 ms / 50 ms LATE +63% ▁▄▄▅▇█ 0.52 / 1.25"
        )
        assert " ".join(rows["lenet-train"]) == (
            "running accuracy 0.8731 / 0.9 NOT YET training 0.52 / 0.60"
        )
        assert "no requests" in " ".join(rows["face-unlock"])
        keys = "w Why l Logs / Filter s Sort g GPUs p Pause ? Help q Quit"
        await keys_show(pilot, lambda line: " ".join(line.split()) == keys)
        assert app.table.selected == "typo"  # type: ignore[attr-defined]

    play(person, view_of(example_report(), {"digits-resnet": 1.6}, trends))


def test_the_selected_job_is_explained_with_the_effect_of_its_changes(
    play: Play, daemon: FakeSource
) -> None:
    async def person(pilot: Pilot[None], feed: GivenFeed) -> None:
        await pilot.press("down")
        await shows(pilot, "resize  1.000 cores -> 1.100 cores  done")
        await shows(
            pilot, "helped: 90 -> 81.7 ms (212 requests), 2 others changed too; expected 84 ms"
        )
        assert ("changes", "digits-resnet", 10) in daemon.asked

    play(person, view_of(example_report(), {"digits-resnet": 1.6}), size=(110, 40))


HOSTILE = "[blink]a[/]\x1b[2J\x1b]0;title\x07\n\u202eb{0}$x"
HOSTILE_NAME = "[blink]a\x1b[2k\x07\u202e{0}$x"


def test_hostile_names_and_reasons_are_text(play: Play, daemon: FakeSource) -> None:
    report = jobs_report(HOSTILE_NAME, state=JobState.WAITING, reason=HOSTILE)
    report = replace(report, alarms=(HOSTILE,), policy=HOSTILE, wall_time=HOSTILE * 3)
    daemon.report = report

    async def person(pilot: Pilot[None], feed: GivenFeed) -> None:
        await shows(pilot, "now: [blink]a[/]")
        await shows(pilot, "─why [blink]a")
        for key in ("w", "escape", "l", "escape"):
            await pilot.press(key)
            await shows(pilot, "[blink]a")
            text = "\n".join(screen_lines(pilot.app))  # type: ignore[arg-type]
            assert not {"\x1b", "\x07", "\u202e"} & set(text), key

    play(person, view_of(report))


def test_the_cursor_is_on_the_job_wherever_its_row_goes(play: Play) -> None:
    report = jobs_report("a", "b", "c")

    async def person(pilot: Pilot[None], feed: GivenFeed) -> None:
        app = pilot.app
        assert isinstance(app, Top)

        def shown() -> tuple[list[str], str | None]:
            return names_shown(app), app.table.selected

        await pilot.press("down")
        await becomes(pilot, shown, (["c", "b", "a"], "b"))
        feed.give(view_of(report, {"a": 1.0, "b": 3.0, "c": 2.0}))
        await becomes(pilot, shown, (["b", "c", "a"], "b"))
        feed.give(view_of(jobs_report("a", "c"), {"a": 1.0, "c": 2.0}))
        await becomes(pilot, shown, (["c", "a"], "c"))  # the next in its row
        feed.give(view_of(jobs_report()))
        await shows(pilot, "no jobs yet: `dlsched submit FILE` adds one")
        assert app.table.selected is None

    play(person, view_of(report, {"a": 1.0, "b": 2.0, "c": 3.0}))


@pytest.mark.long
def test_of_200_jobs_the_selected_one_is_on_the_screen(play: Play) -> None:
    report = jobs_report(*(f"job-{n:03}" for n in range(200)))

    async def person(pilot: Pilot[None], feed: GivenFeed) -> None:
        app = pilot.app
        assert isinstance(app, Top)
        rows = 13  # half of the terminal above the keys, without the header
        await becomes(pilot, lambda: len(names_shown(app)), rows)
        for key, selected in (
            ("pagedown", rows - 1),
            ("down", rows),
            ("end", 199),
            ("up", 198),
            ("home", 0),
        ):
            await pilot.press(key)
            name = f"job-{selected:03}"

            def shown(name: str = name) -> tuple[str | None, bool]:
                return app.table.selected, name in names_shown(app)

            await becomes(pilot, shown, (name, True))
        assert len(names_shown(app)) == rows

    play(person, view_of(report))


@pytest.mark.long
def test_a_filter_shows_names_and_states_that_have_its_text(play: Play) -> None:
    async def person(pilot: Pilot[None], feed: GivenFeed) -> None:
        app = pilot.app
        assert isinstance(app, Top)

        async def types(text: str) -> None:  # a key typed before the focus has moved is another's
            await pilot.press("slash")
            await until(pilot, lambda: isinstance(app.focused, Input))
            await pilot.press(*text)

        async def ends(key: str) -> None:
            await pilot.press(key)
            await until(pilot, lambda: app.focused is app.table)

        await types("DIGITS")
        await ends("enter")
        digits = ["digits-mobilenet", "digits-resnet", "digits-vgg"]
        await becomes(pilot, lambda: sorted(names_shown(app)), digits)
        await shows(pilot, "3 of 8 jobs with 'DIGITS' (Esc: all) | worst first")
        await types("x")
        await shows(pilot, "no job has 'DIGITSx' in its name or state")
        await ends("escape")
        await types("waiting")
        await ends("enter")
        await becomes(pilot, lambda: names_shown(app), ["queued"])
        await ends("escape")
        await becomes(pilot, lambda: len(names_shown(app)), 8)

    play(person, view_of(example_report()))


def test_s_sorts_by_target_name_and_cpu(play: Play) -> None:
    report = jobs_report("b", "a", "c")
    jobs = report.snapshot.jobs
    busy = replace(jobs[2], usage=replace(jobs[2].usage, cpu_cores=2.0))
    report = replace(report, snapshot=replace(report.snapshot, jobs=(*jobs[:2], busy)))

    async def person(pilot: Pilot[None], feed: GivenFeed) -> None:
        app = pilot.app
        assert isinstance(app, Top)
        for names, order in (
            ("bac", "worst first"),
            ("abc", "by name"),
            ("cba", "by CPU"),
            ("bac", "worst first"),
        ):
            await becomes(
                pilot,
                lambda: (names_shown(app), screen_lines(app)[2:3]),
                (list(names), [f"3 jobs | {order} | 11:02:03 UTC"]),
            )
            await pilot.press("s")

    play(person, view_of(report))


def test_g_shows_the_gpus_of_the_node_and_of_each_job(play: Play) -> None:
    async def person(pilot: Pilot[None], feed: GivenFeed) -> None:
        app = pilot.app
        assert isinstance(app, Top)
        assert not any("GPU MEMORY" in line for line in screen_lines(app))
        await pilot.press("g")
        await shows(pilot, "2  GPU-33333333")
        await shows(pilot, "GPU    SHARE   USED  GPU MEMORY")
        lines = screen_lines(app)
        assert any("2  GPU-33333333" in line and "failed" in line for line in lines)
        assert any(line.endswith("GPU    SHARE   USED  GPU MEMORY") for line in lines)
        [row] = [line for line in lines if line.startswith("shared-one  ")]
        assert row.split()[-7:] == ["0", "60", "%", "58", "%", "7", "GiB"]
        [row] = [line for line in lines if line.startswith("without")]
        assert row.split()[-4:] == ["-"] * 4
        feed.give(view_of(jobs_report("a")))
        await shows(pilot, "this node has no GPUs")
        await pilot.press("g")
        await until(pilot, lambda: not any("GPU" in line for line in screen_lines(app)[:-1]))

    play(person, view_of(gpu_report()), size=(120, 40))


def test_paused_nothing_moves_and_then_the_last_is_shown(play: Play) -> None:
    async def person(pilot: Pilot[None], feed: GivenFeed) -> None:
        app = pilot.app
        assert isinstance(app, Top)
        await pilot.press("p")
        await shows(pilot, "PAUSED (p: go on)")
        feed.give(view_of(jobs_report("b")))
        feed.give(view_of(jobs_report("c")))
        await pilot.pause()
        assert names_shown(app) == ["a"]
        await pilot.press("p")
        await becomes(pilot, lambda: names_shown(app), ["c"])
        await until(pilot, lambda: not any("PAUSED" in line for line in screen_lines(app)))

    play(person, view_of(jobs_report("a")))


def test_no_news_is_said_with_its_reason_and_the_old_is_kept(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "monotonic", lambda: 1012.0)

    async def person(pilot: Pilot[None], feed: GivenFeed) -> None:
        app = pilot.app
        assert isinstance(app, Top)
        feed.give(replace(view_of(jobs_report("a")), heard_s=1000.0))
        await shows(pilot, "no news for 12 s; what you see is from 11:02:03 UTC")
        await becomes(pilot, lambda: names_shown(app), ["a"])
        assert app.table.dimmed
        feed.problem = "no daemon answers"
        await shows(pilot, "no daemon answers; what you see is from 11:02:03 UTC")
        feed.give(view_of(jobs_report("a", "b")))
        await shows(pilot, "2 jobs | worst first")
        assert not app.table.dimmed

    play(person)


def test_before_the_first_cycle_it_waits(play: Play) -> None:
    async def person(pilot: Pilot[None], feed: GivenFeed) -> None:
        await shows(pilot, "waiting for the daemon's first cycle")
        for key in ("s", "g", "w", "l", "down", "p", "p"):
            await pilot.press(key)
        feed.problem = "gone\x1b[2J"
        await shows(pilot, "no news for ")
        await shows(pilot, "s; gone")

    play(person)


def test_the_whole_page_and_the_help_open_and_close(play: Play) -> None:
    async def person(pilot: Pilot[None], feed: GivenFeed) -> None:
        await pilot.press("down")
        for key in ("w", "enter"):
            await pilot.press(key)
            await becomes(
                pilot,
                lambda: screen_lines(pilot.app)[:1],  # type: ignore[arg-type]
                ["why digits-resnet"],
            )
            await shows(pilot, "now: resize failed: engine said: busy")
            await pilot.press("escape" if key == "w" else "q")
            await shows(pilot, "8 jobs | worst first")
        await pilot.press("question_mark")
        await shows(pilot, "Nothing is changed from here")
        await pilot.press("q")
        await shows(pilot, "8 jobs | worst first")

    play(person, view_of(example_report(), {"digits-resnet": 1.6}), size=(100, 24))


@pytest.mark.long
def test_n_shows_the_cluster_on_a_manager(play: Play, daemon: FakeSource) -> None:
    status = example()
    daemon.cluster_status = replace(
        status, alarms=(HOSTILE,), jobs=tuple(replace(one, why=HOSTILE) for one in status.jobs)
    )

    async def person(pilot: Pilot[None], feed: GivenFeed) -> None:
        app = pilot.app
        assert isinstance(app, Top)
        await keys_show(pilot, lambda line: "n Nodes" in line)
        await pilot.press("n")
        await shows(pilot, "4 nodes, 1 job, 1 waiting; policy adaptive")
        lines = screen_lines(app)
        rows = [line.split() for line in lines]
        assert ["gpu-1", "ready", "9", "7.8", "/", "8", "14", "min"] in [row[:8] for row in rows]
        assert any(row[:3] == ["resnet", "gpu-1>n3", "moving"] for row in rows)
        assert any(row[:4] == ["vgg", "30", "s", "gpu-1:"] for row in rows)
        assert not {"\x1b", "\x07", "\u202e"} & set("\n".join(lines))
        many = status.jobs * (ROWS_MAX + 1)
        daemon.cluster_status = replace(status, jobs=many)
        await pilot.press("q")
        await shows(pilot, "1 job | worst first")
        await pilot.press("n")
        await shows(pilot, "gpu-1>n3  moving")
        await pilot.press("end")
        await shows(pilot, "and 1 more job: `dlsched cluster status`")
        daemon.cluster_status = None
        await pilot.press("q")
        await shows(pilot, "1 job | worst first")
        await pilot.press("n")
        await shows(pilot, "no controller of a cluster has run on this host")
        await pilot.press("q")
        await shows(pilot, "1 job | worst first")

    play(person, view_of(jobs_report("a")), of_cluster=True)


def test_without_a_cluster_n_does_nothing(play: Play, daemon: FakeSource) -> None:
    daemon.cluster_status = example()

    async def person(pilot: Pilot[None], feed: GivenFeed) -> None:
        await keys_show(pilot, lambda line: "Quit" in line and "Nodes" not in line)
        await pilot.press("n")
        await pilot.pause()
        assert len(pilot.app.screen_stack) == 1

    play(person, view_of(jobs_report("a")))


@pytest.mark.parametrize("known", [True, False])
def test_the_command_learns_of_the_cluster(
    daemon: FakeSource, folders: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    daemon.cluster_status = example() if known else None
    assert _of_cluster(Daemon(folders / "run")) is known

    def refuse(self: Daemon) -> None:
        raise Refused(404, "Not Found")

    monkeypatch.setattr(Daemon, "cluster", refuse)
    assert not _of_cluster(Daemon(folders / "run")), "a daemon of an earlier version"


class Log:
    """A log that grows each time it is read."""

    def __init__(self) -> None:
        self.read = 0

    def __iter__(self) -> Iterator[bytes]:
        self.read += 1
        lines = b"".join(b"line %d\x1b[2J\n" % n for n in range(1000))
        return iter((lines, b"end of reading %d" % self.read))


def reading(pilot: Pilot[None]) -> int:
    """The reading whose end is on the screen; 0: none."""
    lines = screen_lines(pilot.app)  # type: ignore[arg-type]
    return max((int(line.split()[-1]) for line in lines if line.startswith("end of")), default=0)


@pytest.mark.long
def test_logs_are_the_last_lines_read_again_and_again(
    play: Play, daemon: FakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "LOG_S", 0.1)
    log = Log()
    daemon.log = log  # type: ignore[assignment]

    async def person(pilot: Pilot[None], feed: GivenFeed) -> None:
        await pilot.press("l")
        await until(pilot, lambda: reading(pilot) > 2)
        assert ("logs", "typo", 500, False) in daemon.asked
        await pilot.press("home")
        await until(pilot, lambda: reading(pilot) == 0)
        before = log.read
        await until(pilot, lambda: log.read > before + 2)
        assert reading(pilot) == 0, "it stays where its reader went"
        await pilot.press("q")
        await shows(pilot, "8 jobs | worst first")

    play(person, view_of(example_report()))


def test_logs_of_others_are_refused_in_one_line(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Daemon, job: str, tail: int, follow: bool) -> Iterator[bytes]:
        raise Refused(403, "the output of typo is not for status.sock")

    monkeypatch.setattr(Daemon, "logs", refuse)

    async def person(pilot: Pilot[None], feed: GivenFeed) -> None:
        await pilot.press("l")
        await shows(pilot, "the output of typo is not for status.sock")

    play(person, view_of(example_report()))


@pytest.mark.long
def test_no_key_changes_anything(play: Play, daemon: FakeSource) -> None:
    async def person(pilot: Pilot[None], feed: GivenFeed) -> None:
        for opener in ("w", "l", "question_mark"):
            await pilot.press(opener, *"kxdrS", "enter", "delete", "escape")
        await pilot.press(*"abcdefghijkmnoprstuvxyz", *"ADKRSX", "tab", "delete", "ctrl+d", "f5")
        await pilot.press("slash", *"stop", "enter")
        await pilot.pause()

    play(person, view_of(example_report()))
    assert {one[0] for one in daemon.asked} <= {"changes", "logs"}


def test_a_low_terminal_is_for_the_jobs(play: Play) -> None:
    async def person(pilot: Pilot[None], feed: GivenFeed) -> None:
        app = pilot.app
        assert isinstance(app, Top)
        await becomes(pilot, lambda: len(names_shown(app)), 8)
        assert not app.why.display
        await pilot.press("w")
        await shows(pilot, "now: image example/inferense")

    play(person, view_of(example_report()), size=(80, 17))


@pytest.mark.parametrize("width", [30, 60, 80, 100, 140, 200])
def test_all_widths_show_names_and_no_line_is_too_long(play: Play, width: int) -> None:
    async def person(pilot: Pilot[None], feed: GivenFeed) -> None:
        app = pilot.app
        assert isinstance(app, Top)
        for _ in range(2):
            await becomes(pilot, lambda: len(names_shown(app)), 8)
            assert max(map(len, screen_lines(app))) <= width
            await pilot.press("g")
            await pilot.pause()
        if width >= 80:
            await keys_show(pilot, lambda line: line.endswith("q Quit"))  # so all keys are there

    play(person, view_of(example_report()), size=(width, 50))


def test_many_alarms_leave_room_for_jobs(play: Play) -> None:
    report = replace(example_report(), alarms=tuple(f"alarm {n}" for n in range(50)), rejected=())

    async def person(pilot: Pilot[None], feed: GivenFeed) -> None:
        await shows(pilot, f"and {50 - NOTES_MAX} more lines: `dlsched ps`")
        await until(pilot, lambda: len(names_shown(pilot.app)) >= 8)  # type: ignore[arg-type]

    play(person, view_of(report), size=(110, 30))


def test_the_narrowest_terminal_has_targets_and_the_key_that_leaves(play: Play) -> None:
    async def person(pilot: Pilot[None], feed: GivenFeed) -> None:
        await shows(pilot, "81.7 ms / 50 ms  LATE +63%")
        lines = screen_lines(pilot.app)  # type: ignore[arg-type]
        row = next(line for line in lines if line.startswith("digits-resn"))
        assert "81.7 ms / 50 ms  LATE +63%" in row
        await keys_show(pilot, lambda line: line.endswith("q Quit"))

    play(person, view_of(example_report()), size=(60, 24))


@pytest.mark.parametrize("columns", [60, 66, 74, 75])
def test_on_a_manager_the_key_that_leaves_has_room_too(play: Play, columns: int) -> None:
    async def person(pilot: Pilot[None], feed: GivenFeed) -> None:
        await shows(pilot, "8 jobs | worst first")
        await keys_show(
            pilot, lambda line: "q Quit" in line and ("n Nodes" in line) is (columns > 60)
        )

    play(person, view_of(example_report()), size=(columns, 24), of_cluster=True)


def test_the_newest_of_why_is_in_sight_and_few_jobs_leave_it_the_room(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = example_report()
    jobs = tuple(one for one in report.snapshot.jobs if one.name == "digits-resnet")
    report = replace(report, snapshot=replace(report.snapshot, jobs=jobs), alarms=(), rejected=())
    text = Text("\n".join(f"change {number}" for number in range(60)))
    monkeypatch.setattr(app_module, "why_of", lambda _daemon, _job: lambda _width: text)

    async def person(pilot: Pilot[None], feed: GivenFeed) -> None:
        await shows(pilot, "change 59")
        app = pilot.app
        assert isinstance(app, Top)
        await becomes(pilot, lambda: app.table.size.height, 2)  # the header and the only job

    play(person, view_of(report), size=(80, 20))


def test_news_that_comes_while_the_widgets_are_taken_away_is_no_failure(play: Play) -> None:
    async def person(pilot: Pilot[None], feed: GivenFeed) -> None:
        await pilot.app.query("#node, #news").remove()
        feed.give(view_of(example_report()))
        await pilot.pause()

    play(person, view_of(example_report()))


def test_what_comes_as_the_program_ends_is_dropped(play: Play) -> None:
    apps: list[Top] = []

    async def person(pilot: Pilot[None], feed: GivenFeed) -> None:
        assert isinstance(pilot.app, Top)
        apps.append(pilot.app)

    play(person)
    (app,) = apps
    for one in (app, app.why):
        one._closing = one._closed = False  # as a thread saw it just before
    with ThreadPoolExecutor() as thread:
        thread.submit(app._hand_over, view_of(example_report())).result()
        thread.submit(app.why._run, lambda _width: Text("late"), 20).result()
