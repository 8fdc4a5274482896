"""What a container serves and prints: pages and logs, read by presets and patterns, and probed.

Promised: finite latencies, samples of finite numbers, each evaluation once, steps as they were
asked for; one line for each problem; patterns that are refused in one line or take bounded time;
bounded extracts; and the same answer whether a page arrives whole or in pieces.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from functools import cache
from random import Random
from typing import get_args

from benchmarks.robustness.fuzzing.trial import Target, check_latency, refusable, told_line
from dlsched.config.metrics.loading import package_presets
from dlsched.config.metrics.resolving import Contradiction
from dlsched.control.ledger.tiers import TierProgress, advanced, settled
from dlsched.model.facts import Report
from dlsched.model.sources import LogPattern, Metric, MetricsEndpoint, Step
from dlsched.model.spec import AccuracyTarget, LatencyTarget
from dlsched.runtime.docker.probe import recognition
from dlsched.runtime.docker.probe.recognition import Stack
from dlsched.runtime.docker.probe.sampling import LOG_BYTES
from dlsched.runtime.progress.exposition import PageDelta, Pages
from dlsched.runtime.progress.log_lines import LogBatch, LogLines
from dlsched.runtime.progress.page_lines import LINE_BYTES, MOST_LINES
from dlsched.runtime.progress.scrape import named
from dlsched.runtime.progress.sidecar import READ_BYTES, READ_LINES
from dlsched.runtime.progress.sources import read_sources
from tests.mutation import ODD, Broken, mutated

# ------------------------------------------------------------------ pages

_NEXT = b"\x1e"
_LABELS = (
    'handler="/predict"', 'handler="/metrics"', 'model_name="a"', 'model_name="b",version="1"',
    'model="a"', 'model="b"', 'endpoint="/"', 'route="/-/healthz"', 'path="/v2/models/m/infer"',
    'application="x"', "",
)  # fmt: skip
_PAGE_WORDS = (
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


def make_pages(rng: Random) -> bytes:
    number = rng.randrange(len(_endpoints()))
    metrics = named(_endpoints()[number], None)
    pages = []
    for _ in range(rng.randrange(1, 3)):
        lines = [line for _ in range(rng.randrange(1, 4)) for line in _lines(rng, metrics[0])]
        pages.append("\n".join([*lines, "up 1", ""]).encode())
    words = (*_PAGE_WORDS, *ODD)
    for _ in range(rng.randrange(1, 4)):
        page = rng.choice(pages)
        pages.append(page if rng.random() < 0.3 else mutated(rng, page, tuple(pages), words))
    head = bytes([number, rng.randrange(len(_TARGETS)), rng.randrange(2)])
    return head + _NEXT.join(page.replace(_NEXT, b"") for page in pages)


def read_pages(data: bytes) -> str:
    number, wanted, from_end = (*data[:3], 0, 0, 0)[:3]
    endpoint = _endpoints()[number % len(_endpoints())]
    metrics, target = named(endpoint, None), _TARGETS[wanted % len(_TARGETS)]
    whole, pieces = (
        Pages(metrics, from_end=bool(from_end % 2), target=target, hint=endpoint.hint)
        for _ in range(2)
    )
    found = []
    for turn, page in enumerate(data[3:].split(_NEXT)):
        delta = whole.take(page, float(turn))
        reading, size = pieces.begin(), _PIECES[turn % len(_PIECES)]
        for start in range(0, len(page), size):
            reading.feed(page[start : start + size])
        if str(pieces.end(reading, float(turn))) != str(delta):
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


# ------------------------------------------------------------------ lines of a log

PATTERN, STEP, WHEN = (f"dlsched.metrics.{key}" for key in ("pattern", "step", "when"))

_PATTERNS = (
    rb"step (?P<step>[0-9]+): train loss [-+0-9.eE]+, val loss (?P<loss>[0-9.]+)",
    rb"(?:^|K) +(?P<step>[0-9]+)/[0-9]+ +[0-9.]+G .*100%|^ +all +[0-9]+ +(?P<accuracy>[0-9.]+)",
    rb"^\{'eval_loss': '?(?P<loss>[0-9.e-]+)'?(?:.*'eval_accuracy': '?(?P<accuracy>[0-9.e-]+))?",
    rb"^Epoch (?P<step>[0-9]+)/|val_accuracy: (?P<accuracy>[0-9.]+)",
    rb"Test: \[ *(?P<at>[0-9]+)/(?P<of>[0-9]+)\].*Acc@1: +[0-9.]+ \( *(?P<accuracy>[0-9.]+)\)",
    rb"\| +total_timesteps +\| (?P<step>[0-9]+) |\| +ep_rew_mean +\| (?P<loss>-?[0-9.e+]+) ",
    rb"default[0-9]+\]:.*step (?P<step>\d+) accuracy (?P<accuracy>\S+)",
    rb"\| +(?P<latency>[0-9a-z.\xc2\xb5]+) \|",
    rb"step=(?P<step>\d+) loss=(?P<loss>[0-9.]+)",
    rb"took (?P<latency_ms>[0-9.]+) ?ms",
    rb"(?P<latency_s>\S+)",
    rb"(?i)epoch (?P<epoch>\d+).*acc(uracy)?[:=] *(?P<accuracy>[-+0-9.eE]+)",
)
_PLAIN_LOG = b"step=12 loss=0.25\ntook 12.5ms\n[INFO] epoch 3 done, acc: 0.97\n"
_LOGS = (
    b"step 250: train loss 1.9673, val loss 2.0700\nstep 500: train loss nan, val loss nan\n",
    b"\r      1/300   6.73G  1.2  640: 100%|###| 16/16\n          all    722   0.551   0.331\n",
    b"{'eval_loss': 0.41, 'eval_accuracy': 0.81}\n{'eval_loss': '-inf', 'epoch': '1'}\n",
    b"Epoch 1/25\n1875/1875 - 7s - loss: 0.4 - val_accuracy: 0.8516\nEpoch 2/25\n",
    b"Test: [   0/48]  Acc@1:  76.2 ( 74.3)\nTest: [  48/48]  Acc@1:  76.2 ( 74.1)\n",
    b"|    ep_rew_mean  | -1.1e+03 |\n|    total_timesteps | 2048  |\n",
    b"[default0]:step 7 accuracy 0.91\n[default1]:step 7 accuracy 0.91\n",
    b'[GIN] 2025/01/01 | 200 | 1m2.5s | ::1 | POST "/api/chat"\n| 12\xc2\xb5s |\n',
    *(_PLAIN_LOG,) * 4,
)
"""One for each pattern."""
_LOG_WORDS = (
    b"\r", b"\n", b"\x1e", b"nan", b"-inf", b"Infinity", b"NaN%", b"1h2m3s", b"350ns", b"1e999",
    b"_", b"0", b"9007199254740993", b"x" * 5000, b"\x1b[31m", b"\xff\xfe", b"(nan)", b"'nan'",
    b"(", b")", b"(?P<step>", b"(?P<latency>.)", b"|", b"[", b"]", b"{1000}", b"\\S+", b".*",
    b"step=", b"loss=", b"took ", b"ms", b"1_0", b"inf",
)  # fmt: skip
_PATTERN_WORDS = (
    b"(", b")", b"(?P<", b">", b"(?P<step>", b"(?P<"+b"\xff" * 200, b"(?P<w>.)", b"*", b"+",
    b"{1,1000}", b"{1000}", b"[", b"]", b"|", b"\\1", b"(?=x)", b"\\p{Greek}", b"(a*)*b",
    b"(?P<a>x)(?P<a>y)", b"\\C", b"\\xff", b"(?s).*", b"$",
)  # fmt: skip
_CONDITIONS = (b"", b"", b"", b"at == of", b"step == accuracy", b"at==", b"at != of")
_STEPS = (b"", b"", *(one.encode() for one in get_args(Step)), b"each")
_TARGET = AccuracyTarget("accuracy", 0.5, 0.9)


def make_lines(rng: Random) -> bytes:
    which = rng.randrange(len(_PATTERNS))
    pattern, log = _PATTERNS[which], _LOGS[which] * rng.choice((1, 1, 1, 3))
    odd = (*_LOG_WORDS, *ODD)
    if rng.random() < 0.3:
        pattern = mutated(rng, pattern, _PATTERNS, (*_PATTERN_WORDS, *odd))
    if rng.random() < 0.9:
        log = mutated(rng, log, _LOGS, odd)
    if rng.random() < 0.002:
        log *= rng.randrange(2000)
    # Most patterns go with few steps and conditions, and what is refused reads no line.
    asked = (rng.choice(_STEPS), rng.choice(_CONDITIONS)) if rng.random() < 0.4 else (b"", b"")
    parts = (pattern, *asked)
    return _NEXT.join((*(one.replace(_NEXT, b"") for one in parts), log))


def read_lines(data: bytes) -> str:
    pattern, source, condition, *writes = (data + _NEXT * 3).split(_NEXT)
    labels = ((PATTERN, pattern), (STEP, source), (WHEN, condition))
    texts = {
        label: text.decode("utf-8", "replace") for label, text in labels if text or label == PATTERN
    }
    (found,) = refusable(read_sources, texts)
    assert isinstance(found, LogPattern)
    lines = refusable(LogLines, found.pattern, found.step, found.when)
    told, reports = [], []
    for number, write in enumerate(writes):
        batch = LogBatch()
        lines.take(write, lines.parsed(write), float(number), batch)
        if batch.refused is not None:
            told.append(told_line(batch.refused))
        reported = batch.reports(float(number), 1.0)
        if len(reported) > READ_LINES + 1 and len(write) < READ_BYTES:
            raise Broken(f"{len(reported)} reports in one read")
        reports += reported
    if lines.fact.example is not None:
        told_line(lines.fact.example)
    if not 0 <= lines.fact.matched <= lines.fact.lines:
        raise Broken(f"{lines.fact.matched} of {lines.fact.lines} lines match")
    told.append(_reached(reports, counts=source == b"evaluations"))
    return "\n".join((*told, json.dumps(asdict(lines.fact))))


def _reached(reports: list[Report], *, counts: bool) -> str:
    progress = TierProgress("c", _TARGET)
    known: set[tuple[object, ...]] = set()
    latest = -1
    samples = [report.sample for report in reports if report.sample is not None]
    for number, sample in enumerate(samples, 1):
        if not all(math.isfinite(value) for _, value in sample.metrics):
            raise Broken(f"a value that is none: {sample}")
        if not {value for _, value in sample.diverged} <= {"nan", "inf", "-inf"}:
            raise Broken(f"a value that is not of a divergence: {sample}")
        if counts and sample.step != number:
            raise Broken(f"evaluation {number} at step {sample.step}")
        if sample.step is not None:
            if sample.step < latest:
                known.clear()
            latest = sample.step
            values = {(latest, *one) for one in (*sample.metrics, *sample.diverged)}
            if values & known:
                raise Broken(f"counted twice: {sample}")
            known |= values
        before, progress = progress, advanced(progress, sample, 1)
        # Only a value of a further evaluation says that the one before it is whole.
        same_step = sample.step is not None and sample.step == before.counted_step
        whole = before if sample.again or same_step else settled(before)
        if progress.diverged and progress.tiers != whole.tiers:
            raise Broken(f"delivered while diverged: {sample}")
    return json.dumps(asdict(progress), allow_nan=False)


# ------------------------------------------------------------------ both, probed

_IMAGES = (b"acme/app:1", b"vllm/vllm-openai:v1", b"docker.io/library/nginx", b"ollama/ollama", b"")
_PROBE_PIECES = (1, 7, 4096)
_PROBE_WORDS = (
    b"# TYPE a_latency_seconds histogram\n",
    b"# TYPE ",
    b"_duration_seconds_count 3\n",
    b"\n",
)
_PROBE_LOGS = (
    b"step 250: train loss 1.9673, val loss 2.0700\nstep 500: train loss nan, val loss nan\n",
    b"Epoch 1/25\n1875/1875 - 7s - loss: 0.4 - val_accuracy: 0.8516\nEpoch 2/25\n",
    b'[GIN] 2025/01/01 | 200 | 1m2.5s | ::1 | POST "/api/chat"\n      total time =  2.5 ms /\n',
    b"Test: [   0/48]  Acc@1:  76.2 ( 74.3)\nTest: [  48/48]  Acc@1:  76.2 ( 74.1)\n",
)


@cache
def _stacks() -> tuple[Stack, ...]:
    return recognition.stacks_of(package_presets())


def make_probed(rng: Random) -> bytes:
    page = make_pages(rng)
    if rng.random() < 0.5:
        page = mutated(rng, page, (page,), _PROBE_WORDS)
    log = make_lines(rng).rpartition(_NEXT)[2] if rng.random() < 0.3 else rng.choice(_PROBE_LOGS)
    log = mutated(rng, log, _PROBE_LOGS, _PROBE_WORDS)
    parts = (rng.choice(_IMAGES), page.replace(_NEXT, b"\n"), log.replace(_NEXT, b"\r"))
    return _NEXT.join(parts)


def read_probed(data: bytes) -> str:
    image_bytes, page, log = (data + _NEXT * 2).split(_NEXT)[:3]
    image = image_bytes.decode("utf-8", "replace")
    extract = _extract(page, max(1, len(page)))
    if _extract(page, _PROBE_PIECES[len(page) % len(_PROBE_PIECES)]) != extract:
        raise Broken("another extract of the same page in pieces")
    if len(extract) > 3 * MOST_LINES * (LINE_BYTES + 1):
        raise Broken(f"an extract of {len(extract)} bytes")
    speakers = [one.preset for one in recognition.speakers(extract, image, 8000, _stacks())]
    names = recognition.histograms(extract)
    for name in names:
        told_line(name)
    found = recognition.printed(log[-LOG_BYTES:], image, _stacks())
    if found is None:
        return json.dumps([speakers, names])
    stack, reading = found
    if reading.seconds is not None and not (
        math.isfinite(reading.seconds) and reading.seconds >= 0 and reading.requests > 0
    ):
        raise Broken(f"no latency: {reading}")
    return json.dumps([speakers, names, stack.preset, asdict(reading)])


def _extract(page: bytes, size: int) -> bytes:
    extract = recognition.PageExtract(_stacks())
    for start in range(0, len(page), size):
        extract.feed(page[start : start + size])
    return extract.lines()


def pages() -> Target:
    return Target("pages", make_pages, read_pages)


def lines() -> Target:
    return Target("lines", make_lines, read_lines)


def probe() -> Target:
    return Target("probe", make_probed, read_probed)
