"""The watch folder, case by case, with time as a number."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.config import job as reading
from dlsched.config.inbox import files as job_files
from dlsched.config.inbox.files import is_job_file
from dlsched.config.inbox.scan import Inbox, InboxScan
from tests.config.yaml_grammar import JOB_FILES
from tests.properties import examples


class Desk:
    """An inbox on a folder, and a clock in hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.inbox = Inbox(folder)
        self.now_s = 100.0

    def write(self, file: str, job: str, more: str = "") -> None:
        (self.folder / file).write_text(f"name: {job}\nimage: a\n{more}")

    def scan(self, after_s: float = 0.0) -> InboxScan:
        self.now_s += after_s
        return self.inbox.scan(self.now_s)

    def settle(self) -> InboxScan:
        """Scan when the inbox asks for it, until it asks no more."""
        scan = self.scan()
        for _ in range(10):
            if scan.next_s is None:
                return scan
            assert scan.next_s > self.now_s, "asks to look again at once"
            self.now_s = scan.next_s
            scan = self.scan()
        raise AssertionError("never settles")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    (tmp_path / "jobs.d").mkdir()
    return Desk(tmp_path / "jobs.d")


def test_a_change_since_the_last_scan_is_noticed_once(desk: Desk) -> None:
    desk.write("a.yaml", "one")
    (desk.folder / "alice").mkdir()
    desk.settle()
    assert not desk.inbox.changed()
    desk.write("alice/b.yaml", "two")
    desk.write("notes.txt", "three")
    assert not desk.inbox.changed(), "neither is a file of the operator's"
    for change in (
        lambda: desk.write("a.yaml", "one", "weight: 2\n"),
        lambda: desk.write("c.yaml", "three"),
        (desk.folder / "a.yaml").unlink,
        lambda: desk.folder.rename(desk.folder.with_name("away")),
    ):
        change()
        assert [desk.inbox.changed() for _ in range(2)] == [True, False]
    desk.scan()
    assert not desk.inbox.changed(), "the folder is still missing"


def names(scan: InboxScan) -> dict[str, str]:
    """Image by job... the files, with a check that specs and files agree."""
    assert [spec.name for spec in scan.specs] == sorted(scan.files)
    return dict(scan.files)


def rejections(scan: InboxScan) -> list[tuple[str, str | None]]:
    return [(entry.file, entry.job) for entry in scan.rejected]


# ------------------------------------------------------------------------------------- taking


def test_a_file_is_taken_once_it_stood_still(desk: Desk) -> None:
    desk.write("a.yaml", "job-a")
    first = desk.scan()
    assert (names(first), first.unsettled, first.settled) == ({}, ("a.yaml",), False)
    assert first.next_s == pytest.approx(100.1)
    assert names(desk.scan(0.05)) == {}
    taken = desk.scan(0.06)
    assert names(taken) == {"job-a": "a.yaml"}


def test_what_has_not_changed_for_long_is_taken_in_the_first_scan(desk: Desk) -> None:
    desk.write("a.yaml", "alpha")
    changed_s = (desk.folder / "a.yaml").stat().st_ctime_ns / 1e9
    since_change_s = 0.0
    desk.inbox = Inbox(desk.folder, wall_s=lambda: changed_s + since_change_s)
    assert desk.scan().unsettled == ("a.yaml",), "written just now"
    since_change_s = 3600.0
    desk.inbox = Inbox(desk.folder, wall_s=lambda: changed_s + since_change_s)
    assert names(desk.scan()) == {"alpha": "a.yaml"}
    desk.write("b.yaml", "beta")
    assert desk.scan(1.0).unsettled == ("b.yaml",), "new ones stand still first, whatever the clock"
    since_change_s = -3600.0
    desk.inbox = Inbox(desk.folder, wall_s=lambda: changed_s + since_change_s)
    assert desk.scan().unsettled == ("a.yaml", "b.yaml"), "a clock that was set back"
    assert names(desk.settle()) == {"alpha": "a.yaml", "beta": "b.yaml"}


def test_a_file_still_being_written_waits_on(desk: Desk) -> None:
    for size in range(5):
        desk.write("a.yaml", "job-a", "# more\n" * size)
        assert names(desk.scan(0.09)) == {}
    assert names(desk.scan(0.1)) == {"job-a": "a.yaml"}


