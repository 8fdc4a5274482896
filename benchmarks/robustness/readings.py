"""`python -m benchmarks run readings`: what readers make of pages and lines whose truth is known.

Each input is drawn from samples that are kept, by code that shares nothing with the readers. What
is read of it must equal a brute force over these samples; an interval must be the one that the
drawn buckets allow; all else must be refused with a reason. Input number n of a seed is always the
same. Writes `results/readings.json`; exit code 1 when a reading is wrong.

A number with one comma, as `0,98` or `1,234`, is not readable: whether the comma is a decimal one
depends on the language. Separated thousands that leave no doubt, as `1,234,567`, are readable.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from random import Random
from typing import Any, NamedTuple

from benchmarks.options import options
from benchmarks.publish import results
from dlsched.config.metrics.keys import MetricsKeys
from dlsched.config.metrics.loading import package_presets
from dlsched.estimate.sketch import quantile_bounds
from dlsched.model.facts import LatencySketch, Sample
from dlsched.model.sources import LabelFilter, LogPattern, Metric, MetricsEndpoint
from dlsched.runtime.progress.exposition import PageDelta, Pages
from dlsched.runtime.progress.log_lines import LogBatch, LogLines
from dlsched.runtime.progress.scrape import named

INPUTS = 100_000
QUOTED_FROM = 1000
"""A run of fewer inputs says nothing that could be quoted, and is not saved."""
BLOCK = 250
"""Inputs that a process draws in one go."""
KEPT = 5
"""Wrong inputs of each reader that are kept as text."""
KEPT_CHARACTERS = 6000
READABLE_REFUSED_MAX = 0.05
FAULTY = 0.15
"""Part of the inputs with something in them that nobody could read."""
QUANTILES = (Fraction(1, 2), Fraction(95, 100), Fraction(99, 100))
TOLERANCE = 1e-9
"""Relative, and in seconds: counters are sums of floats."""
START_S = 1_700_000_000.0
AGE_S = 3600.0
CLASSES = ("exact", "interval", "unmatched", "refused", "refused, readable", "WRONG")
"""What comes of an input: the worst of its pages or lines, in this order. `unmatched`: a line whose
pattern does not match because of a number that is none; nothing is read of it."""

Bounds = tuple[float, float]


class Numbers(NamedTuple):
    """What one page or line says, or what is read of it."""

    exact: tuple[object, ...] = ()
    bounds: tuple[Bounds, ...] = ()
    """Of each quantile: those that the buckets allow."""
    inside: tuple[Any, ...] = ()
    """Of each quantile: the latency itself, or the bounds that are read by the sum too."""


class Part(NamedTuple):
    """One page or line."""

    given: bytes
    truth: Numbers | None
    """None: it must be refused."""
    readable: bool = True


@dataclass(frozen=True)
class Drawn:
    """One input: pages or lines one after the other, and how they are configured."""

    setup: Any
    parts: Sequence[Part]


@dataclass(frozen=True)
class Reader:
    draw: Callable[[Random], Drawn]
    read: Callable[[Drawn], Iterable[Numbers | str]]
    """Of each part the numbers, or why it is refused."""


def judged(part: Part, got: Numbers | str) -> str:
    """Its class; what is wrong stands behind WRONG."""
    if isinstance(got, str):
        if not got:
            return "WRONG: refused without a reason"
        return "refused, readable" if part.readable else "refused"
    if part.truth is None and got == Numbers():
        return "unmatched"
    if part.truth is None:
        return f"WRONG: {got} is read where nothing can be"
    if not _same(got.exact, part.truth.exact) or not _same(got.bounds, part.truth.bounds):
        return f"WRONG: {got} and not {part.truth}"
    for (low, high), (lowest, highest), true in zip(
        part.truth.bounds, got.inside, part.truth.inside, strict=True
    ):
        slack = TOLERANCE * (1 + true)
        if not (low - slack <= lowest <= true + slack and true - slack <= highest <= high + slack):
            return f"WRONG: {true} is read as {lowest} to {highest}, its buckets {low} to {high}"
    return "interval" if got.bounds else "exact"


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) and isinstance(other, (int, float)):
        alike = math.isnan(one) and math.isnan(other)
        return alike or math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(one == other)


def spelled(random: Random, value: float) -> str:
    """A text of exactly that number, in one of the ways in which programs print it."""
    texts = [repr(value), f"{value:.17g}", f"{value:.17e}", f"{value:.6E}", f"{value:.3f}"]
    texts += [f"{value:g}", f"{value:.1e}", f"{value:+.3f}", str(int(value))]
    return random.choice([one for one in texts if float(one) == value])


# ------------------------------------------------------------------ pages


@dataclass
class Series:
    """The requests of one label set, in the page's unit, since the server started."""

    labels: dict[str, str]
    counts: bool
    """Whether the filters let it pass."""
    failed: bool
    edges: tuple[float, ...]
    all: list[float]
    new: list[float]
    """Since the last page that is read."""

    def row(self, less_or_equal: float) -> int:
        return sum(one <= less_or_equal for one in self.all)


