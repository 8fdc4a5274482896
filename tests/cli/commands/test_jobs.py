"""check, schema and submit."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from dlsched.cli.commands import jobs
from dlsched.model.state import Ended
from dlsched.store.jobs import ended_records
from tests.cli.conftest import Program
from tests.status_source import FakeSource

RIGHT = "name: queued\nimage: example/inference\ntarget: {latency: 50ms}\n"
WRONG = "name: Bad Name\nimage: x\nnonsense: 1\n"


@pytest.fixture
def right(tmp_path: Path) -> Path:
    path = tmp_path / "queued.yaml"
    path.write_text(RIGHT)
    return path


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    path = tmp_path / "wrong.yaml"
    path.write_text(WRONG)
    return path


def test_check_tells_all_problems_of_all_files(program: Program, right: Path, wrong: Path) -> None:
    result = program("check", str(wrong), str(right))
    assert result.exit_code == 2
    assert result.stdout == f"{right}: ok, job queued\n"
    problems = result.stderr.splitlines()
    assert [line.partition(": ")[0] for line in problems] == [f"{wrong}:1:7", f"{wrong}:3:1"]


def test_check_json(program: Program, right: Path, wrong: Path) -> None:
    result = program("check", "-o", "json", str(right), str(wrong))
    good, bad = json.loads(result.stdout)
    assert result.exit_code == 2
    assert (good["job"], good["problems"]) == ("queued", [])
    assert (bad["job"], [p["line"] for p in bad["problems"]]) == (None, [1, 3])


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a: " + b"x" * 300_000, b"\x00"])
def test_check_of_no_text_is_2(program: Program, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    result = program("check", str(path))
    assert result.exit_code == 2
    assert result.stderr.startswith(f"{path}:")


def test_job_files_and_the_status_have_a_schema(program: Program) -> None:
    job, status = (json.loads(program("schema", *words).stdout) for words in ((), ("status",)))
    assert "latency" in json.dumps(job)
    assert {"Status", "Explanation", "JobStatus"} <= status["$defs"].keys()
    assert json.loads(program("schema", "job").stdout) == job


def test_check_reads_standard_input(program: Program) -> None:
    right = program("check", "-", input=RIGHT)
    assert (right.exit_code, right.stdout) == (0, "<stdin>: ok, job queued\n")
    wrong = program("check", "-", input=WRONG)
    assert wrong.exit_code == 2
    assert wrong.stderr.splitlines()[0].startswith("<stdin>:1:7: name: 'Bad Name' is not a name")
    no_text = program("check", "-", input=b"name: a\ncaf\xe9: 1\n")
    assert no_text.stderr == "<stdin>:2:4: the byte 0xe9 is not UTF-8: save the file as UTF-8\n"


def test_check_of_a_closed_standard_input(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "sys", SimpleNamespace(stdin=None))
    result = program("check", "-")
    assert (result.exit_code, result.stderr) == (2, "<stdin>: standard input is closed\n")


@pytest.mark.parametrize(
    "words",
    [("check",), ("submit",), ("simulate", "-p", "fair"), ("run", "-c"), ("cluster", "run", "-c")],
)
@pytest.mark.timed
def test_a_fifo_is_refused_where_to_open_it_would_wait(
    program: Program, tmp_path: Path, words: tuple[str, ...]
) -> None:
    os.mkfifo(tmp_path / "F")
    result = program(*words, str(tmp_path / "F"))
    assert result.exit_code == 2
    assert result.stderr == f"{tmp_path}/F: is a FIFO, not a regular file\n"


def test_check_reads_what_a_shell_pipes_from_a_command(program: Program) -> None:
    out, into = os.pipe()
    try:
        os.write(into, RIGHT.encode())
        os.close(into)
        result = program("check", f"/dev/fd/{out}")
    finally:
        os.close(out)
    assert (result.exit_code, result.stdout) == (0, f"/dev/fd/{out}: ok, job queued\n")


@pytest.mark.timed
def test_submit_without_a_daemon_uses_the_settings(
    program: Program, right: Path, folders: Path
) -> None:
    result = program("submit", str(right))
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"{folders}/jobs.d/queued.yaml\n"
    assert (folders / "jobs.d" / "queued.yaml").read_text() == RIGHT


@pytest.mark.timed
def test_submit_asks_the_daemon_for_its_folder(
    program: Program, daemon: FakeSource, right: Path, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    daemon.watch = str(tmp_path / "other")
    assert program("submit", str(right)).exit_code == 0
    assert (tmp_path / "other" / "queued.yaml").exists()


@pytest.mark.timed
def test_submit_of_a_wrong_file_puts_nothing(program: Program, wrong: Path, folders: Path) -> None:
    result = program("submit", str(wrong))
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 2
    assert list((folders / "jobs.d").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("absent", " does not exist: mkdir -p {}"),
        ("F", ": Not a directory"),
        ("loop", ": Too many levels of symbolic links"),
    ],
)
def test_submit_into_what_is_no_folder_names_it(
    program: Program, right: Path, tmp_path: Path, name: str, why: str
) -> None:
    os.mkfifo(tmp_path / "F")
    (tmp_path / "loop").symlink_to("loop")
    place = tmp_path / name
    result = program("submit", str(right), "--watch", str(place))
    assert (result.exit_code, result.stderr) == (1, f"error: {place}{why.format(place)}\n")


@pytest.mark.timed
@pytest.mark.parametrize(("name", "asked"), [("queued", [("start", "queued")]), ("new", [])])
def test_start_lifts_a_stop_through_the_daemon(
    program: Program, daemon: FakeSource, tmp_path: Path, name: str, asked: list[object]
) -> None:
    (tmp_path / "job.yaml").write_text(RIGHT.replace("queued", name))
    assert program("submit", "--start", str(tmp_path / "job.yaml")).exit_code == 0
    assert daemon.asked == asked, "a job that is new to the daemon starts by itself"


@pytest.mark.timed
def test_start_without_a_daemon_is_recorded_for_its_next_start(
    program: Program, right: Path, folders: Path
) -> None:
    ended_records(folders / "state").record(Ended("queued", "d", "stopped"))
    assert program("submit", str(right)).exit_code == 0
    assert ended_records(folders / "state").of("queued") is not None
    assert program("submit", "--start", str(right)).exit_code == 0
    asked = ended_records(folders / "state").of("queued")
    assert asked == Ended("queued", "", "stopped"), "its container may still have to be removed"
