"""Runs one part in a process of its own, within limits, and judges what came of it.

A part prints one JSON object a line, each with some of its figures by name. So what it had measured
before it failed, hung or was killed is kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
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
POLL_S = 0.02
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
    began_s, cut = time.monotonic(), ""
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as errors:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.gpu.truth.keeper", str(os.getpid()), *part.command],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=answer,
            stderr=errors,
            start_new_session=True,
        )
        try:
            while keeper.poll() is None and not cut:
                time.sleep(POLL_S)
                if time.monotonic() >= began_s + limit_s:
                    cut = TIMED_OUT
                elif os.fstat(answer.fileno()).st_size > ANSWER_BYTES:
                    cut = NONSENSE
        finally:
            _end(keeper)
        answer.seek(0)
        outcome = judge(part, answer.read(ANSWER_BYTES), keeper.returncode, cut)
        errors.seek(max(0, os.fstat(errors.fileno()).st_size - ERRORS_BYTES))
        told = errors.read(ERRORS_BYTES).decode(errors="replace")
    outcome.seconds, outcome.limit_s = time.monotonic() - began_s, limit_s
    outcome.errors = "" if outcome.state == RAN else told
    if outcome.state == FAILED:
        lines = [line for line in told.split("\n") if line.strip()]
        outcome.reason = lines[-1] if lines else outcome.reason
    return outcome


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
    missing = ", ".join(name for name in part.figures if name not in figures)
    ended_by = signal.Signals(-code).name if code is not None and code < 0 else ""
    faults = (
        (cut == NONSENSE, NONSENSE, f"answered more than {ANSWER_BYTES} bytes"),
        (cut == TIMED_OUT, TIMED_OUT, "its time limit was reached"),
        (code is None, KILLED, "its processes could not be ended"),
        (ended_by, KILLED, f"ended by {ended_by}"),
        (code, FAILED, f"exit code {code}"),
        (fault, NONSENSE, fault),
        (unable is not None, NOT_RUN, str(unable)),
        (missing, NONSENSE, f"did not answer {missing}"),
    )
    state, reason = next(((one, why) for is_so, one, why in faults if is_so), (RAN, ""))
    return Outcome(state, reason, figures=figures)


def read_answer(answer: bytes, names: Sequence[str]) -> tuple[dict[str, Any], str]:
    """The figures of all sound lines, and what is wrong with the first unsound one."""
    figures: dict[str, Any] = {}
    fault = ""
    for number, line in enumerate(filter(None, answer.split(b"\n")), 1):
        try:
            figures |= _sound(line, names)
        except (ValueError, RecursionError) as error:
            fault = fault or f"line {number}: {str(error)[:100]}"
    return figures, fault


def _sound(line: bytes, names: Sequence[str]) -> dict[str, Any]:
    told = json.loads(line)
    json.dumps(told, allow_nan=False)
    if not isinstance(told, dict):
        raise ValueError("no JSON object")
    if unknown := [name for name in told if name not in (*names, NOT_RUN_KEY)]:
        raise ValueError(f"unknown figure {unknown[0][:40]!r}")
    return told