UNITS = [("_seconds", None, 1.0), ("", None, 1.0), ("_milliseconds", None, 1e-3)]
UNITS += [("_ms", None, 1e-3), ("_microseconds", None, 1e-6), ("_us", None, 1e-6)]
UNITS += [("", 1e-3, 1e-3), ("", 1e-6, 1e-6)]
ANSWERED, FAILED = ("200", "201", "204", "302", "400", "404"), ("500", "503", "504", "429", "499")
PATHS = ("/predict", "/v1/a b", '/quo\\"te', "/br{ace},x=1", "/back\\\\slash", 'le=\\"5\\"', "/#")
UNSPELLED = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}
PAGE_FAULTS = ("cut", "text", "nan", "negative", "count", "no sum")


def _all_series(random: Random, edges: tuple[float, ...], filtered: bool) -> list[Series]:
    status = random.choice(("code", "status", "status_code", None))
    found: dict[tuple[str, ...], Series] = {}
    for _ in range(random.randint(1, 5)):
        labels = {"path": random.choice(PATHS)}
        failed = status is not None and random.random() < 0.3
        if status is not None:
            labels[status] = random.choice(FAILED if failed else ANSWERED)
        if filtered:
            labels["model"] = random.choice("ab")
        if not filtered and random.random() < 0.1:
            labels["path"] = random.choice(("/metrics", "/health"))
        counts = labels.get("model") != "b" and labels["path"] in PATHS
        found[tuple(labels.values())] = Series(labels, counts, failed, edges, [], [])
    first = next(iter(found.values()))  # one that passes, so that there is something to read
    labels = {**first.labels, "path": "/first", **({"model": "a"} if filtered else {})}
    return [*found.values(), Series(labels, True, first.failed, edges, [], [])]


def _line(random: Random, name: str, labels: dict[str, str], value: str, behind: str) -> str:
    pairs = [f'{one}="{text}"' for one, text in labels.items()]
    if random.random() < 0.1:
        random.shuffle(pairs)
    inside = random.choice((",", ",", ",", ", ", " , ")).join(pairs)
    inside += random.choice(("",) * 9 + (",",))
    space = random.choice((" ",) * 8 + ("  ", "\t"))
    return name + (f"{{{inside}}}" if pairs else "") + space + value + behind


