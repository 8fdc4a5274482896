"""The writer: once a second at most, nothing lost, nothing in the job's way."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from dlsched.report.writer import FILE_BYTES, PERIOD_S, OutFile, Writer
from tests.report.jobs import run_job, told


@pytest.fixture
def clock() -> SimpleNamespace:
    return SimpleNamespace(now_s=100.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


@pytest.fixture
def writer(path: Path, clock: SimpleNamespace) -> Writer:
    return Writer(
        str(path), threaded=False, monotonic=lambda: clock.now_s, wall=lambda: 1760000000.0
    )


def test_without_a_thread_the_caller_writes_once_a_second(
    writer: Writer, path: Path, clock: SimpleNamespace
) -> None:
    for _ in range(24):
        clock.now_s += PERIOD_S / 8
        writer.observed(0.05)
    counts = [line["latency"]["count"] for line in told(path)]
    assert len(counts) == 3
    assert sum(counts) == 24


def test_a_hung_request_shows(writer: Writer, path: Path, clock: SimpleNamespace) -> None:
    token = writer.request_begun()
    clock.now_s += 0.5
    writer.request_begun()
    clock.now_s += 2.5
    assert writer.flush(), "more is to come while something is in flight"
    writer.request_ended(token, "error")
    writer.flush()
    first, second = (line["latency"] for line in told(path))
    assert first == {"count": 0, "in_flight": 2, "oldest_s": 3.0}
    assert second == {"count": 0, "errors": 1, "in_flight": 1, "oldest_s": 2.5}


def test_the_end_of_the_last_request_is_told_though_it_counts_nothing(
    writer: Writer, path: Path
) -> None:
    token = writer.request_begun()
    writer.flush()
    writer.request_ended(token, "neither")
    assert not writer.flush()
    assert not writer.flush()
    assert [line["latency"]["in_flight"] for line in told(path)] == [1, 0]


def test_of_many_steps_in_a_second_the_last_value_of_each_metric_is_told(
    writer: Writer, path: Path
) -> None:
    writer.stepped(1, {"loss": 0.9, "accuracy": 0.1})
    writer.stepped(2, {"loss": 0.8})
    writer.saved(2, "/ckpt/2")
    writer.flush()
    sample, checkpoint = told(path)
    assert sample == {
        "t": 1760000000.0, "w": writer.name, "step": 2, "loss": 0.8, "accuracy": 0.1,
    }  # fmt: skip
    assert checkpoint["checkpoint"] == {"step": 2, "path": "/ckpt/2"}


def test_metrics_that_do_not_fit_a_line_are_dropped_not_the_step(
    writer: Writer, path: Path
) -> None:
    writer.stepped(3, {chr(0x10000 + index) * 64: 0.1 for index in range(32)})
    writer.flush()
    (line,) = told(path)
    assert line["step"] == 3
    assert writer.dropped > 0


def test_a_request_that_began_before_the_fork_is_not_the_childs(writer: Writer, path: Path) -> None:
    token = writer.request_begun()
    writer.observed(1.0)
    parent = writer.name
    writer.reset()
    writer.request_ended(token, "latency")
    writer.flush()
    assert writer.name != parent
    assert not path.exists()


@pytest.mark.process
def test_a_forked_child_is_a_writer_of_its_own(path: Path) -> None:
    job = """
import os, threading, warnings
warnings.simplefilter("ignore")  # a fork of a process with threads
from dlsched.report import latency
latency.observe(0.1)
stop = threading.Event()
def busy():
    while not stop.is_set():
        latency.observe(0.1)
thread = threading.Thread(target=busy)
thread.start()
for _ in range(20):  # other threads hold the lock at some of these forks
    child = os.fork()
    if not child:
        latency.observe(0.2)
        import dlsched.report.writer
        dlsched.report.writer.current().flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
thread.join()
"""
    children = [line for line in run_job(job, path) if line["latency"].get("sum") == 0.2]
    assert len(children) == len({line["w"] for line in children}) == 20


@pytest.mark.process
def test_a_signal_handler_may_report_in_the_middle_of_reporting(path: Path) -> None:
    job = """
