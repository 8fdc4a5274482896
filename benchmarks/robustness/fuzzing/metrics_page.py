"""Successive pages of a container's endpoint, read by each packaged preset that reads one.

Promised: finite latencies, one line for each problem, and the same answer whether a page arrives
whole or in pieces.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from random import Random

from benchmarks.robustness.fuzzing.mutation import NUMBERS, TEXTS, mutated
from benchmarks.robustness.fuzzing.trial import Broken, check_latency, told_line
from dlsched.config.metrics.loading import package_presets
from dlsched.config.metrics.resolving import Contradiction
from dlsched.model.sources import Metric, MetricsEndpoint
from dlsched.model.spec import LatencyTarget
from dlsched.runtime.progress.exposition import PageDelta, Pages
from dlsched.runtime.progress.scrape import named

NAME = "pages"
_NEXT = b"\x1e"
_LABELS = (
    'handler="/predict"', 'handler="/metrics"', 'model_name="a"', 'model_name="b",version="1"',
    'model="a"', 'model="b"', 'endpoint="/"', 'route="/-/healthz"', 'path="/v2/models/m/infer"',
    'application="x"', "",
)  # fmt: skip
_WORDS = (
    b"{", b"}", b'le="', b'quantile="1.1"', b"+Inf", b"-Inf", b"NaN", b"1e308", b"1e-320", b"\\n",
    b"process_start_time_seconds 5\n", b"process_start_time_seconds 1.7e9\n", b"process_start_time",
    b' # {trace="1"} 0.5', b'\\"', b"\r\n", b"\t", b" 1760000000000\n", b'handler="/metrics"',
)  # fmt: skip
_TARGETS = (None, LatencyTarget(0.1), LatencyTarget(0.1, 0.95))
_PIECES = (1, 7, 100, 4096)


@cache
def _endpoints() -> tuple[MetricsEndpoint, ...]:
    presets = package_presets()
    found = [MetricsEndpoint((1,))]
    for name in sorted(presets.by_name):
        keys = presets.by_name[name].keys
        try:
            sources = presets.sources(keys)
        except Contradiction:  # its proxy is not named
            continue
        found += [source for source in sources if isinstance(source, MetricsEndpoint)]
    return tuple(found)


def _lines(rng: Random, metric: Metric) -> list[str]:
    labels, count = rng.choice(_LABELS), rng.choice((0, 1, 7, 10**6))
    comma = "," if labels else ""
    if metric.total is not None:
        return [f"{metric.total}{{{labels}}} {count * 400}", f"{metric.count}{{{labels}}} {count}"]
    bounds = ("0.1", "0.5", "+Inf")
    inner = [
        f'{metric.name}_bucket{{{labels}{comma}le="{bound}"}} {count * (place + 1) // 3}'
        for place, bound in enumerate(bounds)
    ]
    if rng.random() < 0.3:
        inner = [f'{metric.name}{{{labels}{comma}quantile="{q}"}} {q * 0.1}' for q in (0.5, 0.99)]
    return [*inner, f"{metric.name}_count{{{labels}}} {count}", f"{metric.name}_sum{{{labels}}} 3"]


def make(rng: Random) -> bytes:
    number = rng.randrange(len(_endpoints()))
    metrics = named(_endpoints()[number], None)
    pages = []
    for _ in range(rng.randrange(1, 3)):
        lines = [line for _ in range(rng.randrange(1, 4)) for line in _lines(rng, metrics[0])]
        pages.append("\n".join([*lines, "up 1", ""]).encode())
    words = (*_WORDS, *(odd.encode() for odd in (*NUMBERS, *TEXTS)))
    for _ in range(rng.randrange(1, 4)):
        page = rng.choice(pages)
        pages.append(page if rng.random() < 0.3 else mutated(rng, page, tuple(pages), words))
    head = bytes([number, rng.randrange(len(_TARGETS)), rng.randrange(2)])
    return head + _NEXT.join(page.replace(_NEXT, b"") for page in pages)


def answer(data: bytes) -> str:
    number, wanted, from_end = (*data[:3], 0, 0, 0)[:3]
    endpoint = _endpoints()[number % len(_endpoints())]
    metrics, target = named(endpoint, None), _TARGETS[wanted % len(_TARGETS)]
    whole, pieces = (
        Pages(metrics, from_end=bool(from_end % 2), target=target, hint=endpoint.hint)
        for _ in range(2)
    )
    found = []
    for turn, page in enumerate(data[3:].split(_NEXT)):
        delta = whole.take(page, float(turn), 60.0)
        reading, size = pieces.begin(), _PIECES[turn % len(_PIECES)]
        for start in range(0, len(page), size):
            reading.feed(page[start : start + size])
        if str(pieces.end(reading, float(turn), 60.0)) != str(delta):
            raise Broken("a page in pieces is another page")
        found.append(_checked(delta))
    return "\n".join(found)


def _checked(delta: PageDelta) -> str:
    for line in filter(None, (delta.problem, delta.refused)):
        told_line(line)
    if delta.latency is not None:
        check_latency(delta.latency)
        if any(count <= 0 for _, count in delta.latency.buckets):
            raise Broken("a bucket that counts nothing")
    # A gauge may be nan or inf.
    return json.dumps({**asdict(delta), "value": str(delta.value)}, allow_nan=False)