def _draw_page(random: Random, kind: str) -> Drawn:
    suffix, given_s, unit_s = random.choice(UNITS)
    name = f"request_{random.choice('xyz')}{suffix}"
    pool = sorted({one * 10.0**power for one in (1, 2, 2.5, 5, 7.5) for power in range(-3, 2)})
    texts: dict[float, str] = {}
    if kind == "histogram":
        for one in sorted(random.sample(pool, random.randint(1, 10))):
            edge = float(f"{one / unit_s:.6g}")
            texts[edge] = spelled(random, edge)
    edges = tuple(texts)
    texts[math.inf] = "+Inf"
    filtered = random.random() < 0.3
    series = _all_series(random, edges, filtered)
    where = (LabelFilter("model", "a"),) if filtered else ()
    ratio = kind == "mean" and random.random() < 0.3
    total, count = (f"{name}_time", f"{name}_done") if ratio else (f"{name}_sum", f"{name}_count")
    metric = Metric(name, unit_s=given_s, where=where)
    if ratio:
        metric = Metric(total=total, count=count, unit_s=unit_s, where=where)
    process = random.random() < 0.5
    began_s, behind = START_S - AGE_S, random.choice(("", "", "", " 1700000000000"))
    pages = random.randint(2, 5)
    faulty = random.randrange(1, pages) if random.random() < FAULTY else 0
    restarts = random.randrange(1, pages) if random.random() < 0.2 else 0
    parts, restarted = [], False
    for page in range(pages):
        fault = random.choice(PAGE_FAULTS) if page == faulty and page > 0 else ""
        if page == restarts and page:
            began_s = START_S + page - 0.5
        for one in series:
            # Where nothing says when the process started, a restart shows in lower counts alone.
            least, most = (0, 12) if process or not restarts else (0, 4)
            if page == 0:
                least, most = (0, 30) if process or not restarts else (20, 30)
            if page == restarts and page:
                one.all, one.new = [], []
            drawn = [_latency(random, edges, unit_s) for _ in range(random.randint(least, most))]
            one.all, one.new = one.all + drawn, one.new + drawn
        lines = [
            line
            for one in series
            for line in _series_lines(random, one, (total, count), name, texts, behind, kind)
        ]
        fault, lines = _spoiled(fault, lines, count, series[-1], last=page == pages - 1)
        top = [f"# HELP {name} It's {{so}}.", f"# TYPE {name} {kind}", f"{name}_created 5"]
        start = f"process_start_time_seconds {began_s!r}"
        lines = [*top, *([start] if process else []), *lines]
        if fault == "cut" and page == pages - 1:  # before that, it is in `_spoiled`
            lines[-1] = lines[-1][: random.randrange(1, len(lines[-1]))]
        text = "\n".join(lines) + ("" if fault == "cut" else "\nother_total 7\n")
        # A page that was cut may still be whole in what is wanted of it: then it may be read.
        hopeless = fault and (fault != "cut" or page < pages - 1)
        restarted = restarted or (page == restarts and page > 0)
        baseline = page == 0 or (restarted and not process)
        truth = None if hopeless else _page_truth(series, unit_s, kind, baseline)
        parts.append(Part(text.encode(), truth, not fault))
        if not fault:
            restarted = False
            for one in series:
                one.new = []
    return Drawn(metric, parts)


def _spoiled(
    fault: str, lines: list[str], count: str, series: Series, *, last: bool
) -> tuple[str, list[str]]:
    """The lines with that fault in this last series, and which fault it is."""
    victim = max(at for at, text in enumerate(lines) if text.startswith(count))
    value = {"text": "many", "nan": "NaN", "negative": "-1", "count": "1e6"}.get(fault)
    if not fault:
        return fault, lines
    if value is not None and (fault != "count" or series.edges):
        head = lines[victim].rpartition("}")[0] + "} "
        return fault, [*lines[:victim], head + value, *lines[victim + 1 :]]
    if fault == "no sum" and series.all:
        return fault, [*lines[: victim - 1], *lines[victim:]]
    if last:
        return "cut", lines
    # Before the sum's value, so that no later page depends on what is read of this one.
    return "cut", [*lines[:-2], lines[-2][: lines[-2].rindex("}")]]


def _series_lines(
    random: Random,
    one: Series,
    ends: tuple[str, str],
    name: str,
    texts: dict[float, str],
    behind: str,
    kind: str,
) -> Iterator[str]:
    """`ends`: the names of its sum and of its count. `texts`: the bounds as they are spelled."""
    for edge in texts if kind == "histogram" else ():
        labels, value = {**one.labels, "le": texts[edge]}, float(one.row(edge))
        yield _line(random, f"{name}_bucket", labels, spelled(random, value), behind)
    for at, value in zip(ends, (math.fsum(one.all), float(len(one.all))), strict=True):
        yield _line(random, at, one.labels, spelled(random, value), behind)
    if kind == "mean" and ends[0].endswith("_sum") and random.random() < 0.3:
        yield _line(random, name, {**one.labels, "quantile": "0.5"}, "NaN", "")


