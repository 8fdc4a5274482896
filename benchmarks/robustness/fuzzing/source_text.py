"""What a container reports without a sidecar: lines of its log, read by any pattern.

Pages of the first inputs are still read (target `pages` makes them).

Promised: reports of finite numbers, counts of what was refused, and patterns that are refused in
one line or take bounded time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from random import Random

from benchmarks.robustness.fuzzing.mutation import NUMBERS, TEXTS, mutated
from benchmarks.robustness.fuzzing.trial import Broken, check_latency, refusable, told, told_line
from dlsched.model.sources import Metric, MetricsEndpoint
from dlsched.report.lines import LINE_BYTES
from dlsched.runtime.progress.exposition import Pages
from dlsched.runtime.progress.log_lines import Pattern
from dlsched.runtime.progress.scrape import named
from dlsched.runtime.progress.sidecar import Lines

NAME = "sources"
_NAMES = (None, "loss", "accuracy", "vllm:e2e_request_latency_seconds", "request_ms")
_PATTERNS = (
    rb"step=(?P<step>\d+) loss=(?P<loss>[0-9.]+)",
    rb"took (?P<latency_ms>[0-9.]+) ?ms",
    rb"(?P<latency_s>\S+)",
    rb"(?i)epoch (?P<epoch>\d+).*acc(uracy)?[:=] *(?P<accuracy>[-+0-9.eE]+)",
)
_PATTERN_WORDS = (
    b"(", b")", b"(?P<", b">", b"(?P<step>", b"(?P<"+b"\xff" * 200, b"(?P<w>.)", b"*", b"+",
    b"{1,1000}", b"{1000}", b"[", b"]", b"|", b"\\1", b"(?=x)", b"\\p{Greek}", b"(a*)*b",
    b"(?P<a>x)(?P<a>y)", b"\\C", b"\\xff", b"(?s).*", b"$",
)  # fmt: skip
_LOG = b"step=12 loss=0.25\ntook 12.5ms\n[INFO] epoch 3 done, acc: 0.97\n"
_LOG_WORDS = (
    b"\r",
    b"\n",
    b"step=",
    b"loss=",
    b"took ",
    b"ms",
    b"1_0",
    b"inf",
    b"nan",
    b"x" * 5000,
)
_NEXT = b"\x1e"


def make(rng: Random) -> bytes:
    pattern, log = rng.choice(_PATTERNS), _LOG
    if rng.random() < 0.5:
        words = (*_PATTERN_WORDS, *(odd.encode() for odd in TEXTS))
        pattern = mutated(rng, pattern, _PATTERNS, words)
    if rng.random() < 0.8:
        log = mutated(rng, log, (_LOG,), (*_LOG_WORDS, *(odd.encode() for odd in NUMBERS)))
    return b"\xff" + pattern.replace(_NEXT, b"") + _NEXT + log.replace(_NEXT, b"")


def answer(data: bytes) -> str:
    if data[:1] == b"\xff":
        pattern, _, log = data[1:].partition(_NEXT)
        return "\n".join(_logged(pattern.decode("utf-8", "replace"), log))
    name = _NAMES[data[0] % len(_NAMES)] if data else None
    metrics = () if name is None else (Metric(name=name),)
    pages = Pages(named(MetricsEndpoint((1,), metrics=metrics), None), from_end=len(data) % 2 == 0)
    return "\n".join(_paged(pages, page) for page in data[1:].split(_NEXT))


def _paged(pages: Pages, page: bytes) -> str:
    delta = pages.take(page)
    for line in filter(None, (delta.problem, delta.refused)):
        told_line(line)
    if delta.latency is not None:
        check_latency(delta.latency)
        if any(count <= 0 for _, count in delta.latency.buckets):
            raise Broken("a bucket that counts nothing")
    # A gauge may be nan or inf.
    return json.dumps({**asdict(delta), "value": str(delta.value)}, allow_nan=False)


def _logged(text: str, log: bytes) -> Iterator[str]:
    pattern, lines = refusable(Pattern, text), Lines(LINE_BYTES)
    for line in (*lines.cut(log[: len(log) // 2]), *lines.cut(log[len(log) // 2 :])):
        if line is not None:
            # A metric may be nan or inf.
            yield told(pattern.read, line)