def test_a_folder_is_settled_only_when_it_was_readable_for_a_while(desk: Desk) -> None:
    assert not desk.scan().settled
    assert desk.scan().next_s == pytest.approx(100.5)
    assert desk.scan(0.5).settled
    assert desk.scan().next_s is None


@pytest.mark.parametrize(
    "name",
    [".a.yaml", ".a.yaml.swp", "a.yaml~", "#a.yaml#", ".#a.yaml", "4913", "a.yaml.tmp", "~a.yaml",
     "a.txt", "a.yaml.orig", ".a.yaml.x1.tmp", "a.YAML.bak"],
)  # fmt: skip
def test_editors_own_files_are_no_jobs(desk: Desk, name: str) -> None:
    desk.write(name, "job-a")
    assert not is_job_file(name)
    scan = desk.settle()
    assert (names(scan), scan.rejected) == ({}, ())


def test_nothing_is_read_while_nothing_changes(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.write("a.yaml", "job-a")
    (desk.folder / "bad.yaml").write_text("no: [")
    desk.settle()
    monkeypatch.setattr(job_files.os, "open", lambda *_: pytest.fail("opened a file"))
    assert names(desk.scan(10)) == {"job-a": "a.yaml"}


# ------------------------------------------------------------------------------------ changes


def test_a_change_is_taken_and_the_old_wish_holds_until_then(desk: Desk) -> None:
    desk.write("a.yaml", "job-a")
    before = desk.settle().specs[0]
    desk.write("a.yaml", "job-a", "weight: 2\n")
    assert desk.scan().specs == (before,)
    assert desk.settle().specs[0].weight == 2


def test_a_rewrite_of_the_same_size_and_time_is_seen(desk: Desk) -> None:
    desk.write("a.yaml", "job-a", "weight: 1\n")
    desk.settle()
    before = (desk.folder / "a.yaml").stat()
    (desk.folder / "new").write_text("name: job-a\nimage: a\nweight: 2\n")
    os.utime(desk.folder / "new", ns=(before.st_atime_ns, before.st_mtime_ns))
    (desk.folder / "new").replace(desk.folder / "a.yaml")
    assert desk.settle().specs[0].weight == 2


def test_a_rejected_change_leaves_the_job_alone(desk: Desk) -> None:
    desk.write("a.yaml", "job-a")
    before = desk.settle().specs
    (desk.folder / "a.yaml").write_text("name: job-a\nimag")
    half = desk.scan()
    assert (half.specs, half.rejected) == (before, ())
    wrong = desk.settle()
    assert wrong.specs == before
    assert rejections(wrong) == [("a.yaml", "job-a")]
    assert wrong.rejected[0].problems[0].startswith("a.yaml:")
    desk.write("a.yaml", "job-a")
    mended = desk.settle()
    assert (mended.specs, mended.rejected) == (before, ())


def test_every_problem_of_a_new_file_is_told(desk: Desk) -> None:
    (desk.folder / "a.yaml").write_text("name: X\nimag: a\n")
    scan = desk.settle()
    assert names(scan) == {}
    assert rejections(scan) == [("a.yaml", None)]
    assert len(scan.rejected[0].problems) == 3


# ----------------------------------------------------------------------------------- removal


def test_a_deleted_file_counts_once_it_is_gone_for_a_while(desk: Desk) -> None:
    desk.write("a.yaml", "job-a")
    desk.settle()
    (desk.folder / "a.yaml").unlink()
    gone = desk.scan()
    assert (names(gone), gone.unsettled, gone.settled) == ({"job-a": "a.yaml"}, ("a.yaml",), False)
    assert names(desk.scan(0.4)) == {"job-a": "a.yaml"}
    after = desk.scan(0.1)
    assert (names(after), after.settled) == ({}, True)


def test_an_editor_that_removes_and_writes_anew_ends_nothing(desk: Desk) -> None:
    desk.write("a.yaml", "job-a")
    before = desk.settle().specs
    (desk.folder / "a.yaml").unlink()
    assert desk.scan(0.1).specs == before
    desk.write("a.yaml", "job-a", "weight: 2\n")
    assert desk.scan(0.3).specs == before
    assert desk.scan(0.05).specs == before
    assert desk.settle().specs[0].weight == 2


def test_a_renamed_file_keeps_its_job_without_a_gap(desk: Desk) -> None:
    desk.write("a.yaml", "job-a")
    before = desk.settle().specs
    (desk.folder / "a.yaml").rename(desk.folder / "b.yaml")
    for _ in range(20):
        scan = desk.scan(0.05)
        assert scan.specs == before
        assert scan.rejected == ()
    assert names(scan) == {"job-a": "b.yaml"}


# ------------------------------------------------------------------------------- one name, two


def test_the_first_to_hold_a_name_keeps_it(desk: Desk) -> None:
    desk.write("b.yaml", "job-x")
    desk.settle()
    desk.write("a.yaml", "job-x", "weight: 2\n")
    scan = desk.settle()
    assert names(scan) == {"job-x": "b.yaml"}
    assert scan.specs[0].weight == 1
    assert scan.rejected[0].problems == ("a.yaml: the file b.yaml already has the job job-x",)


def test_at_the_same_time_the_first_by_file_name_wins(desk: Desk) -> None:
    desk.write("b.yaml", "job-x")
    desk.write("a.yaml", "job-x")
    scan = desk.settle()
    assert names(scan) == {"job-x": "a.yaml"}
    assert rejections(scan) == [("b.yaml", None)]


def test_the_other_takes_over_when_the_first_goes(desk: Desk) -> None:
    desk.write("a.yaml", "job-x")
    desk.settle()
    desk.write("b.yaml", "job-x", "weight: 2\n")
    desk.settle()
    (desk.folder / "a.yaml").unlink()
    assert names(desk.scan(0.1)) == {"job-x": "a.yaml"}
    scan = desk.settle()
    assert (names(scan), scan.rejected) == ({"job-x": "b.yaml"}, ())
    assert scan.specs[0].weight == 2


def test_a_file_that_may_not_have_its_new_name_keeps_its_old_job(desk: Desk) -> None:
    desk.write("a.yaml", "job-a")
    desk.write("b.yaml", "job-b")
    desk.settle()
    desk.write("b.yaml", "job-a", "weight: 2\n")
    scan = desk.settle()
    assert names(scan) == {"job-a": "a.yaml", "job-b": "b.yaml"}
    assert rejections(scan) == [("b.yaml", "job-b")]


def test_two_files_may_swap_their_names(desk: Desk) -> None:
    desk.write("a.yaml", "job-a")
    desk.write("b.yaml", "job-b")
    desk.settle()
    desk.write("a.yaml", "job-b")
    desk.write("b.yaml", "job-a")
    scan = desk.settle()
    assert (names(scan), scan.rejected) == ({"job-a": "b.yaml", "job-b": "a.yaml"}, ())


def test_a_new_name_in_a_file_ends_the_old_job(desk: Desk) -> None:
    desk.write("a.yaml", "job-a")
    desk.settle()
    desk.write("a.yaml", "job-b")
    assert names(desk.settle()) == {"job-b": "a.yaml"}


# --------------------------------------------------------------------------------- the folder


def test_a_folder_that_cannot_be_listed_removes_nothing(desk: Desk) -> None:
    desk.write("a.yaml", "job-a")
    before = desk.settle().specs
    away = desk.folder.with_name("away")
    desk.folder.rename(away)
    for _ in range(5):
        lost = desk.scan(10)
        assert (lost.specs, lost.settled, lost.next_s) == (before, False, None)
        assert lost.problem == (
            f"{desk.folder} cannot be listed: No such file or directory "
            f"(`mkdir -p {desk.folder}`, or `--watch` another folder)"
        )
    away.rename(desk.folder)
    back = desk.scan(1)
    assert (back.specs, back.problem) == (before, None)
    assert desk.settle().settled


def test_a_folder_that_comes_back_without_a_file_removes_it_after_the_wait(desk: Desk) -> None:
    desk.write("a.yaml", "job-a")
    desk.settle()
    (desk.folder / "a.yaml").unlink()
    desk.scan()
    desk.folder.rmdir()
    desk.scan(0.4)
    desk.folder.mkdir()
    assert names(desk.scan(10)) == {"job-a": "a.yaml"}
    assert names(desk.scan(0.4)) == {"job-a": "a.yaml"}
    assert names(desk.scan(0.2)) == {}


def test_a_file_in_place_of_the_folder_is_trouble(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    scan = Inbox(tmp_path / "file").scan(0.0)
    assert "Not a directory" in scan.problem


# ---------------------------------------------------------------------------- what is no file


@pytest.mark.timed
def test_what_is_no_regular_file_is_refused_and_never_waited_for(desk: Desk) -> None:
    os.mkfifo(desk.folder / "fifo.yaml")
    (desk.folder / "folder.yaml").mkdir()
    (desk.folder / "link.yaml").symlink_to("/etc/hostname")
    (desk.folder / "broken.yaml").symlink_to("nowhere")
    with socket.socket(socket.AF_UNIX) as bound:
        here = Path.cwd()
        os.chdir(desk.folder)
        try:
            bound.bind("socket.yaml")
        finally:
            os.chdir(here)
        scan = desk.settle()
    assert {entry.file: entry.problems[0].split(": ")[1] for entry in scan.rejected} == {
        "broken.yaml": "is a symbolic link",
        "fifo.yaml": "is not a regular file",
        "folder.yaml": "is not a regular file",
        "link.yaml": "is a symbolic link",
        "socket.yaml": "is not a regular file",
    }


def test_what_is_too_big_or_no_text_is_refused(desk: Desk) -> None:
    (desk.folder / "big.yaml").write_bytes(b"#" * (256 * 1024 + 1))
    (desk.folder / "binary.yaml").write_bytes(b"name: \xff\n")
    (desk.folder / "empty.yaml").write_text("")
    assert [entry.problems[0] for entry in desk.settle().rejected] == [
        "big.yaml: has more than 256 KiB",
        "binary.yaml:1:7: the byte 0xff is not UTF-8: save the file as UTF-8",
        "empty.yaml:1:1: the file is empty",
    ]


def test_a_file_that_may_not_be_read_is_tried_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.write("a.yaml", "job-a")
    with monkeypatch.context() as patch:

        def refuse(*_: object) -> int:
            raise PermissionError(13, "Permission denied")

        patch.setattr(job_files.os, "open", refuse)
        scan = desk.settle()
        assert scan.rejected[0].problems == ("a.yaml: cannot be read: Permission denied",)
    assert names(desk.scan(1)) == {"job-a": "a.yaml"}


# -------------------------------------------------------------------------------- any history

FILES = st.sampled_from(["a.yaml", "b.yaml", "c.yaml"])
JOBS = st.sampled_from(["job-x", "job-y"])
STEPS = st.lists(
    st.tuples(st.just("write"), FILES, JOBS)
    | st.tuples(st.just("spoil"), FILES, JOBS)
    | st.tuples(st.just("remove"), FILES, JOBS)
    | st.tuples(st.just("wait"), st.sampled_from([0.05, 0.2, 1.0]), JOBS),
    max_size=25,
)


@settings(max_examples=examples(60))
@given(STEPS)
def test_after_any_history_the_wish_is_what_the_folder_says(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str | float, str]]
) -> None:
    desk = Desk(tmp_path_factory.mktemp("jobs"))
    said: dict[str, str | None] = {}
    for verb, what, job in steps:
        if isinstance(what, float):
            scan = desk.scan(what)
            assert len(scan.files) == len(set(scan.files.values()))
            continue
        if verb == "write":
            desk.write(what, job)
            said[what] = job
        elif verb == "spoil":
            (desk.folder / what).write_text("image: [")
            said[what] = None
        else:
            (desk.folder / what).unlink(missing_ok=True)
            said.pop(what, None)
    scan = desk.settle()
    assert not scan.unsettled
    asked = {job for job in said.values() if job}
    # Each job asked for is there, from a file that exists; each file not in force says why.
    assert asked <= set(names(scan))
    assert set(scan.files.values()) <= set(said)
    rejected = {entry.file for entry in scan.rejected}
    for file, job in said.items():
        assert (file in rejected) != (job is not None and scan.files.get(job) == file)