def _latency(random: Random, edges: tuple[float, ...], unit_s: float) -> float:
    """One in the page's unit; on a bound now and then."""
    if edges and random.random() < 0.05:
        return random.choice(edges)
    return round(random.lognormvariate(-2.0, 1.5) / unit_s, 3) or 1.0


def _page_truth(series: Sequence[Series], unit_s: float, kind: str, baseline: bool) -> Numbers:
    """`baseline`: it is only what later ones are compared with, as where counts go back and nothing
    says whether the process is a new one, or another one answers."""
    if baseline:
        return Numbers((0, 0.0, 0), (), ())
    answered = [one for one in series if one.counts and not one.failed]
    failed = sum(len(one.new) for one in series if one.counts and one.failed)
    latencies = sorted(value * unit_s for one in answered for value in one.new)
    exact = (len(latencies), math.fsum(latencies), failed)
    if kind == "mean" or not latencies:
        return Numbers(exact)
    ends = [0.0, *(edge * unit_s for edge in series[0].edges), math.inf]
    highs = [next(end for end in ends[1:] if one <= end * (1 + 1e-12)) for one in latencies]
    ranks = [math.ceil(one * len(latencies)) - 1 for one in QUANTILES]
    bounds = tuple((ends[ends.index(highs[rank]) - 1], highs[rank]) for rank in ranks)
    return Numbers(exact, bounds, tuple(latencies[rank] for rank in ranks))


def _read_pages(numbers: Callable[[PageDelta], Numbers], drawn: Drawn) -> Iterator[Numbers | str]:
    pages = Pages(named(MetricsEndpoint((1,), metrics=(drawn.setup,)), None), from_end=True)
    for number, part in enumerate(drawn.parts):
        delta = pages.take(part.given, START_S + number)
        refused = delta.problem or delta.refused or ("a bad line" if delta.bad_lines else None)
        yield refused or numbers(delta)


def _latency_numbers(delta: PageDelta) -> Numbers:
    latency = delta.latency or LatencySketch()
    exact = (latency.count, latency.sum_s, latency.errors)
    if not latency.spans:
        return Numbers(exact)
    plain, by_sum = [], []
    for one in QUANTILES:
        for into, summed in ((plain, False), (by_sum, True)):
            found = quantile_bounds(latency, float(one), by_sum=summed)
            assert found is not None
            into.append((found.lowest_s, math.inf if found.most_s is None else found.most_s))
    return Numbers(exact, tuple(plain), tuple(by_sum))


def _draw_gauge(random: Random) -> Drawn:
    parts, last = [], None
    begun = False
    for _ in range(random.randint(1, 8)):
        value = random.choice((round(random.gauss(0, 1), random.randint(0, 9)), 1e-7, 3e5, 0.0))
        value = value if last is None or random.random() < 0.7 else last
        value = random.choice((math.nan, math.inf, -math.inf)) if random.random() < 0.1 else value
        ranks = random.randint(1, 3)
        texts = [spelled(random, value) if math.isfinite(value) else UNSPELLED[repr(value)]] * ranks
        fault = random.choice(("differ", "text", "comma")) if random.random() < FAULTY / 4 else ""
        if fault:
            bad = {"differ": "0.123456789", "text": "0.5.5", "comma": "0,5"}[fault]
            texts = [*texts, bad]
        labels = [{"rank": str(rank)} for rank in range(len(texts))]
        lines = [_line(random, "val_acc", *one, "") for one in zip(labels, texts, strict=True)]
        text = "\n".join(["# TYPE val_acc gauge", "val_acc_best 0.99", *lines, "up 1", ""])
        begins = begun or (math.isfinite(value) and value != 0.0)
        new = not _same(last, value) and begins
        parts.append(
            Part(text.encode(), None if fault else Numbers((value if new else None,)), not fault)
        )
        if not fault:
            last, begun = value if new else last, begins
    return Drawn(Metric("val_acc"), parts)


# ------------------------------------------------------------------ log lines

