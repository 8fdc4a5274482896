"""The text of the sidecar protocol, version 1: values in, lines of at most 4 KiB out. Pure."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Tuple

from dlsched.report.buckets import bucket_index

LINE_BYTES = 4096
"""Maximum length of a line, its newline included."""
METRICS_PER_LINE = 32
NAME_CHARACTERS = 64
PATH_CHARACTERS = 1024
LAST_STEP = 2**53
RESERVED = frozenset(("t", "v", "w", "step", "latency", "latency_s", "checkpoint", "gpu"))
"""Keys with a meaning of their own, not available to metrics."""

_BUCKETS_BYTES = LINE_BYTES - 512
"""Bytes for buckets in one line, beside its other content."""


class Tally:
    """Latencies since the previous line. `count` is computed from the buckets, so it agrees."""

    __slots__ = ("counts", "errors", "sums_s")

    def __init__(self) -> None:
        self.counts: Dict[int, int] = {}
        self.sums_s: Dict[int, float] = {}
        self.errors = 0

    def add(self, seconds: float) -> None:
        """Count one answered request; ValueError for an invalid latency."""
        index = bucket_index(seconds)
        self.counts[index] = self.counts.get(index, 0) + 1
        self.sums_s[index] = self.sums_s.get(index, 0.0) + seconds

    def __bool__(self) -> bool:
        return bool(self.counts or self.errors)


def line(fields: Dict[str, Any]) -> bytes:
    """One object as one line; ValueError where that is impossible (NaN, too long)."""
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    encoded = text.encode() + b"\n"
    if len(encoded) > LINE_BYTES:
        raise ValueError(
            f"the report's line has {len(encoded)} bytes, must have at most {LINE_BYTES}"
        )
    return encoded


def latency_lines(
    head: Dict[str, Any], tally: Tally, in_flight: int, oldest_s: float
) -> List[bytes]:
    """The tally as one line, or as several with its buckets divided among them."""
    lines = []
    errors = tally.errors
    for part in _parts(tally.counts):
        latency: Dict[str, Any] = {"count": sum(count for _, count in part)}
        if part:
            latency["sum"] = round(sum(tally.sums_s.get(index, 0.0) for index, _ in part), 9)
            latency["buckets"] = {str(index): count for index, count in part}
        if errors:
            latency["errors"] = errors
            errors = 0
        latency["in_flight"] = in_flight
        latency["oldest_s"] = round(max(0.0, oldest_s), 3)
        lines.append(line(dict(head, latency=latency)))
    return lines


def _parts(counts: Dict[int, int]) -> List[List[Tuple[int, int]]]:
    parts: List[List[Tuple[int, int]]] = [[]]
    room = _BUCKETS_BYTES
    for index, count in sorted(counts.items()):
        size = len(f'"{index}":{count},')
        if size > room:
            parts.append([])
            room = _BUCKETS_BYTES
        room -= size
        parts[-1].append((index, count))
    return parts
