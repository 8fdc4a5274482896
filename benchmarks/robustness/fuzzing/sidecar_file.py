"""What a container writes: lines, and a file that is cut, renamed and replaced while it is read.

Promised: reports of finite numbers that measure to something finite, no line lost that was only
appended, nothing opened but a regular file, and counts of what was refused.
"""

from __future__ import annotations

import json
import math
import os
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from random import Random

from benchmarks.robustness.fuzzing.trial import (
    InFolder,
    Target,
    check_latency,
    refusable,
    told_line,
)
from dlsched.control.ledger.measures import Measures
from dlsched.estimate.sketch import cv, measured_s
from dlsched.model.facts import ContainerFact, ContainerState, Report
from dlsched.runtime.progress.sidecar import READ_BYTES, READ_LINES, SidecarReader
from dlsched.runtime.progress.sidecar_line import BadLine, parse_line
from tests.mutation import Broken, mutated, mutated_json

_OBJECTS = (
    {"t": 1760000000.1, "step": 1200, "loss": 0.31, "accuracy": 0.912},
    {"t": 1, "latency_s": [0.048, 0.051]},
    {"w": "71", "latency": {"count": 3, "sum": 0.12, "errors": 2, "in_flight": 3, "oldest_s": 0.4}},
    {"w": 7, "latency": {"count": 31, "buckets": {"118": 31}}},
    {"latency": {"count": 3, "sum": 0.0025, "buckets": {"300": 1, "340": 2}}},
    {"checkpoint": {"step": 1200, "path": "/ckpt/1200"}},
    {"v": 1, "step": 1, "loss": 2.5, "w": "0", "epoch": 3},
    {"step": 0, "val_accuracy": 1},
)
_LINES = tuple(json.dumps(one).encode() for one in _OBJECTS)
_KEYS = (
    "t", "v", "w", "step", "loss", "latency", "latency_s", "count", "sum", "buckets", "errors",
    "in_flight", "oldest_s", "checkpoint", "path", "0", "118", "1834", "9999", "\u0661", "00",
)  # fmt: skip
_WORDS = (
    b"{", b"}", b"[", b"]", b'"', b",", b":", b"\n", b'{"loss":', b'"buckets":{', b"1e400", b"NaN",
    b"-Infinity", b"[" * 500, b'{"a":' * 300, b"1" * 4100, b'"w":"\\ud800"', b"-0.0", b"1E5",
)  # fmt: skip
_SECRET = "from outside the container"
_NEXT = b"\x1e"
_KINDS = b"awrtlfdxgs"
"""What is done to the file between two reads: append, write anew, rename and begin anew, cut,
replace by a link, a FIFO or a directory, remove, grow by a hole, swap with an older one."""


def make(rng: Random) -> bytes:
    if rng.random() < 0.8:
        return _line(rng)
    steps = [
        rng.choice(_KINDS).to_bytes() + b"\n".join(_line(rng) for _ in range(rng.randrange(4)))
        for _ in range(rng.randrange(1, 6))
    ]
    if rng.random() < 0.4:
        steps = [b"a" + step[1:] for step in steps]
    if rng.random() < 0.005:
        steps.append(b"a" + (_line(rng) + b"\n") * rng.randrange(200, 2000))
    return _NEXT + _NEXT.join(steps)


def _line(rng: Random) -> bytes:
    kind = rng.random()
    if kind < 0.05:
        return rng.randbytes(rng.randrange(40)).replace(_NEXT, b"")
    if kind < 0.5:
        return mutated(rng, rng.choice(_LINES), _LINES, _WORDS).replace(_NEXT, b"")
    if kind < 0.6:
        return rng.choice(_LINES)
    return json.dumps(mutated_json(rng, rng.choice(_OBJECTS), _KEYS)).encode()