N = "[-+0-9.eE]+"
TRAININGS: list[tuple[str, str, str, str]] = [
    # preset or pattern, metric, line of the step, line of the metric
    ("nanogpt", "val_loss", "", "step {step}: train loss 1.2345, val loss {value}"),
    ("deit", "acc1", "", '{{"train_lr": 1e-05, "test_acc1": {value}, "epoch": {step}}}'),
    ("xgboost", "auc", "", "[{step}]\ttrain-auc:0.99\teval-auc:{value}"),
    ("flax", "test_accuracy", "", "epoch: {step:>3}, train_loss: 0.2, test_accuracy: {value}"),
    ("fairseq", "valid_loss", "", "| valid | valid_loss {value} | ppl 3 | num_updates {step}"),
    ("keras", "accuracy", "Epoch {step}/90", " - loss: 3.0 - val_accuracy: {value} - val_loss: 2"),
    ("pytorch-mnist", "accuracy", "Train Epoch: {step} [0/60000]", "Accuracy: 9/10 ({value}%)"),
    ("hf-trainer", "eval_loss", "", "{{'eval_loss': {value}, 'eval_runtime': 3.2}}"),
    (f"it (?P<step>[0-9]+) .*f1=(?P<f1>{N})", "f1", "", "it {step} of 9000000 | f1={value} ok"),
    (f"^(?P<step>[0-9]+),(?P<mse>{N})$", "mse", "", "{step},{value}"),
    ("step (?P<step>[0-9]+) acc (?P<acc>[0-9.]+)", "acc", "", "step {step} acc {value} !"),
    (f"score: (?P<score>{N})", "score", "", "score: {value}% of all"),
]
SERVICES: list[tuple[str, str, str]] = [
    # preset or pattern, unit, line
    ("nginx", "s", '1.2.3.4 - "POST /x HTTP/1.1" {status} 12 rt={value}'),
    ("gunicorn", "us", '127.0.0.1 "POST /x HTTP/1.1" {status} 12 {value}'),
    ("ollama", "go", '[GIN] 2026/01/02 | {status} | {value:>9} | ::1 | POST  "/api/chat"'),
    ("llama.cpp", "ms", "print_timing: total time = {value:>10} ms / 40 tokens"),
    (f"took (?P<latency_ms>{N})", "ms", "GET /a took {value} ms"),
    (f"took (?P<latency_us>{N})us", "us", "took {value}us"),
    (f"dt=(?P<latency_s>{N})", "s", "level=info dt={value} n=3"),
    ("in (?P<latency>[0-9a-z.]+)", "go", "answered in {value}"),
]
ODD = ("{:.3f}k", "1.{:.3f}", "0,{:.0f}", "{:.0f},5", "1,{:03.0f}")
THOUSANDS = ("1,234,{:03.0f}", "1'234'{:03.0f}", "1_234_{:03.0f}")
SCALE = {"s": 1.0, "ms": 1e-3, "us": 1e-6}


@cache
def _preset(name: str) -> LogPattern:
    if " " in name or "?P" in name:
        return LogPattern(name)
    (source,) = package_presets().sources(MetricsKeys(base=name))
    assert isinstance(source, LogPattern)
    return source


def _odd(random: Random, *, tight: bool) -> tuple[str, bool]:
    """What is no number, or one whose comma may mean this or that; and whether it is clear.
    `tight`: the pattern wants something right behind the number, and so does not match."""
    clear = not tight and random.random() < 0.1
    return random.choice(THOUSANDS if clear else ODD).format(random.randint(100, 999)), clear


