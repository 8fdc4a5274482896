"""One line of the sidecar protocol, version 1: bytes from a container to a `model.Report`.

Owns what makes a line valid. It must not do I/O, and it trusts nothing: the time that a line
claims is not even read.
"""

from __future__ import annotations

import json
import math
from typing import NoReturn

from dlsched.model.facts import CheckpointAck, LatencySketch, Report, Sample
from dlsched.report.buckets import LAST_BUCKET, LONGEST_S, UNIT_S, bucket_index, bucket_value_s
from dlsched.report.lines import (
    LAST_STEP,
    METRICS_PER_LINE,
    NAME_CHARACTERS,
    PATH_CHARACTERS,
    RESERVED,
)

MOST_REQUESTS = 10**9
MOST_LATENCIES = 512
SUM_TOLERANCE_RATIO = 0.02

_INDICES = {str(index): index for index in range(LAST_BUCKET + 1)}
_WRITER_CHARACTERS = 64
_INTEGER_DIGITS = 18
_SHOWN_CHARACTERS = 40


class BadLine(ValueError):
    """A line that is refused, and why, in one line of printable characters."""


def parse_line(line: bytes, received_s: float) -> Report:
    """The report in a line that was received at `received_s`; raises BadLine."""
    try:
        told = _DECODER.decode(line.decode())
    except BadLine:
        raise
    except RecursionError:
        raise BadLine("nested too deeply") from None
    except ValueError as error:
        raise BadLine(f"not JSON: {_shown(error)}") from None
    if not isinstance(told, dict):
        raise BadLine("not a JSON object")
    if "v" in told and (told["v"] != 1 or isinstance(told["v"], bool)):
        raise BadLine(f"v: {_shown(told['v'])}: this agent reads version 1")
    latency, in_flight, oldest_s = _latency(told)
    return Report(
        received_s=received_s,
        writer=_writer(told.get("w", "")),
        latency=latency,
        in_flight=in_flight,
        oldest_s=oldest_s,
        sample=_sample(told, received_s),
        checkpoint=_checkpoint(told["checkpoint"]) if "checkpoint" in told else None,
        gpu_ratio=_gpu_ratio(told["gpu"]) if "gpu" in told else None,
    )


def _integer(text: str) -> int:
    if len(text) > _INTEGER_DIGITS:
        raise BadLine(f"an integer of {len(text)} characters, at most {_INTEGER_DIGITS}")
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise BadLine(f"{_shown(text)} is not a finite number")
    return number


def _refuse_constant(text: str) -> NoReturn:
    raise BadLine(f"{text} is not a finite number")


_DECODER = json.JSONDecoder(
    parse_int=_integer, parse_float=_finite, parse_constant=_refuse_constant
)


def _writer(told: object) -> str:
    name = str(told) if _is_number(told) else told
    if not isinstance(name, str) or len(name) > _WRITER_CHARACTERS or not name.isprintable():
        raise BadLine(f"w: {_shown(told)}: at most {_WRITER_CHARACTERS} printable characters")
    return name


def _sample(told: dict[str, object], received_s: float) -> Sample | None:
    step = _count(told["step"], "step", LAST_STEP) if "step" in told else None
    metrics = tuple(
        (name, float(value))
        for name, value in told.items()
        if name not in RESERVED and isinstance(value, (int, float)) and _is_number(value)
    )
    if step is None and not metrics:
        return None
    if len(metrics) > METRICS_PER_LINE:
        raise BadLine(f"{len(metrics)} metrics, at most {METRICS_PER_LINE}")
    for name, _ in metrics:
        if not 0 < len(name) <= NAME_CHARACTERS or not name.isprintable():
            raise BadLine(
                f"metric {_shown(name)}: a name has 1 to {NAME_CHARACTERS} printable characters"
            )
    return Sample(received_s=received_s, step=step, metrics=metrics)


def _checkpoint(told: object) -> CheckpointAck:
    if not isinstance(told, dict):
        raise BadLine(f"checkpoint: {_shown(told)}: an object with step and path")
    path = told.get("path")
    if not isinstance(path, str) or len(path) > PATH_CHARACTERS or not path.isprintable():
        raise BadLine(
            f"checkpoint.path: {_shown(path)}: at most {PATH_CHARACTERS} printable characters"
        )
    return CheckpointAck(_count(told.get("step"), "checkpoint.step", LAST_STEP), path)


def _gpu_ratio(told: object) -> float:
    if not isinstance(told, dict):
        raise BadLine(f"gpu: {_shown(told)}: an object with busy_ratio")
    ratio = told.get("busy_ratio")
    if isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or not 0 <= ratio <= 1:
        raise BadLine(f"gpu.busy_ratio: {_shown(ratio)}: a number, 0 to 1")
    return float(ratio)


