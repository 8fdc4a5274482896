"""What a container prints, read by any pattern with any source of steps and any condition.

Promised: samples of finite numbers, each evaluation once, steps as they were asked for, patterns
that are refused in one line or take bounded time, and counts of what was found.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from random import Random
from typing import get_args

from benchmarks.robustness.fuzzing.mutation import NUMBERS, TEXTS, mutated
from benchmarks.robustness.fuzzing.trial import Broken, refusable, told_line
from dlsched.control.ledger.tiers import TierProgress, advanced, settled
from dlsched.model.facts import Report
from dlsched.model.sources import LogPattern, Step
from dlsched.model.spec import AccuracyTarget
from dlsched.runtime.progress.log_lines import LogBatch, LogLines
from dlsched.runtime.progress.sidecar import READ_BYTES, READ_LINES
from dlsched.runtime.progress.sources import read_sources

NAME = "lines"
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
_WORDS = (
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
_NEXT = b"\x1e"
_TARGET = AccuracyTarget("accuracy", 0.5, 0.9)


def make(rng: Random) -> bytes:
    which = rng.randrange(len(_PATTERNS))
    pattern, log = _PATTERNS[which], _LOGS[which] * rng.choice((1, 1, 1, 3))
    odd = (*_WORDS, *(one.encode() for one in (*NUMBERS, *TEXTS)))
    if rng.random() < 0.3:
        pattern = mutated(rng, pattern, _PATTERNS, (*_PATTERN_WORDS, *odd))
    if rng.random() < 0.9:
        log = mutated(rng, log, _LOGS, odd)
    if rng.random() < 0.002:
        log *= rng.randrange(2000)
    parts = (pattern, rng.choice(_STEPS), rng.choice(_CONDITIONS))
    return _NEXT.join((*(one.replace(_NEXT, b"") for one in parts), log))


def answer(data: bytes) -> str:
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
