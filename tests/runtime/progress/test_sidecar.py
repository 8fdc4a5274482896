"""The reader against everything that a container can put where its metrics file should be."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.report.writer import FILE_BYTES, OutFile
from dlsched.runtime.progress import sidecar
from dlsched.runtime.progress.sidecar import (
    NAME_CHECK_S,
    READ_BYTES,
    READ_LINES,
    Lines,
    SidecarReader,
)
from tests.runtime.cgroup.test_read import open_descriptors

PID = 71


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """The sidecar directory of a container whose root is a plain directory."""
    directory = tmp_path / "proc" / str(PID) / "root" / "run" / "dlsched" / "out"
    directory.mkdir(parents=True)
    (tmp_path / "proc" / str(PID) / "mountinfo").symlink_to("/proc/self/mountinfo")
    return directory


@pytest.fixture
def metrics(out: Path) -> Path:
    return out / "metrics.jsonl"


Open = Callable[..., SidecarReader]


@pytest.fixture
def open_reader(tmp_path: Path, out: Path) -> Iterator[Open]:
    """Begins to read the container; all readers are closed at the end of the case."""
    with ExitStack() as readers:

        def begun(expect: Callable[[], bool] = lambda: True, **more: Any) -> SidecarReader:
            reader = SidecarReader(PID, proc_root=tmp_path / "proc", expect=expect, **more)
            return readers.enter_context(closing(reader))

        yield begun


@pytest.fixture
def reader(open_reader: Open) -> SidecarReader:
    return open_reader()


def append(metrics: Path, *lines: str) -> None:
    with metrics.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def steps(reader: SidecarReader, now_s: float = 0.0) -> list[int | None]:
    return [report.sample.step for report in reader.read(now_s).reports if report.sample]


def descriptors() -> int:
    return len(open_descriptors())


# ------------------------------------------------------------------------------ the honest job


def test_lines_come_once_with_the_agents_own_time(reader: SidecarReader, metrics: Path) -> None:
    assert reader.read(0.0).problem is None, "no file yet is no trouble"
    append(metrics, '{"t": 9e99, "step": 1}', '{"t": -5, "step": 2}')
    first = reader.read(7.0)
    assert [report.received_s for report in first.reports] == [7.0, 7.0]
    append(metrics, '{"step": 3}')
    assert steps(reader) == [3]
    assert steps(reader) == []


def test_half_a_line_waits_for_the_rest(reader: SidecarReader, metrics: Path) -> None:
    metrics.write_text('{"step": 1}\n{"st')
    assert steps(reader) == [1]
    with metrics.open("a") as file:
        file.write('ep": 2}\n')
    assert steps(reader) == [2]


def test_a_new_file_by_rename_loses_nothing(reader: SidecarReader, metrics: Path) -> None:
    append(metrics, '{"step": 1}')
    assert steps(reader) == [1]
    append(metrics, '{"step": 2}')
    late = metrics.open("a")
    metrics.rename(metrics.with_suffix(".1"))
    append(metrics, '{"step": 4}')
    assert steps(reader) == [2, 4]
    late.write('{"step": 3}\n')  # by a writer that had opened it before the rename
    late.close()
    append(metrics, '{"step": 5}')
    assert steps(reader) == [3, 5]


def test_a_file_that_is_written_whole_each_time_has_each_line_once(
    open_reader: Open, metrics: Path
) -> None:
    def write(*lines: str) -> None:
        whole = metrics.with_name("new")
        whole.write_text("\n".join(lines))
        whole.replace(metrics)

    def requests(reader: SidecarReader) -> int:
        return sum(one.latency.count for one in reader.read(0.0).reports if one.latency)

    line = '{"latency_s": [0.1]}'
    reader = open_reader()
    write(line, '{"late')
    late = open_reader(from_end=True)
    assert [requests(reader), requests(late)] == [1, 0]
    write(line, line, line, "")
    assert [requests(reader), requests(late)] == [2, 1], "half of the second line was there"
    write(line, line, line, line, "")
    assert [requests(reader), requests(late)] == [1, 1]
    write('{"latency_s": [0.2]}', line, "")
    assert [requests(reader), requests(late)] == [2, 2], "another file"


def test_a_new_file_that_begins_as_the_old_one_is_read_whole(
    reader: SidecarReader, metrics: Path
) -> None:
    for _ in range(3):
        append(metrics, '{"accuracy": 0.5}')
        assert len(reader.read(0.0).reports) == 1
        metrics.rename(metrics.with_suffix(".1"))


def test_a_rename_is_seen_though_no_new_file_is_there_yet(
    reader: SidecarReader, metrics: Path
) -> None:
    append(metrics, '{"step": 1}')
    assert steps(reader) == [1]
    metrics.rename(metrics.with_suffix(".1"))
    assert steps(reader) == []
    append(metrics, '{"step": 2}')
    assert steps(reader) == [2]


def test_a_rename_that_left_no_trace_is_seen_in_the_end(
    reader: SidecarReader, metrics: Path
) -> None:
    append(metrics, '{"step": 1}')
    steps(reader)
    followed = reader._file
    metrics.rename(metrics.with_suffix(".1"))
    followed._changed_ns = metrics.with_suffix(".1").stat().st_ctime_ns  # within a clock tick
    append(metrics, '{"step": 2}')
    assert steps(reader, NAME_CHECK_S / 2) == []
    assert steps(reader, NAME_CHECK_S) == [2]


def test_the_reporters_own_rotation_loses_nothing(reader: SidecarReader, metrics: Path) -> None:
    out = OutFile(str(metrics))
    seen: list[int | None] = []
    for step in range(3 * FILE_BYTES // 1024):
        out.append(f'{{"step": {step}, "t": "{"x" * 1000}"}}\n'.encode())
        if step % 40 == 0:
            seen += steps(reader)
    assert seen + steps(reader) == list(range(3 * FILE_BYTES // 1024))


def test_a_backlog_is_read_64_kib_at_a_time(reader: SidecarReader, metrics: Path) -> None:
    lines = [f'{{"step": {step}, "t": "{"x" * 2000}"}}' for step in range(100)]
    append(metrics, *lines)
    seen = steps(reader)
    assert 0 < len(seen) * 2000 <= READ_BYTES
    metrics.rename(metrics.with_suffix(".1"))
    append(metrics, '{"step": 100}')
    for _ in range(4):
        got = steps(reader)
        assert (len(got) - 1) * 2000 <= READ_BYTES
        seen += got
    assert seen == list(range(101)), "the old file is drained before the new one is begun"


def test_the_last_lines_stay_readable_after_the_exit(
    tmp_path: Path, reader: SidecarReader, metrics: Path
) -> None:
    assert reader.read(0.0).reports == ()
    append(metrics, '{"step": 1}')
    (tmp_path / "proc" / str(PID)).rename(tmp_path / "gone")
    assert steps(reader) == [1]


def test_from_the_end_earlier_lines_are_left_out(open_reader: Open, metrics: Path) -> None:
    append(metrics, '{"step": 1}')
    reader = open_reader(from_end=True)
    assert steps(reader) == []
    append(metrics, '{"step": 2}')
    assert steps(reader) == [2]
    metrics.rename(metrics.with_suffix(".1"))
    append(metrics, '{"step": 3}')
    assert steps(reader) == [3]


def watched(monkeypatch: pytest.MonkeyPatch, *names: str) -> list[str]:
    """The calls of these functions of `os` from now on."""
    calls: list[str] = []
    for name in names:
        real = getattr(os, name)

        def counted(*args: Any, name: str = name, real: Any = real, **kw: Any) -> Any:
            calls.append(name)
            return real(*args, **kw)

        monkeypatch.setattr(os, name, counted)
    return calls


def test_an_idle_file_costs_one_fstat(
    reader: SidecarReader, metrics: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(metrics, '{"step": 1}')
    steps(reader)
    calls = watched(monkeypatch, "open", "fstat", "stat", "pread", "close")
    for now_s in (1.0, 2.0, 3.0, 4.0):
        assert reader.read(now_s).reports == ()
    assert calls == ["fstat"] * 4


def test_closing_lets_go_of_every_descriptor(open_reader: Open, metrics: Path) -> None:
    before = descriptors()
    reader = open_reader()
    append(metrics, '{"step": 1}')
    reader.read(0.0)
    metrics.rename(metrics.with_suffix(".1"))
    append(metrics, '{"step": 2}')
    reader.read(1.0)
    assert descriptors() > before
    reader.close()
    assert descriptors() == before


# ------------------------------------------------------------------------------ the hostile job


def link_beside(metrics: Path) -> None:
    append(metrics.with_name("other"), '{"step": 666}')
    metrics.symlink_to("other")


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (lambda metrics: metrics.symlink_to("/etc/shadow"), "a symbolic link"),
        (link_beside, "a symbolic link"),
        (os.mkfifo, "a FIFO"),
        (Path.mkdir, "a directory"),
        pytest.param(
            lambda metrics: os.mknod(metrics, 0o020666, os.makedev(1, 9)),  # endless
            "a device",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device nodes"),
        ),
    ],
    ids=["link", "link beside it", "fifo", "directory", "device"],
)
def test_only_a_regular_file_is_opened(
    reader: SidecarReader, metrics: Path, place: Callable[[Path], None], said: str
) -> None:
    append(metrics, '{"step": 1}')
    assert steps(reader) == [1]
    metrics.unlink()
    place(metrics)
    before = descriptors()
    for now_s in range(3):
        reading = reader.read(float(now_s))
        assert reading.reports == ()
        assert reading.problem == (
            f"/run/dlsched/out/metrics.jsonl is {said}, not a regular file: not read"
        )
    assert descriptors() == before, "each try lets go of what it opened"
    metrics.rmdir() if metrics.is_dir() else metrics.unlink()
    append(metrics, '{"step": 2}')
    assert steps(reader) == [2]
    assert reader.read(9.0).problem is None


@pytest.mark.parametrize("target", ["/etc", "../dlsched-real/out"])
def test_no_component_of_the_path_may_be_a_symbolic_link(
    reader: SidecarReader, out: Path, target: str
) -> None:
    real = out.parent.with_name("dlsched-real")
    out.parent.rename(real)
    (real / "out" / "metrics.jsonl").write_text('{"step": 666}\n')
    out.parent.mkdir()
    out.symlink_to(target)
    before = descriptors()
    reading = reader.read(0.0)
    assert reading.reports == ()
    assert reading.problem == "/run/dlsched/out is a symbolic link, not a directory: not followed"
    assert descriptors() == before


@pytest.mark.parametrize(
    "path", ["metrics.jsonl", "/run/../etc/metrics.jsonl", "/", "run/dlsched/out/metrics.jsonl"]
)
def test_a_path_that_leads_out_is_not_walked(open_reader: Open, path: str) -> None:
    assert "must be an absolute path" in open_reader(container_path=path).read(0.0).problem


def test_a_missing_directory_is_reported_and_looked_for_again(
    reader: SidecarReader, out: Path
) -> None:
    out.rename(out.with_name("later"))
    assert reader.read(0.0).problem == "the container has no directory /run/dlsched/out"
    out.with_name("later").rename(out)
    append(out / "metrics.jsonl", '{"step": 1}')
    assert steps(reader) == [1]


def test_where_the_root_is_mounted_is_looked_up_once(
    open_reader: Open, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out.rmdir()
    asked: list[int] = []

    def may_hang(descriptor: int, _pid: int, _proc: Path) -> bool:
        asked.append(descriptor)
        return False

    monkeypatch.setattr(sidecar, "may_hang", may_hang)
    reader, before = open_reader(), descriptors()
    for now_s in range(9):
        assert (
            reader.read(float(now_s)).problem == "the container has no directory /run/dlsched/out"
        )
    assert len(asked) == 1
    monkeypatch.setattr(sidecar, "mount_of", lambda descriptor: descriptor)  # each is another's
    reader.read(9.0)
    assert len(asked) > 1
    assert descriptors() == before + 1
    reader.close()
    assert descriptors() == before


def test_a_truncated_file_is_begun_again(reader: SidecarReader, metrics: Path) -> None:
    append(metrics, '{"step": 1}', '{"step": 2}', '{"half')
    steps(reader)
    metrics.write_text('{"step": 3}\n')
    assert steps(reader) == [3]


def test_a_file_begun_again_that_is_longer_by_the_next_read_is_read_whole(
    reader: SidecarReader, metrics: Path
) -> None:
    append(metrics, *(f'{{"step": {step}, "accuracy": 0.5}}' for step in (7, 8, 9)))
    assert steps(reader) == [7, 8, 9]
    metrics.write_text("")
    append(metrics, *(f'{{"step": {step}, "accuracy": 0.9}}' for step in (1, 2, 3, 4)))
    assert steps(reader) == [1, 2, 3, 4]
    append(metrics, '{"step": 5}')
    assert steps(reader) == [5]


def test_gigabytes_cost_one_read(reader: SidecarReader, metrics: Path) -> None:
    append(metrics, '{"step": 1}')
    steps(reader)
    os.truncate(metrics, 4 << 30)
    append(metrics, "", '{"step": 2}')
    reading = reader.read(1.0)
    assert [report.sample and report.sample.step for report in reading.reports] == [2]
    assert reading.bad_lines == 1
    assert reading.refused == "more than 1024 KiB of the file were unread: only its end is read"


def test_a_line_without_end_is_counted_once_and_not_kept(
    reader: SidecarReader, metrics: Path
) -> None:
    bad_lines = 0
    for _ in range(20):
        with metrics.open("a") as file:
            file.write("x" * 5000)
        bad_lines += reader.read(0.0).bad_lines
    assert bad_lines == 1
    append(metrics, "", '{"step": 1}')
    assert steps(reader) == [1]


@pytest.mark.parametrize(
    "line",
    [
        "[" * 100_000,
        '{"step": NaN}',
        '{"step": "1"}',
        '{"pad": "' + "x" * 4096 + '"}',
        "\x00" * 10,
        "rm -rf /",
    ],
)
def test_a_bad_line_is_counted_and_the_next_one_read(
    reader: SidecarReader, metrics: Path, line: str
) -> None:
    append(metrics, line, '{"step": 1}')
    seen, bad_lines = [], 0
    for _ in range(3):
        reading = reader.read(0.0)
        seen += [report.sample and report.sample.step for report in reading.reports]
        bad_lines += reading.bad_lines
        assert reading.problem is None
    assert (seen, bad_lines) == ([1], 1)


def test_very_many_lines_cost_no_more_than_many(reader: SidecarReader, metrics: Path) -> None:
    append(metrics, *["{}"] * 10_000)
    reading = reader.read(0.0)
    assert len(reading.reports) == READ_LINES
    assert reading.bad_lines == 10_000 - READ_LINES
    assert (
        reading.refused == f"more than {READ_LINES} lines came in one read: the others are not read"
    )


def test_one_evaluation_of_three_writers_without_a_step_counts_once(
    reader: SidecarReader, metrics: Path
) -> None:
    def again(now_s: float, *writers: int) -> list[bool]:
        append(metrics, *(f'{{"accuracy": 0.96, "w": {writer}}}' for writer in writers))
        return [one.sample.again for one in reader.read(now_s).reports if one.sample]

    assert again(0.0, 0, 1, 2) == [False, True, True]
    assert again(5.0, 0) == [False]
    assert again(6.0, 1, 2) == [True, True], "the others' lines arrive with the next read"
    assert again(20.0, 0, 0, 1, 1) == [False, False, True, True], "two evaluations"
    assert again(30.0, 0, 0, 0) == [False] * 3, "one writer alone has one line for each"


def test_what_was_written_before_is_history_and_never_bad(open_reader: Open, metrics: Path) -> None:
    append(metrics, *["nonsense"] * 100_000, *(f'{{"step": {step}}}' for step in range(2000)))
    reader = open_reader(history=True)
    reading = reader.read(0.0)
    found = [one.sample.step for one in reading.reports if one.sample]
    assert found == list(range(2000 - READ_LINES, 2000))
    assert (reading.bad_lines, reading.refused) == (0, None)
    append(metrics, "nonsense", '{"step": 2000}')
    reading = reader.read(1.0)
    assert [one.sample.step for one in reading.reports if one.sample] == [2000]
    assert reading.bad_lines == 1


def test_history_has_samples_and_checkpoints_but_no_present_latency_or_load(
    open_reader: Open, metrics: Path
) -> None:
    append(metrics, '{"latency": {"count": 1, "sum": 0.1, "in_flight": 3, "oldest_s": 0.4}}')
    append(metrics, '{"gpu": {"busy_ratio": 0.5}}', '{"step": 1, "latency_s": [0.1]}')
    append(metrics, '{"checkpoint": {"step": 1, "path": "/a"}}')
    reader = open_reader(history=True)
    found = reader.read(0.0).reports
    assert {(one.latency, one.in_flight, one.oldest_s, one.gpu_ratio) for one in found} == {
        (None, None, None, None)
    }
    assert [one.sample.step for one in found if one.sample] == [1]
    assert [one.checkpoint.step for one in found if one.checkpoint] == [1]
    append(metrics, '{"latency_s": [0.1]}')
    assert reader.read(1.0).reports[0].latency is not None


# ------------------------------------------------------------------------------ whose process


@pytest.mark.parametrize("answers", [[False], [True, False]])
def test_a_pid_that_is_another_process_is_not_read(
    open_reader: Open, metrics: Path, answers: list[bool]
) -> None:
    append(metrics, '{"step": 666}')
    before = descriptors()
    reading = open_reader(lambda: answers.pop(0)).read(0.0)
    assert (reading.reports, reading.problem) == ((), "the container's process is gone")
    assert descriptors() == before


def test_a_file_that_rests_where_its_disk_is_lost_is_a_trouble_and_no_exception(
    reader: SidecarReader, metrics: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(metrics, '{"step": 1}')
    reader.read(0.0)
    reader.read(0.5)

    def lost(descriptor: int) -> os.stat_result:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fstat", lost)
        assert os.strerror(errno.ESTALE) in (reader.read(1.0).problem or "")
    assert reader.read(2.0).problem is None


def cut(chunks: list[bytes], most_bytes: int, *, amid: bool = False) -> list[bytes | None]:
    lines = Lines(most_bytes, amid=amid)
    return [line for chunk in chunks for line in lines.cut(chunk)]


def test_a_line_may_come_in_pieces() -> None:
    assert cut([b"a", b"b\nc\n", b"", b"d"], 10) == [b"ab", b"c"]


def test_a_line_that_is_too_long_is_left_out_once_and_no_more() -> None:
    assert cut([b"12345", b"67890", b"x\nnext\n"], 6) == [None, b"next"]
    assert cut([b"123456\nnext\n"], 6) == [None, b"next"]


def test_what_a_stream_begins_amid_is_left_out() -> None:
    assert cut([b"ail", b"\nwhole\n"], 10, amid=True) == [b"whole"]


@given(st.lists(st.binary(max_size=8)))
def test_how_it_is_cut_does_not_matter_and_nothing_grows(chunks: list[bytes]) -> None:
    whole = b"".join(chunks).split(b"\n")[:-1]
    assert [line for line in cut(chunks, 5) if line is not None] == [
        line for line in whole if len(line) < 5
    ]
