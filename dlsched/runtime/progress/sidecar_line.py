"""Parses one line of the sidecar protocol, version 1, into a `Report`, without trusting it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress

from dlsched.model.facts import CheckpointAck, LatencySketch, Report, Sample
from dlsched.report.buckets import LAST_BUCKET, LONGEST_S, UNIT_S, bucket_index, bucket_value_s
from dlsched.report.lines import (
    LAST_STEP,
    METRICS_PER_LINE,
    NAME_CHARACTERS,
    PATH_CHARACTERS,
    RESERVED,
)
from dlsched.runtime.progress.samples import sample_of

MOST_REQUESTS = 10**9
MOST_LATENCIES = 512
SUM_TOLERANCE_RATIO = 0.02

_INDICES = {str(index): index for index in range(LAST_BUCKET + 1)}
_WRITER_CHARACTERS = 64
_INTEGER_DIGITS = 18
_SHOWN_CHARACTERS = 40
_OTHER_UNITS = frozenset(("latency_ms", "latency_us"))
"""Where nothing else is in a line, these are no metrics of a training."""


class BadLine(ValueError):
    """Why a line is refused, in one printable line."""


def parse_line(line: bytes, received_s: float) -> Report:
    """The report in a line received at `received_s`; raises BadLine."""
    try:
        decoded = _DECODER.decode(line.decode())
    except BadLine:
        raise
    except RecursionError:
        raise BadLine("the line's JSON is nested too deeply") from None
    except ValueError as error:
        raise BadLine(f"not JSON: {_shown(error)}") from None
    if not isinstance(decoded, dict):
        raise BadLine("the line is not a JSON object")
    if "v" in decoded and (decoded["v"] != 1 or isinstance(decoded["v"], bool)):
        raise BadLine(f"v: {_shown(decoded['v'])}: this agent reads version 1")
    latency, in_flight, oldest_s = latency_in(decoded)
    return Report(
        received_s=received_s,
        writer=_writer(decoded.get("w", "")),
        latency=latency,
        in_flight=in_flight,
        oldest_s=oldest_s,
        sample=_sample(decoded, received_s),
        checkpoint=_checkpoint(decoded["checkpoint"]) if "checkpoint" in decoded else None,
        gpu_ratio=_gpu_ratio(decoded["gpu"]) if "gpu" in decoded else None,
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


_DECODER = json.JSONDecoder(parse_int=_integer, parse_float=_finite)
"""NaN and Infinity, which many programs write, are floats: metrics alone may have them."""


def _writer(value: object) -> str:
    name = str(value) if _is_number(value) else value
    if not isinstance(name, str) or len(name) > _WRITER_CHARACTERS or not name.isprintable():
        most = f"at most {_WRITER_CHARACTERS} printable characters"
        raise BadLine(f"w: {_shown(value)}: must be {most}")
    return name


def _sample(line: dict[str, object], received_s: float) -> Sample | None:
    step = _count(line["step"], "step", LAST_STEP) if "step" in line else None
    metrics: list[tuple[str, float]] = []
    for name, value in line.items():
        if name in RESERVED:
            continue
        if isinstance(value, (int, float)) and _is_number(value):
            metrics.append((name, float(value)))
        elif name == "diverged" and isinstance(value, dict):
            metrics += [(metric, _not_finite(metric, text)) for metric, text in value.items()]
        elif not _is_note(value):
            raise BadLine(f"metric {_shown(name)}: must be a number, not {_type_of(value)}")
    if step is None and not metrics:
        return None
    if step is None and _OTHER_UNITS.issuperset(name for name, _ in metrics):
        raise BadLine(f"{metrics[0][0]}: give a latency in seconds, as latency_s or latency")
    if len(metrics) > METRICS_PER_LINE:
        raise BadLine(f"the line has {len(metrics)} metrics, at most {METRICS_PER_LINE}")
    for name, _ in metrics:
        if not 0 < len(name) <= NAME_CHARACTERS or not name.isprintable():
            raise BadLine(
                f"metric {_shown(name)}: a name has 1 to {NAME_CHARACTERS} printable characters"
            )
    return sample_of(received_s, step, metrics)


def _is_note(value: object) -> bool:
    """Whether it is a text without a number in it, which trainings write beside their metrics."""
    if not isinstance(value, str):
        return False
    written = value.strip().removesuffix("%").replace("'", "")
    for point in (".", ""):  # a comma is one, or it separates thousands
        with suppress(ValueError):
            float(written.replace(",", point))
            return False
    return True


def _type_of(value: object) -> str:
    """What a value of JSON is that is no number."""
    if isinstance(value, str):
        return f"the text {_shown(value)}"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return "a list" if isinstance(value, list) else "an object"


def _not_finite(name: str, text: object) -> float:
    if text not in ("nan", "inf", "-inf"):
        raise BadLine(f"diverged.{_shown(name)}: {_shown(text)}: must be nan, inf or -inf")
    return float(str(text))


def _checkpoint(value: object) -> CheckpointAck:
    if not isinstance(value, dict):
        raise BadLine(f"checkpoint: {_shown(value)}: must be an object with step and path")
    path = value.get("path")
    if not isinstance(path, str) or len(path) > PATH_CHARACTERS or not path.isprintable():
        raise BadLine(
            f"checkpoint.path: {_shown(path)}: must be at most {PATH_CHARACTERS} printable "
            "characters"
        )
    return CheckpointAck(_count(value.get("step"), "checkpoint.step", LAST_STEP), path)


def _gpu_ratio(value: object) -> float:
    if not isinstance(value, dict):
        raise BadLine(f"gpu: {_shown(value)}: must be an object with busy_ratio")
    ratio = value.get("busy_ratio")
    if isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or not 0 <= ratio <= 1:
        raise BadLine(f"gpu.busy_ratio: {_shown(ratio)}: must be a number, 0 to 1")
    return float(ratio)


def latency_in(
    line: Mapping[str, object],
) -> tuple[LatencySketch | None, int | None, float | None]:
    """The latencies of a line, its requests in flight, and the age of the oldest one in seconds.
    Raises BadLine."""
    if "latency" in line and "latency_s" in line:
        raise BadLine("latency and latency_s in one line: give one of them")
    if "latency_s" in line:
        if "errors" in line:
            raise BadLine("errors beside latency_s: give count, sum and errors in latency")
        return _simple(line["latency_s"]), None, None
    if "latency" not in line:
        return None, None, None
    latency = line["latency"]
    if not isinstance(latency, dict):
        raise BadLine(f"latency: {_shown(latency)}: must be an object")
    in_flight = oldest_s = None
    if "in_flight" in latency:
        in_flight = _count(latency["in_flight"], "latency.in_flight")
    if "oldest_s" in latency:
        oldest_s = _seconds(latency["oldest_s"], "latency.oldest_s", LONGEST_S)
    return _counted(latency), in_flight, oldest_s


def _simple(value: object) -> LatencySketch:
    if not isinstance(value, list) or len(value) > MOST_LATENCIES:
        raise BadLine(f"latency_s: must be a list of at most {MOST_LATENCIES} numbers")
    latencies = [_seconds(each, "latency_s", LONGEST_S) for each in value]
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
            raise BadLine(f"latency.count: {count}, but the buckets count {counted}")
    if "sum" not in latency:
        if count and not buckets:
            raise BadLine("latency: a count with neither sum nor buckets")
        sum_s = _likely_s(buckets)
    else:
        sum_s = _seconds(latency["sum"], "latency.sum", LONGEST_S * count)
        if buckets:
            _check_sum(sum_s, count, buckets)
    return LatencySketch(count, sum_s, buckets, errors)


def _buckets(table: object) -> tuple[tuple[int, int], ...]:
    if not isinstance(table, dict):
        raise BadLine(
            f"latency.buckets: {_shown(table)}: must be an object of counts by bucket index"
        )
    counts: dict[int, int] = {}
    for key, value in table.items():
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
    """A bucket index in another spelling than the reporter's."""
    if not (key.isascii() and key.isdigit() and len(key) <= 4 and int(key) <= LAST_BUCKET):
        raise BadLine(f"latency.buckets: index {_shown(key)}: 0 to {LAST_BUCKET}")
    return int(key)


def _likely_s(buckets: tuple[tuple[int, int], ...]) -> float:
    return math.fsum([bucket_value_s(index) * number for index, number in buckets])


def _check_sum(sum_s: float, count: int, buckets: tuple[tuple[int, int], ...]) -> None:
    likely_s = _likely_s(buckets)
    # The first bucket has no lower bound: each request may be off by its whole width.
    if abs(sum_s - likely_s) > SUM_TOLERANCE_RATIO * likely_s + UNIT_S * count:
        raise BadLine(
            f"latency.sum: {sum_s:g} s, but the buckets add up to {likely_s:g} s (tolerance "
            f"{SUM_TOLERANCE_RATIO:.0%})"
        )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _count(value: object, path: str, most: int = MOST_REQUESTS) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise BadLine(f"{path}: {_shown(value)}: must be an integer, 0 to {most}")
    return value


def _seconds(value: object, path: str, most_s: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most_s:
        raise BadLine(f"{path}: {_shown(value)}: seconds, 0 to {most_s:g}")
    return float(value)


def _shown(value: object) -> str:
    """A container's text for a log line: short, printable, on one line."""
    text = ascii(value) if not isinstance(value, Exception) else ascii(str(value))[1:-1]
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