def _draw_log(random: Random) -> Drawn:
    if random.random() < 0.4:
        return _draw_service(random)
    name, metric, steps, line = random.choice(TRAININGS)
    plain = "[0-9.]+)" in name
    step, parts, number = random.randint(0, 5), [], 0
    values: list[float] = []
    for _ in range(random.randint(1, 8)):
        step = step + random.choice((1, 1, 10, 1000)) if random.random() < 0.9 else step // 3
        value = round(random.gauss(0, 1) * 10.0 ** random.randint(-5, 4), random.randint(2, 9))
        value = abs(value) if plain else value
        # The same value at the same step would be the same evaluation, printed again.
        value = value if value not in values else value + len(values) + 0.5
        values.append(value)
        text = _number_text(random, value, plain)
        truth: Numbers | None = None
        readable = True
        if plain and any(one in text for one in "eE+"):
            readable = False  # by this pattern
        if random.random() < FAULTY / 4:
            text, readable = _odd(random, tight=metric in ("accuracy", "mse"))
        else:
            if not plain and len(values) == 1 and random.random() < 0.1:
                value = random.choice((math.nan, math.inf, -math.inf))
                text = str(value)
            number += 1
            at = number if name == "hf-trainer" or metric == "score" else step
            truth = Numbers(((at, (metric, value)),))
        if steps:
            parts.append(Part(f"{steps.format(step=step)}\n".encode(), Numbers()))
        printed = f"{line.format(step=step, value=text)}\n".encode()
        if random.random() < 0.1:
            at = random.randrange(1, len(printed) - 1)
            parts += [Part(printed[:at], Numbers()), Part(printed[at:], truth, readable)]
        else:
            parts.append(Part(printed, truth, readable))
        if truth is not None and readable and random.random() < 0.2:  # by another rank
            parts.append(Part(printed, Numbers()))
        if random.random() < 0.3:
            parts.append(Part(b"loading 3 of 17 shards, 12.5 MB/s\n", Numbers()))
    return Drawn(_preset(name), parts)


def _number_text(random: Random, value: float, plain: bool) -> str:
    if plain and random.random() < 0.8:
        return f"{value:.9f}"
    text = spelled(random, value)
    return text.removeprefix("+") if plain else text


def _draw_service(random: Random) -> Drawn:
    name, unit, line = random.choice(SERVICES)
    parts = []
    for _ in range(random.randint(1, 12)):
        status = random.choice(("200",) * 5 + ("500", "503", "408", "429", "499"))
        latency = random.lognormvariate(-2, 2)
        text, true_s = _go(random, latency)
        if unit != "go":
            true_s = round(latency / SCALE[unit], 0 if unit == "us" else 3)
            text = f"{true_s:.0f}" if unit == "us" else f"{true_s:.3f}"
            if name[0] in "td" and random.random() < 0.5:
                text = spelled(random, true_s)
            true_s *= SCALE[unit]
        failed = "{status}" in line and status != "200"
        truth: Numbers | None = Numbers((0, 0.0, 1) if failed else (1, true_s, 0))
        readable = True
        if not failed and unit != "go" and random.random() < FAULTY / 6:
            text, readable = _odd(random, tight="us" in line or name == "gunicorn")
            truth = None
        parts.append(Part(f"{line.format(status=status, value=text)}\n".encode(), truth, readable))
    return Drawn(_preset(name), parts)


def _go(random: Random, latency: float) -> tuple[str, float]:
    """A duration as Go prints it, and its seconds."""
    if latency >= 60:
        minutes, seconds = divmod(round(latency, 3), 60)
        return f"{minutes:.0f}m{seconds:.3f}s", minutes * 60 + round(seconds, 3)
    unit = "s" if latency >= 1 else "ms" if latency >= 1e-3 else "us"
    text = f"{latency / SCALE[unit]:.{random.randint(1, 6)}f}"
    return text + unit, float(text) * SCALE[unit]


def _read_log(drawn: Drawn) -> Iterator[Numbers | str]:
    of: LogPattern = drawn.setup
    lines = LogLines(of.pattern, of.step, of.when, failed=of.failed)
    lines.begin()
    at_s = START_S
    for part in drawn.parts:
        at_s += 0.0 if part.truth == Numbers() else 10.0  # repeated lines come immediately
        batch = LogBatch()
        lines.take(part.given, lines.parsed(part.given), at_s, batch)
        if batch.bad_lines:
            yield batch.refused or ""
            continue
        found: list[object] = []
        for report in batch.reports(at_s, 1.0):
            if report.sample is not None and (report.sample.metrics or report.sample.diverged):
                found.append(_sample_numbers(report.sample))
            if report.latency is not None:
                found += [report.latency.count, report.latency.sum_s, report.latency.errors]
        yield Numbers(tuple(found))