# ------------------------------------------------------------------------------- many files


def test_a_thousand_files_at_once_are_read_over_several_scans_and_nothing_is_gone_meanwhile(
    desk: Desk,
):
    for number in range(1000):
        desk.write(f"{number:03}.yaml", f"job-{number:03}")
    desk.scan()
    first = desk.scan(after_s=1.0)
    assert 0 < len(first.specs) < 200
    assert not first.settled
    assert first.next_s <= desk.now_s, "the rest is not waited for"
    scans = 1
    while not (scan := desk.scan(after_s=0.02)).settled:
        scans += 1
        assert scans < 20
    assert len(scan.specs) == 1000


def test_files_that_change_all_the_time_do_not_keep_others_waiting(desk: Desk):
    for number in range(300):
        desk.write(f"a{number:03}.yaml", f"noisy-{number:03}")
    desk.write("z.yaml", "quiet")
    desk.scan()
    for turn in range(4):
        found = names(desk.scan(after_s=0.2))
        if "quiet" in found:
            return
        for number in range(300):
            desk.write(f"a{number:03}.yaml", f"noisy-{number:03}", f"weight: {turn + 1}\n")
        desk.scan(after_s=0.2)
    raise AssertionError("the quiet file is never read")


def test_an_untouched_folder_is_told_as_before_and_nothing_of_it_is_made_anew(desk: Desk) -> None:
    desk.write("a.yaml", "one")
    desk.settle()
    first = desk.scan(10.0)
    assert desk.scan(1.0) is first and desk.scan(1.0) is first
    assert first.next_s is None
    desk.write("b.yaml", "two")
    assert desk.scan(1.0) is not first
    assert names(desk.settle()) == {"one": "a.yaml", "two": "b.yaml"}


