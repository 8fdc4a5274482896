"""Progress out of a container's log: patterns, bounds, and a stream that breaks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from dlsched.model.errors import EngineUnavailable
from dlsched.runtime.progress import log_pattern
from dlsched.runtime.progress.log_lines import Pattern
from dlsched.runtime.progress.log_pattern import HISTORY_BYTES, LogReader
from dlsched.runtime.progress.sidecar import READ_BYTES, READ_LINES, SourceReading
from tests.runtime.progress.fake_log import FakeLog
from tests.waiting import until

pytestmark = pytest.mark.timed

DEADLINE_S = 30.0
LATENCY = r"took (?P<latency_ms>\S+) ms"
TRAINING = r"step (?P<step>\d+) loss (?P<loss>\S+)(?: acc (?P<accuracy>\S+))?"


@pytest.fixture
def log() -> FakeLog:
    return FakeLog()


@pytest.fixture
def follow(log: FakeLog) -> Iterator[Callable[..., LogReader]]:
    """Begins to read the log; the reader is closed at the end of the case."""
    with ExitStack() as readers:
        yield lambda pattern, **more: readers.enter_context(
            closing(LogReader(log, pattern, **more))
        )


Follow = Callable[..., LogReader]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_pattern, "FIRST_RETRY_S", 0.01)


def read_until(reader: LogReader, enough: int, now_s: float = 5.0) -> SourceReading:
    """Read until so many reports or bad lines have come."""
    seen: list[SourceReading] = []

    def came() -> int:
        seen.append(reader.read(now_s))
        return sum(len(one.reports) + one.bad_lines for one in seen)

    until(came, "reports", every_s=0.002, so=lambda count: count >= enough)
    refused = next((one.refused for one in seen if one.refused), None)
    bad = sum(one.bad_lines for one in seen)
    reports = tuple(report for one in seen for report in one.reports)
    return SourceReading(reports, bad, seen[-1].problem, refused)


def test_latencies_are_counted_together(log: FakeLog, follow: Follow) -> None:
    log.chunks.put(b"started\nGET / took 20 ms\nGET / to")
    log.chunks.put(b"ok 40 ms\n")
    reader = follow(LATENCY)
    told = [report.latency for report in read_until(reader, 1).reports]
    while sum(one.count for one in told if one) < 2:
        told += [report.latency for report in read_until(reader, 1).reports]
    assert sum(one.sum_s for one in told if one) == pytest.approx(0.06)
    assert log.opened == [True]


def test_training_lines_are_samples(log: FakeLog, follow: Follow) -> None:
    log.chunks.put(b"step 10 loss 0.5\rstep 20 loss 0.25 acc 0.9\r\n")
    reader = follow(TRAINING, from_end=True)
    first, second = (report.sample for report in read_until(reader, 2, now_s=7.0).reports)
    assert (first.received_s, first.step, first.metrics) == (7.0, 10, (("loss", 0.5),))
    assert (second.step, second.metrics) == (20, (("loss", 0.25), ("accuracy", 0.9)))
    assert log.opened == [False]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"took fast ms", "latency_ms: 'fast': not a finite number"),
        (b"took nan ms", "latency_ms: 'nan': not a finite number"),
        (b"took 1e999 ms", "latency_ms: '1e999': not a finite number"),
        (b"took 1_0 ms", "latency_ms: '1_0': not a finite number"),
        (b"took -1 ms", "latency_ms: not a latency"),
        (b"took 1e300 ms", "latency_ms: not a latency"),
        (b"took " + b"1" * 40 + b" ms", "latency_ms: '11111"),
        (b"took \x1b[31m ms", r"latency_ms: '\x1b[31m': not a finite number"),
        (b"x" * 5000, "a line of the log has more than 4096 bytes, so it is not read"),
    ],
)
def test_what_makes_no_sense_is_a_bad_line(
    log: FakeLog, follow: Follow, line: bytes, why: str
) -> None:
    log.chunks.put(line + b"\n")
    reader = follow(LATENCY)
    reading = read_until(reader, 1)
    assert (reading.reports, reading.bad_lines) == ((), 1)
    assert reading.refused is not None and reading.refused.startswith(why)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("took (?P<latency_ms>", "not a regular expression of RE2: missing"),
        (r"(?P<loss>.)\1", "not a regular expression of RE2: invalid escape"),
        (r"(?<=a)(?P<loss>.)", "not a regular expression of RE2: invalid perl operator"),
        ("took ([0-9]+)", "1 to 32 named groups"),
        ("".join(f"(?P<a{n}>.)" for n in range(24)), "characters, must have at most 256"),
        ("(?P<loss>x{1000})", "compiles to"),
        ("(?P<loss>((a{100}){100}){100})", "not a regular expression of RE2: "),
        ("(?P<checkpoint>.)", "group 'checkpoint' has no name of a metric"),
        ("(?P<t>.)", "group 't' has no name of a metric"),
        (f"(?P<{'a' * 65}>.)", "has no name of a metric"),
    ],
)
def test_a_pattern_that_is_not_taken(text: str, why: str) -> None:
    text = text + " " * (257 - len(text)) if why.startswith("characters") else text
    with pytest.raises(ValueError) as raised:
        Pattern(text)
    assert why in str(raised.value) and str(raised.value).isprintable()


def test_a_step_is_a_whole_number() -> None:
    pattern = Pattern(r"(?P<step>\S+)")
    assert pattern.read(b"12") == {"step": 12.0}
    for bad in (b"1.5", b"-1", b"1e300"):
        with pytest.raises(ValueError, match=r"step: .*an integer"):
            pattern.read(bad)


def test_the_worst_pattern_on_the_worst_log_costs_bounded_cpu() -> None:
    pattern = Pattern("(?:x?){40}(?P<loss>x{40})y")

    def cost_s() -> float:
        began_s = time.process_time()
        for _ in range(READ_BYTES // 4096):
            pattern.read(b"x" * 4095)
        return time.process_time() - began_s

    assert any(cost_s() < 1.0 for _ in range(5)), "others may disturb a try"


def test_a_flood_is_read_up_to_the_bound_and_then_left(log: FakeLog, follow: Follow) -> None:
    for _ in range(100):
        log.chunks.put(b"took 20 ms\n" * 1000)
    reader = follow(LATENCY)
    seen: list[SourceReading] = []

    def bad_lines() -> int:
        seen.append(reader.read(1.0))
        assert log.taken <= len(seen) + 1, "each read makes room for one of these chunks"
        return sum(one.bad_lines for one in seen)

    until(bad_lines, "bad lines", every_s=0.001, so=lambda count: count >= 3)
    sketches = [report.latency for one in seen for report in one.reports if report.latency]
    assert {one.count for one in sketches} == {READ_LINES}
    refused = next(one.refused for one in seen if one.refused)
    assert refused == (
        "the log grew by more than 64 KiB or 512 lines in one cycle: the rest is not read"
    )


def test_what_was_printed_before_is_history_up_to_its_bound_and_never_bad(
    log: FakeLog, follow: Follow
) -> None:
    printed = b"".join(
        b"step %d loss 0.5\nnoise %s\n" % (step, b"x" * 5000 if step == 1990 else b"")
        for step in range(2000)
    )
    chunks = [printed[at : at + 7000] for at in range(0, len(printed), 7000)]
    asked: list[int] = []

    def history() -> list[bytes]:
        asked.append(1)
        if len(asked) == 1:
            raise EngineUnavailable("not now")
        return chunks

    reader = follow(TRAINING, history=history)
    log.chunks.put(b"ss 0.25\nstep 2001 loss fast\n")  # it begins amid the line of the history
    chunks.append(b"step 2000 lo")
    reading = read_until(reader, READ_LINES + 2)
    samples = [one.sample for one in reading.reports if one.sample]
    first = 2000 - READ_LINES
    assert [one.step for one in samples] == list(range(first, 2001)), "the newest ones"
    assert samples[-1].metrics == (("loss", 0.25),)
    assert (reading.bad_lines, reading.refused) == (1, "loss: 'fast': not a finite number")
    assert log.opened == [True], "from where the history ends"


def test_a_history_of_megabytes_is_cut_to_its_last_lines(log: FakeLog, follow: Follow) -> None:
    last = b"step 7 loss 0.5\n"
    chunks = [b"step 9 loss 0.1 " + b"y" * 1000 + b"\n"] * (3 * HISTORY_BYTES // 1000) + [last]
    reader = follow(TRAINING, history=lambda: chunks)
    reports = read_until(reader, 2).reports
    assert [one.sample.step for one in reports if one.sample] == [9, 7]
    reading = reader.read(6.0)
    assert reading.log is not None and reading.log.lines <= HISTORY_BYTES // 1000 + 1


def test_latencies_of_the_history_are_not_present(log: FakeLog, follow: Follow) -> None:
    reader = follow(LATENCY, history=lambda: [b"took 900 ms\n"] * 600)
    log.chunks.put(b"took 20 ms\n")
    reading = read_until(reader, 1)
    (latency,) = (one.latency for one in reading.reports)
    assert latency is not None and (latency.count, reading.bad_lines) == (1, 0)


def test_a_log_that_cannot_be_read_is_said_and_tried_again(log: FakeLog, follow: Follow) -> None:
    log.refuses = EngineUnavailable("configured logging driver does not support reading")
    reader = follow(LATENCY)
    problem = until(lambda: reader.read(1.0).problem, "a problem")
    assert (
        problem
        == "the container's log cannot be read: configured logging driver does not support reading"
    )
    log.refuses = None
    log.chunks.put(b"took 1 ms\n")
    assert read_until(reader, 1).problem is None
    assert set(log.opened) == {True}, "what was printed before the first connection counts"


def test_a_broken_stream_is_opened_again_from_then_on(log: FakeLog, follow: Follow) -> None:
    log.chunks.put(b"took 1 ms\n")
    log.chunks.put(ConnectionResetError("broken"))
    reader = follow(LATENCY)
    read_until(reader, 1)

    def opened_again() -> bool:
        reader.read(1.0)
        return len(log.opened) > 1

    until(opened_again, "another reading of the log", every_s=0.002)
    assert log.opened[:2] == [True, False]


def thread_since(before: set[threading.Thread]) -> threading.Thread:
    """The reader's, beside those that other tests have left."""
    (found,) = (one for one in set(threading.enumerate()) - before if one.name == "dlsched-log")
    return found


def test_closing_ends_the_thread(log: FakeLog) -> None:
    before = set(threading.enumerate())
    reader = LogReader(log, LATENCY)
    reader.read(1.0)
    thread = thread_since(before)
    reader.close()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()


def test_closing_amid_a_flood_ends_the_thread_too(
    log: FakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(threading.enumerate())
    read, amid, go_on = Pattern.read, threading.Event(), threading.Event()

    def slow(pattern: Pattern, line: bytes) -> object:
        amid.set()
        assert go_on.wait(DEADLINE_S)
        return read(pattern, line)

    monkeypatch.setattr(Pattern, "read", slow)
    reader = LogReader(log, LATENCY)
    log.chunks.put(b"took 20 ms\n" * 1000)
    reader.read(1.0)
    thread = thread_since(before)
    assert amid.wait(DEADLINE_S)
    reader.close()
    go_on.set()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()


def test_without_a_thread_it_is_said_and_tried_again(
    log: FakeLog, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    reader = follow(LATENCY)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        assert (
            reader.read(1.0).problem
            == "the container's log is not followed: can't start new thread"
        )
    log.chunks.put(b"took 1 ms\n")
    assert read_until(reader, 1).problem is None