def _sample_numbers(sample: Sample) -> tuple[object, ...]:
    return (sample.step, *sample.metrics, *((name, float(text)) for name, text in sample.diverged))


# ------------------------------------------------------------------ the run

_read_latencies = partial(_read_pages, _latency_numbers)
READERS = {
    "histogram pages": Reader(partial(_draw_page, kind="histogram"), _read_latencies),
    "sum and count pages": Reader(partial(_draw_page, kind="mean"), _read_latencies),
    "gauge pages": Reader(_draw_gauge, partial(_read_pages, lambda delta: Numbers((delta.value,)))),
    "log lines": Reader(_draw_log, _read_log),
}


def tried(name: str, reader: Reader, seed: int, numbers: range) -> tuple[Counter[str], list[str]]:
    """How many of these inputs are of each class, and the first wrong ones as text."""
    classes: Counter[str] = Counter()
    wrong: list[str] = []
    for number in numbers:
        drawn = reader.draw(Random(f"{seed} {name} {number}"))
        found = [judged(*one) for one in zip(drawn.parts, reader.read(drawn), strict=True)]
        worst = max((one.partition(":")[0] for one in found), key=CLASSES.index)
        classes[worst] += 1
        if worst == "WRONG" and len(wrong) < KEPT:
            at = next(at for at, one in enumerate(found) if one.startswith("WRONG"))
            texts = [part.given.decode() for part in drawn.parts[: at + 1]]
            text = f"input {number}, part {at}: {found[at]}; {drawn.setup}; {texts}"
            wrong.append(text[:KEPT_CHARACTERS])
    return classes, wrong


def _tried(name: str, seed: int, first: int, last: int) -> tuple[Counter[str], list[str]]:
    return tried(name, READERS[name], seed, range(first, last))


def row(name: str, classes: Counter[str], spent_s: float) -> dict[str, object]:
    """The result of one reader."""
    return {
        "reader": name,
        "inputs": classes.total(),
        "read exactly": classes["exact"],
        "read as an interval": classes["interval"],
        "refused with a reason": classes["refused"],
        "no match, nothing read": classes["unmatched"],
        "refused although readable": classes["refused, readable"],
        "WRONG": classes["WRONG"],
        "seconds": round(spent_s),
    }


def main(arguments: list[str] | None = None) -> int:
    chosen = options(
        __doc__,
        arguments,
        inputs=(INPUTS, "of each reader"),
        seed=(1, "of all inputs"),
        only=(tuple(READERS), "readers"),
    )
    table, rows = [], []
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for name in chosen.only:
            began_s = time.monotonic()
            firsts = range(0, chosen.inputs, BLOCK)
            lasts = [min(first + BLOCK, chosen.inputs) for first in firsts]
            total, wrong = Counter[str](), list[str]()
            one_block = partial(_tried, name, chosen.seed)
            for classes, texts in pool.map(one_block, firsts, lasts):
                total += classes
                wrong += texts
            table.append(row(name, total, time.monotonic() - began_s))
            rows.append({**table[-1], "first wrong": wrong[:KEPT]})
            print(f"{name}: {dict(total)}", *wrong[:KEPT], sep="\n  ", flush=True)
    inputs, false = (sum(int(str(one[key])) for one in table) for key in ("inputs", "WRONG"))
    refused = max(
        int(str(one["refused although readable"])) / int(str(one["inputs"])) for one in table
    )
    reached = results.verdict(not false and refused <= READABLE_REFUSED_MAX)
    headline = (
        f"Of {inputs} inputs whose truth is known {false} were read wrongly; of each reader at "
        f"most {refused:.1%} of those that a person could read were refused (at most "
        f"{READABLE_REFUSED_MAX:.0%} may): {reached}."
    )
    if chosen.inputs < INPUTS:
        headline += f" A short run: {chosen.inputs} and not {INPUTS} inputs of each reader."
    whole = chosen.only == tuple(READERS) and chosen.inputs >= QUOTED_FROM
    title = "Readings: pages and lines whose truth is known, against what is read of them"
    results.finish("readings", "none", [chosen.seed], rows, {title: table}, [headline], whole=whole)
    return 1 if false else 0