import signal
from dlsched.report import Progress, latency
progress = Progress()
fired = []
def save(*_):
    fired.append(1)
    latency.observe(0.2)
    progress.checkpoint(len(fired), "/ckpt")
signal.signal(signal.SIGALRM, save)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0005)
while len(fired) < 200:
    with latency.measure():
        pass
signal.setitimer(signal.ITIMER_REAL, 0)
"""
    assert any("checkpoint" in line for line in run_job(job, path))


@pytest.mark.process
def test_the_thread_keeps_reporting_a_hung_request(path: Path) -> None:
    job = """
import os, time
from dlsched.report import latency
with latency.measure():
    deadline = time.monotonic() + 30
    while not os.path.exists(os.environ["DLSCHED_METRICS_FILE"]):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os._exit(0)  # no atexit: what is there, the thread wrote
"""
    assert run_job(job, path)[0]["latency"]["in_flight"] == 1


@pytest.mark.process
def test_it_works_where_no_thread_can_be_had(path: Path) -> None:
    job = """
import threading
def refuse(self):
    raise RuntimeError("can't start new thread")
threading.Thread.start = refuse
from dlsched.report import latency
latency.observe(0.1)
"""
    assert [line["latency"]["count"] for line in run_job(job, path)] == [1]


def test_the_part_of_the_gpus_time_is_told_once_beside_the_rest(writer: Writer, path: Path) -> None:
    writer.paced(0.2)
    writer.paced(0.48123456)
    writer.stepped(3, {"loss": 0.5})
    writer.flush()
    writer.stepped(4, {})
    writer.flush()
    assert [(line.get("step"), line.get("gpu")) for line in told(path)] == [
        (3, None),
        (None, {"busy_ratio": 0.4812}),
        (4, None),
    ]


LINE = b"x" * 4095 + b"\n"


def test_a_full_file_is_renamed_and_a_new_one_begun(tmp_path: Path) -> None:
    out = OutFile(str(tmp_path / "metrics.jsonl"))
    for _ in range(FILE_BYTES // len(LINE) + 1):
        out.append(LINE)
    assert (tmp_path / "metrics.jsonl").read_bytes() == LINE
    assert (tmp_path / "metrics.jsonl.1").stat().st_size == FILE_BYTES
    assert out.dropped == 0


def test_a_second_writer_does_not_rename_the_new_file_away(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"y" * FILE_BYTES)
    late = OutFile(str(path))
    descriptor = late._open()
    OutFile(str(path)).append(LINE)
    assert late._turn(descriptor, 1), "the name is to be opened anew"
    os.close(descriptor)
    assert path.read_bytes() == LINE


@pytest.mark.parametrize("obstacle", ["missing directory", "directory", "fifo"])
def test_what_cannot_be_written_is_dropped_and_counted(tmp_path: Path, obstacle: str) -> None:
    path = tmp_path / "metrics.jsonl"
    if obstacle == "missing directory":
        path = tmp_path / "gone" / "metrics.jsonl"
    elif obstacle == "directory":
        path.mkdir()
    else:
        os.mkfifo(path)
    out = OutFile(str(path))
    out.append(LINE)
    assert out.dropped == 1


@pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="no /dev/full on this host")
def test_a_full_disk_costs_the_line_and_nothing_else() -> None:
    out = OutFile("/dev/full")
    out.append(LINE)
    assert out.dropped == 1


def test_a_torn_line_does_not_spoil_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = OutFile(str(tmp_path / "metrics.jsonl"))
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:3]))
    out.append(b'{"loss":1}\n')
    monkeypatch.undo()
    out.append(b'{"loss":2}\n')
    assert (tmp_path / "metrics.jsonl").read_bytes() == b'{"l\n{"loss":2}\n'
    assert out.dropped == 1


def test_processes_of_other_users_may_report_too(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        OutFile(str(tmp_path / "metrics.jsonl")).append(b"{}\n")
    finally:
        os.umask(before)
    assert (tmp_path / "metrics.jsonl").stat().st_mode & 0o777 == 0o666
