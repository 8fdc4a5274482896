"""Reads an extract with the product's own readers, through the preset, and compares the truth."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dlsched.estimate.sketch import merge, quantile_bounds
from dlsched.model.facts import LatencySketch, Sample
from dlsched.model.sources import LogPattern, MetricsEndpoint
from dlsched.model.spec import AccuracyTarget, LatencyTarget, Target
from dlsched.report.buckets import LONGEST_S
from dlsched.runtime.progress.exposition import Pages
from dlsched.runtime.progress.log_lines import LogBatch, LogLines
from dlsched.runtime.progress.scrape import named
from dlsched.runtime.progress.sources import check_target, read_sources
from tests.stacks.fixture import Extract
from tests.stacks.stack import Stack

MEAN_TOLERANCE = 0.05
"""The client measures connections, too, which the server does not."""
LOG_QUANTILE_TOLERANCE = 0.05
"""A log has no buckets: the sketch's own percent, and the client's overhead."""
QUANTILE = 0.95
PAGES_APART_S = 1.0

_BOUND = re.compile(rb'(?:^|,)le="([^"]+)"')


@dataclass
class Read:
    """What was read of one program."""

    latency: LatencySketch
    samples: tuple[Sample, ...]
    problems: tuple[str, ...]
    bad_lines: int
    refused: str | None


def read(stack: Stack, extract: Extract) -> Read:
    """All that the preset gives. Raises ValueError where it cannot serve the stack's target."""
    (source,) = read_sources(stack.all_labels)
    target = target_of(stack)
    check_target([source], target)
    if isinstance(source, MetricsEndpoint):
        return _read_pages(source, target, extract.pages)
    assert isinstance(source, LogPattern)
    return _read_log(source, extract.log)


def target_of(stack: Stack) -> Target:
    """The target that a job of this stack would have."""
    if stack.metric is None:
        return LatencyTarget(1.0, QUANTILE if stack.has_quantiles else None)
    return AccuracyTarget(stack.metric, 0.5, 0.5)


def _read_pages(source: MetricsEndpoint, target: Target, pages: Sequence[bytes]) -> Read:
    reader = Pages(named(source, None), from_end=True, target=target, hint=source.hint)
    deltas = [reader.take(page, number * PAGES_APART_S) for number, page in enumerate(pages)]
    return Read(
        merge(*(one.latency for one in deltas if one.latency is not None)),
        (),
        tuple(one.problem for one in deltas if one.problem is not None),
        sum(one.bad_lines for one in deltas),
        next((one.refused for one in deltas if one.refused is not None), None),
    )


def _read_log(source: LogPattern, log: Iterable[tuple[float, bytes]]) -> Read:
    lines = LogLines(source.pattern, source.step, source.when)
    lines.begin()
    found = Read(LatencySketch(), (), (), 0, None)
    for at_s, chunk in log:
        batch = LogBatch()
        lines.take(chunk, lines.parsed(chunk), at_s, batch)
        for report in batch.reports(at_s, 1.0):
            if report.latency is not None:
                found.latency = merge(found.latency, report.latency)
            if report.sample is not None:
                found.samples += (report.sample,)
        found.bad_lines += batch.bad_lines
        found.refused = found.refused or batch.refused
    return found


def differences(stack: Stack, extract: Extract) -> list[str]:
    """What was read otherwise than the program measured it, a line each."""
    found = read(stack, extract)
    if stack.problem is not None:
        if any(stack.problem in one for one in found.problems):
            return []
        return [f"expected to be told {stack.problem!r}; told {found.problems}"]
    told = [f"told: {one}" for one in found.problems]
    told += [f"refused: {found.refused}"] if found.refused is not None else []
    if stack.metric is None:
        return told + _latency_differences(stack, extract, found.latency)
    return told + _curve_differences(stack, extract, found.samples)


def _latency_differences(stack: Stack, extract: Extract, got: LatencySketch) -> list[str]:
    true_s = sorted(extract.truth["latencies_s"])
    if got.count != len(true_s):
        return [f"{got.count} requests, not {len(true_s)}"]
    wrong = []
    mean_s, read_s = math.fsum(true_s) / len(true_s), got.mean_s or 0.0
    if abs(read_s - mean_s) > MEAN_TOLERANCE * mean_s:
        wrong.append(f"mean {read_s:.4f} s, not {mean_s:.4f} s")
    if not stack.has_quantiles:
        return wrong + (["a p95 out of a mean"] if got.spans or got.buckets else [])
    true = true_s[math.ceil(QUANTILE * len(true_s)) - 1]
    found = quantile_bounds(got, QUANTILE)
    if found is None:
        wrong.append("no p95")
    elif extract.pages:
        edges = [0.0, *bounds_of(stack, extract), math.inf]
        low, high = next((a, b) for a, b in pairwise(edges) if a < true <= b)
        # The client measures more than the server, whose sum bounds the p95.
        in_bucket = low <= found.lowest_s and found.highest_s <= min(high, LONGEST_S)
        if not in_bucket or found.highest_s < true * (1 - MEAN_TOLERANCE):
            wrong.append(f"p95 {found}, not {true:.4f} s between {low} and {high} s")
    elif not found.is_exact or abs(found.highest_s - true) > LOG_QUANTILE_TOLERANCE * true:
        wrong.append(f"p95 {found}, not {true:.4f} s")
    return wrong


def bounds_of(stack: Stack, extract: Extract) -> list[float]:
    """The upper bounds of the program's histogram, in seconds, as the program says them."""
    unit_s = float(extract.truth.get("unit_s", 1.0))
    (source,) = read_sources(stack.all_labels)
    assert isinstance(source, MetricsEndpoint)
    names = {f"{one.name}_bucket".encode() for one in named(source, None)}
    lines = (line.partition(b"{") for line in extract.pages[-1].splitlines())
    texts = [_BOUND.search(labels) for name, _, labels in lines if name in names]
    return sorted({float(text[1]) * unit_s for text in texts if text is not None})


def _curve_differences(stack: Stack, extract: Extract, got: Sequence[Sample]) -> list[str]:
    group = stack.group or stack.metric
    curve = [(one.step, value) for one in got for name, value in one.metrics if name == group]
    whole = [(step, value) for step, value in extract.truth["curve"]]
    true = whole[: len(whole) - stack.unread]
    if stack.ends_with_best and len(curve) == len(true) + 1:
        true = [*true, (true[-1][0], max(value for _, value in true))]
    same = len(curve) == len(true) and all(
        step == true_step and abs(value - true_value) <= stack.printed_to * 0.5001 + 1e-12
        for (step, value), (true_step, true_value) in zip(curve, true, strict=True)
    )
    return [] if same else [f"curve {curve}, not {true}"]