def test_a_changed_file_beside_a_job_file_is_seen_in_an_untouched_folder(desk: Desk) -> None:
    (desk.folder / "job.env").write_text("A=1\n")
    desk.write("a.yaml", "one", "env_file: job.env\n")
    desk.settle()
    first = desk.scan(10.0)
    assert desk.scan(1.0) is first
    (desk.folder / "job.env").write_text("A=22\n")
    assert desk.scan(1.0) is not first
    assert desk.settle().specs[0].container.environment == (("A", "22"),)


# --------------------------------------------------------------------------------- hostile files


def test_a_file_on_which_the_reader_fails_stops_no_other(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = reading._parsed

    def parsed(text: str, name: str, *more: Any) -> Any:
        if name == "b.yaml":
            raise RuntimeError("a fault of ours")
        return real(text, name, *more)

    for name in "abc":
        desk.write(f"{name}.yaml", f"job-{name}")
    desk.settle()
    monkeypatch.setattr(reading, "_parsed", parsed)
    for name in "abc":
        desk.write(f"{name}.yaml", f"job-{name}", "weight: 2\n")
    scan = desk.settle()
    weights = {spec.name: spec.weight for spec in scan.specs}
    assert weights == {"job-a": 2.0, "job-b": 1.0, "job-c": 2.0}, "b runs on as it was"
    (bad,) = scan.rejected
    why = "cannot be read, by a fault of dlsched (RuntimeError: a fault of ours)"
    assert bad.problems == (f"b.yaml: {why}: please report this",)


def test_a_file_whose_name_is_no_text_is_rejected_with_the_reason(desk: Desk) -> None:
    desk.write(os.fsdecode(b"\xff.yaml"), "job-a")
    (bad,) = desk.settle().rejected
    assert bad.problems == ("\udcff.yaml: has a name that is not UTF-8: rename it",)


HOSTILE = JOB_FILES | st.binary()
NAMES = st.text(st.characters(exclude_characters="/\0"), min_size=1, max_size=9)


@given(st.dictionaries(NAMES, HOSTILE, min_size=1, max_size=3))
def test_whatever_files_lie_there_a_good_one_beside_them_applies(
    tmp_path_factory: pytest.TempPathFactory, drawn: dict[str, bytes]
) -> None:
    desk = Desk(tmp_path_factory.mktemp("jobs.d"))
    for name, content in drawn.items():
        file = os.fsencode(desk.folder) + b"/" + name.encode("utf-8", "replace") + b".yaml"
        with open(file, "wb") as stream:  # noqa: PTH123
            stream.write(b"name: hostile\nimage: a\n" * (len(content) % 2) + content)
    desk.write("good.yaml", "good")
    scan = desk.settle()
    assert names(scan)["good"] == "good.yaml"
    for bad in scan.rejected:
        assert bad.problems
        assert all("fault of dlsched" not in line for line in bad.problems)
