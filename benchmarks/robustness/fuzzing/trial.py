"""One reader under trial: what it is given, what it promises, and what breaks a promise.

Owns what all readers promise alike: one printable line for each problem, no other exception than
those meant, an answer within a bound of CPU time, and the same answer to the same input.
"""

from __future__ import annotations

import math
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, TypeVar

from benchmarks.places import ROOT
from dlsched.model.facts import LatencySketch
from tests.mutation import Broken

Read = TypeVar("Read")
Meant = type[Exception] | tuple[type[Exception], ...]

LINE_CHARACTERS = 2000
"""No line that tells of a problem is longer."""

SLOW_TRIES = 3

FIXTURES = ROOT / "tests" / "fixtures" / "fuzz"
"""One folder a target; in each, the inputs that once broke a promise."""


class Refused(Exception):
    """The input is refused, as it may be; the message is what is reported of it."""


@dataclass(frozen=True, slots=True)
class Target:
    """A reader, and how inputs for it are made."""

    name: str
    make: Callable[[Random], bytes]
    answer: Callable[[bytes], str]
    """What it says to the input; raises Broken, Refused, or what it was never meant to raise."""
    within_s: float = 1.0
    """CPU seconds that an answer may take, on a busy host."""
    close: Callable[[], None] = field(default=lambda: None)
    largest: Callable[[], Iterable[bytes]] = tuple
    """Inputs that take the most memory, which a process keeps: they belong to a warm-up."""


class InFolder:
    """A reader with a folder of its own."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="dlsched-fuzz-"))

    def close(self) -> None:
        shutil.rmtree(self.folder)


@dataclass(frozen=True, slots=True)
class Finding:
    """One way in which a promise was broken."""

    what: str
    """The exception and where it came from: two inputs with the same one found the same."""
    data: bytes
    detail: str


def told_line(text: object) -> str:
    """The line as it is told to people; raises Broken where it could forge or steer."""
    line = str(text)
    if not line:
        raise Broken("a problem is told with an empty line")
    if "a fault of dlsched" in line:
        raise Broken(f"a reader failed: {line}")
    if not line.isprintable():
        bad = next(char for char in line if not char.isprintable())
        raise Broken(f"a line tells the character U+{ord(bad):04X}: {line[:200]!a}")
    if len(line) > LINE_CHARACTERS:
        raise Broken(f"a line of {len(line)} characters: {line[:80]!a}")
    return line


def told_lines(problems: Sequence[object]) -> str:
    """Each problem's line; raises Broken also where there is none."""
    if not problems:
        raise Broken("a refusal without a problem")
    return "\n".join(told_line(problem) for problem in problems)


def refusable(read: Callable[..., Read], *arguments: Any, meant: Meant = ValueError) -> Read:
    """What is read; raises Refused with the line, or the lines, of an error that is meant."""
    try:
        return read(*arguments)
    except meant as error:
        problems = getattr(error, "problems", None)
        told = told_line(error) if problems is None else told_lines(problems)
        raise Refused(told) from error


def told(read: Callable[..., object], *arguments: Any, meant: Meant = ValueError) -> str:
    """What is read, as text, or the line by which it is refused."""
    try:
        return str(refusable(read, *arguments, meant=meant))
    except Refused as refused:
        return str(refused)


def check_latency(sketch: LatencySketch) -> None:
    """Raises Broken where a latency is none."""
    # Of a series with a count and a sum alone no bucket is known: there may be fewer.
    counted = sum(count for _, count in sketch.buckets)
    counts = sketch.count >= 0 and sketch.errors >= 0 and counted <= sketch.count
    if not (counts and 0 <= sketch.sum_s < math.inf):
        raise Broken(f"a latency that is none: {sketch}")


def tried(target: Target, data: bytes) -> tuple[str | None, Finding | None, float]:
    """The answer or the finding, and the CPU seconds spent. What is slow once, such as beside a
    collection of garbage, is tried again: a slow input is slow each time."""
    for _ in range(SLOW_TRIES - 1):
        answer, finding, spent_s = _tried(target, data)
        if finding is None or finding.what != _slow(target):
            return answer, finding, spent_s
    return _tried(target, data)


def _slow(target: Target) -> str:
    return f"{target.name}: slower than {target.within_s:g} s of CPU"


def _tried(target: Target, data: bytes) -> tuple[str | None, Finding | None, float]:
    began_s = time.process_time()
    answer: str | None = None
    finding: Finding | None = None
    try:
        with _within(4 * target.within_s):
            answer = target.answer(data)
    except Refused as refused:
        answer = str(refused)
    except Broken as broken:
        what = "".join("#" if char.isdigit() else char for char in str(broken).partition(":")[0])
        finding = Finding(f"{target.name}: {what}", data, str(broken))
    except (Exception, _TooLong) as error:  # noqa: BLE001  whatever it is: that is what is looked for
        finding = Finding(f"{target.name}: {_where(error)}", data, traceback.format_exc(limit=-8))
    spent_s = time.process_time() - began_s
    if finding is None and spent_s > target.within_s:
        finding = Finding(_slow(target), data, f"{spent_s:.2f} s for {len(data)} bytes")
    return answer, finding, spent_s


def kept_inputs(target: str) -> list[Path]:
    """The inputs that once broke a promise of that target."""
    return sorted(FIXTURES.glob(f"{target}/*"))


def _where(error: BaseException) -> str:
    """The exception's kind, and the last place in the product's own code."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/dlsched/" in frame.filename] or list(frames)
    file = own[-1].filename.rpartition("/dlsched/")[2]
    return f"{type(error).__name__} in {file}:{own[-1].name}"


class _TooLong(BaseException):
    """The reader was stopped; no `except Exception` on the way may take it for its own."""


@contextmanager
def _within(cpu_s: float) -> Iterator[None]:
    def stop(_number: int, _frame: FrameType | None) -> None:
        raise _TooLong(f"no answer after {cpu_s:g} s of CPU")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
