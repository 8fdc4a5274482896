"""Runs one part in a process of its own, within limits, and judges what came of it.

A part prints one JSON object a line, each with some of its figures by name. So what it had measured
before it failed, hung or was killed is kept.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.places import ROOT

RAN, FAILED, TIMED_OUT, KILLED, NONSENSE, NOT_RUN = STATES = (
    "ran",
    "failed",
    "timed out",
    "killed",
    "nonsense",
    "not run",
)
NOT_RUN_KEY = "not_run"
"""In a part's answer: why it cannot run here."""
ANSWER_BYTES = 1 << 20
"""A longer answer is nonsense."""
ERRORS_BYTES = 4000
"""Kept of the end of what a part writes to standard error."""
GRACE_S = 5.0
"""For the keeper to kill all processes of a part."""


@dataclass(frozen=True, slots=True)
class Part:
    """One subject, and the command that measures it."""

    name: str
    figures: tuple[str, ...]
    """Names of all that it answers."""
    limit_s: float
    command: Sequence[str]


@dataclass(slots=True)
class Outcome:
    """What came of a part."""

    state: str
    reason: str = ""
    seconds: float = 0.0
    limit_s: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict)
    errors: str = ""
    """The end of its standard error; empty where it ran."""


class Stop(BaseException):
    """The script is asked to end."""


def run(part: Part, limit_s: float) -> Outcome:
    """Run it to its end, or to that limit. Raises `Stop`, with nothing left running."""
    began_s = time.monotonic()
    keeper = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.gpu.truth.keeper", str(os.getpid()), *part.command],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        answer, errors, cut = _read(keeper, began_s + limit_s)
    finally:
        _end(keeper)
    outcome = judge(part, answer, keeper.returncode, cut)
    outcome.seconds = time.monotonic() - began_s
    outcome.limit_s = limit_s
    if outcome.state != RAN:
        outcome.errors = errors.decode(errors="replace")
    if outcome.state == FAILED:
        lines = outcome.errors.split("\n")
        outcome.reason = next((line for line in reversed(lines) if line.strip()), outcome.reason)
    return outcome


def _read(keeper: subprocess.Popen[bytes], until_s: float) -> tuple[bytes, bytes, str]:
    """Answer, end of the errors, and why reading ended early: a state, or nothing."""
    assert keeper.stdout is not None
    assert keeper.stderr is not None
    kept = {keeper.stdout: b"", keeper.stderr: b""}
    cut = ""
    with keeper.stdout, keeper.stderr, selectors.DefaultSelector() as waiting:
        for stream in kept:
            waiting.register(stream, selectors.EVENT_READ)
        while waiting.get_map() and not cut:
            ready = waiting.select(min(1.0, max(0.0, until_s - time.monotonic())))
            if not ready and keeper.poll() is not None:
                break  # a process that could not be killed still holds the pipes
            for key, _ in ready:
                stream = keeper.stdout if key.fileobj is keeper.stdout else keeper.stderr
                chunk = os.read(stream.fileno(), 1 << 16)
                kept[stream] += chunk
                if not chunk:
                    waiting.unregister(stream)
            kept[keeper.stderr] = kept[keeper.stderr][-ERRORS_BYTES:]
            if len(kept[keeper.stdout]) > ANSWER_BYTES:
                cut = NONSENSE
            elif time.monotonic() >= until_s:
                cut = TIMED_OUT
        return kept[keeper.stdout][:ANSWER_BYTES], kept[keeper.stderr], cut


def _end(keeper: subprocess.Popen[bytes]) -> None:
    """It ends by itself once its output has ended; otherwise it is asked to, then made to."""
    for signal_number, wait_s in ((0, 0.0), (signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        if keeper.poll() is None:
            keeper.send_signal(signal_number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            keeper.wait(wait_s)
            return


def judge(part: Part, answer: bytes, code: int | None, cut: str) -> Outcome:
    """The outcome by what was answered, the exit code (negative: a signal), and why it was cut."""
    figures, fault = read_answer(answer, part.figures)
    unable = figures.pop(NOT_RUN_KEY, None)
    outcome = Outcome(RAN, figures=figures)
    if cut == NONSENSE:
        outcome.state, outcome.reason = NONSENSE, f"answered more than {ANSWER_BYTES} bytes"
    elif cut == TIMED_OUT:
        outcome.state, outcome.reason = TIMED_OUT, "its time limit was reached"
    elif code is None:
        outcome.state, outcome.reason = KILLED, "its processes could not be ended"
    elif code < 0:
        outcome.state, outcome.reason = KILLED, f"ended by {signal.Signals(-code).name}"
    elif code > 0:
        outcome.state, outcome.reason = FAILED, f"exit code {code}"
    elif fault:
        outcome.state, outcome.reason = NONSENSE, fault
    elif unable is not None:
        outcome.state, outcome.reason = NOT_RUN, str(unable)
    elif missing := [name for name in part.figures if name not in figures]:
        outcome.state, outcome.reason = NONSENSE, f"did not answer {', '.join(missing)}"
    return outcome


def read_answer(answer: bytes, names: Sequence[str]) -> tuple[dict[str, Any], str]:
    """The figures of all sound lines, and what is wrong with the first unsound one."""
    figures: dict[str, Any] = {}
    fault = ""
    for number, line in enumerate(filter(None, answer.split(b"\n")), 1):
        try:
            figures |= _figures(line, names)
        except (ValueError, RecursionError) as error:
            fault = fault or f"line {number}: {str(error)[:100]}"
    return figures, fault


def _figures(line: bytes, names: Sequence[str]) -> dict[str, Any]:
    told = json.loads(line, parse_constant=_no_number, parse_float=_number)
    if not isinstance(told, dict):
        raise ValueError("no JSON object")
    if unknown := [name for name in told if name not in (*names, NOT_RUN_KEY)]:
        raise ValueError(f"unknown figure {unknown[0][:40]!r}")
    return told


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")


def _number(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _no_number(text)