class Sidecar(InFolder):
    """A container's root with its sidecar directory, and what stands in for its process."""

    def __init__(self) -> None:
        super().__init__()
        self._out = self.folder / "1" / "root" / "run" / "dlsched" / "out"
        self._out.mkdir(parents=True)
        self._file = self._out / "metrics.jsonl"
        self._forbidden = self.folder / "forbidden"
        self._forbidden.write_text(f'{{"w": "{_SECRET}", "step": 1}}\n')

    def answer(self, data: bytes) -> str:
        if not data.startswith(_NEXT):
            return _measured([refusable(parse_line, data, 42.0, meant=BadLine)], 0)
        steps = data[1:].split(_NEXT)
        reader = SidecarReader(1, proc_root=self.folder, expect=lambda: True)
        try:
            return self._story(steps, reader)
        finally:
            reader.close()
            self._clear()

    def _story(self, steps: list[bytes], reader: SidecarReader) -> str:
        told: list[str] = []
        reports: list[Report] = []
        for now_s, step in enumerate(steps, start=1):
            self._do(step[:1], step[1:])
            reading = reader.read(float(now_s))
            told += map(told_line, filter(None, (reading.problem, reading.refused)))
            if len(reading.reports) > READ_LINES or reading.bad_lines < 0:
                raise Broken(f"{len(reading.reports)} reports in one read")
            if any(report.writer == _SECRET for report in reading.reports):
                raise Broken("a symbolic link was followed out of the container")
            reports += reading.reports
            told.append(_measured(list(reading.reports), reading.bad_lines))
        if all(step[:1] == b"a" for step in steps):
            _nothing_lost(b"".join(step[1:] for step in steps), reports)
        return "\n".join(told)

    def _do(self, kind: bytes, content: bytes) -> None:
        file, other = self._file, self._out / "other"
        with suppress(OSError):  # a step that cannot be done is none
            match kind:
                case b"a":
                    _write(file, content, os.O_APPEND)
                case b"w":
                    _write(file, content, os.O_TRUNC)
                case b"r":
                    file.rename(self._out / "metrics.jsonl.1")
                    _write(file, content)
                case b"t":
                    _write(file, b"", size_bytes=len(content))
                case b"g":
                    _write(file, b"", size_bytes=1 << (len(content) % 38))
                case b"s":
                    _write(other, content)
                    other.rename(file)
                case _:
                    self._clear()
                    if kind == b"l":
                        file.symlink_to(self._forbidden)
                    elif kind == b"f":
                        os.mkfifo(file)
                    elif kind == b"d":
                        file.mkdir()

    def _clear(self) -> None:
        for entry in self._out.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                entry.rmdir()
            else:
                entry.unlink()


def _write(file: Path, content: bytes, flags: int = 0, size_bytes: int | None = None) -> None:
    """Into a regular file alone: what stands there may be a link out of the folder, or a FIFO."""
    safely = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    with open(os.open(file, safely | flags), "wb") as stream:  # noqa: PTH123
        stream.write(content)
        if size_bytes is not None:
            stream.truncate(size_bytes)


def _measured(reports: list[Report], bad_lines: int) -> str:
    """What a job's measures make of the reports; raises Broken where a number is none."""
    for report in reports:
        _check(report)
    measures = Measures()
    fact = ContainerFact(
        job="job", container_id="c", container_digest="", digest="", state=ContainerState.RUNNING,
        reports=tuple(reports), started_at_s=0.0, starts=1, bad_lines=bad_lines,
    )  # fmt: skip
    measures.update(fact, 42.0, 30.0)
    try:
        return json.dumps(asdict(measures.progress(fact, 43.0)), allow_nan=False)
    except ValueError as error:
        raise Broken(f"progress is no finite number: {error}") from error


def _check(report: Report) -> None:
    if not report.writer.isprintable():
        raise Broken("a writer's name steers a terminal")
    sketch = report.latency
    if sketch is not None:
        check_latency(sketch)
        if sketch.buckets and sum(count for _, count in sketch.buckets) != sketch.count:
            raise Broken(f"a latency that is none: {sketch}")
        for quantile in (0.5, 0.999):
            value_s = measured_s(sketch, quantile)
            if value_s is not None and not 0 <= value_s < math.inf:
                raise Broken(f"a quantile that is none: {value_s}")
        if not math.isfinite(cv(sketch) or 0.0):
            raise Broken(f"a variation that is none: {sketch}")
    if report.sample is not None and not all(
        math.isfinite(value) and name.isprintable() for name, value in report.sample.metrics
    ):
        raise Broken(f"a sample that is none: {report.sample}")


def _nothing_lost(content: bytes, reports: list[Report]) -> None:
    """What was only appended, and fits into what is read at once, arrives line by line."""
    lines = content.split(b"\n")[:-1]
    if len(content) >= READ_BYTES or len(lines) >= READ_LINES:
        return
    expected = []
    for line in lines:
        with suppress(BadLine):
            if line.strip() and len(line) < 4096:
                expected.append(parse_line(line, 0.0))
    seen = [(one.writer, one.latency, one.checkpoint) for one in reports]
    if seen != [(one.writer, one.latency, one.checkpoint) for one in expected]:
        raise Broken(f"lines were lost or made up: {len(seen)} of {len(expected)} arrived")


def sidecar() -> Target:
    reader = Sidecar()
    return Target("sidecar", make, reader.answer, close=reader.close)