def _latency(told: dict[str, object]) -> tuple[LatencySketch | None, int | None, float | None]:
    if "latency" in told and "latency_s" in told:
        raise BadLine("latency and latency_s in one line: one of them")
    if "latency_s" in told:
        return _simple(told["latency_s"]), None, None
    if "latency" not in told:
        return None, None, None
    latency = told["latency"]
    if not isinstance(latency, dict):
        raise BadLine(f"latency: {_shown(latency)}: an object")
    in_flight = oldest_s = None
    if "in_flight" in latency:
        in_flight = _count(latency["in_flight"], "latency.in_flight")
    if "oldest_s" in latency:
        oldest_s = _seconds(latency["oldest_s"], "latency.oldest_s", LONGEST_S)
    return _counted(latency), in_flight, oldest_s


def _simple(told: object) -> LatencySketch:
    if not isinstance(told, list) or len(told) > MOST_LATENCIES:
        raise BadLine(f"latency_s: a list of at most {MOST_LATENCIES} numbers")
    latencies = [_seconds(each, "latency_s", LONGEST_S) for each in told]
    counts: dict[int, int] = {}
    for each in latencies:
        index = bucket_index(each)
        counts[index] = counts.get(index, 0) + 1
    return LatencySketch(len(latencies), math.fsum(latencies), tuple(sorted(counts.items())))


def _counted(latency: dict[str, object]) -> LatencySketch:
    count = _count(latency.get("count", 0), "latency.count")
    errors = _count(latency.get("errors", 0), "latency.errors")
    buckets = _buckets(latency["buckets"]) if "buckets" in latency else ()
    if buckets:
        counted = sum([number for _, number in buckets])
        if counted != count:
            raise BadLine(f"latency.count: {count}, but its buckets count {counted}")
    told_s = latency.get("sum")
    if told_s is None:
        if count and not buckets:
            raise BadLine("latency: a count with neither sum nor buckets")
        sum_s = _likely_s(buckets)
    else:
        sum_s = _seconds(told_s, "latency.sum", LONGEST_S * count)
        if buckets:
            _check_sum(sum_s, count, buckets)
    return LatencySketch(count, sum_s, buckets, errors)


def _buckets(told: object) -> tuple[tuple[int, int], ...]:
    if not isinstance(told, dict):
        raise BadLine(f"latency.buckets: {_shown(told)}: an object, index to count")
    counts: dict[int, int] = {}
    for key, value in told.items():
        index = _INDICES.get(key)
        if index is None:
            index = _index(key)
        if index in counts:
            raise BadLine(f"latency.buckets: index {_shown(key)} twice")
        if type(value) is not int or not 0 <= value <= MOST_REQUESTS:
            _count(value, f"latency.buckets.{key}")
        counts[index] = value
    return tuple([(index, counts[index]) for index in sorted(counts) if counts[index]])


def _index(key: str) -> int:
    """The index that was not written as we write it."""
    if not (key.isascii() and key.isdigit() and len(key) <= 4 and int(key) <= LAST_BUCKET):
        raise BadLine(f"latency.buckets: index {_shown(key)}: 0 to {LAST_BUCKET}")
    return int(key)


def _likely_s(buckets: tuple[tuple[int, int], ...]) -> float:
    return math.fsum([bucket_value_s(index) * number for index, number in buckets])


def _check_sum(sum_s: float, count: int, buckets: tuple[tuple[int, int], ...]) -> None:
    likely_s = _likely_s(buckets)
    # The first bucket has no lower end: each request may be off by its whole width.
    if abs(sum_s - likely_s) > SUM_TOLERANCE_RATIO * likely_s + UNIT_S * count:
        raise BadLine(
            f"latency.sum: {sum_s:g} s, but its buckets add up to {likely_s:g} s within "
            f"{SUM_TOLERANCE_RATIO:.0%}"
        )


def _is_number(told: object) -> bool:
    return isinstance(told, (int, float)) and not isinstance(told, bool)


def _count(told: object, path: str, most: int = MOST_REQUESTS) -> int:
    if isinstance(told, bool) or not isinstance(told, int) or not 0 <= told <= most:
        raise BadLine(f"{path}: {_shown(told)}: an integer, 0 to {most}")
    return told


def _seconds(told: object, path: str, most_s: float) -> float:
    if isinstance(told, bool) or not isinstance(told, (int, float)) or not 0 <= told <= most_s:
        raise BadLine(f"{path}: {_shown(told)}: seconds, 0 to {most_s:g}")
    return float(told)


def _shown(told: object) -> str:
    """Text from a container, fit for a log line: short, printable, on one line."""
    text = ascii(told) if not isinstance(told, Exception) else ascii(str(told))[1:-1]
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
