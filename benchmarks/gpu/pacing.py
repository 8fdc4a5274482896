"""Do jobs that share a device keep to their shares, and is none of it lost?

Measured on a simulated device, and with two processes on one core as the device, by their CPU time:
no figure is a GPU's. `benchmarks.gpu.truth` measures pacing on a GPU. What a job used is held
against what it does alone and unpaced in the same run. Needs no Docker.

    python -m benchmarks run gpu-pacing      writes benchmarks/results/gpu-pacing.json
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any
from unittest import mock

import psutil

from benchmarks.gpu.jobs import go, running
from benchmarks.options import options
from benchmarks.places import ROOT
from benchmarks.publish import results
from dlsched.report import granted
from dlsched.runtime.allotment import Allotment, job_dir, write_allotment
from tests.report.simulated_gpu import Process, World, paced, torch

NAME = "gpu-pacing"
SHARES: tuple[tuple[float, ...], ...] = (
    *((share,) for share in (0.10, 0.25, 0.50, 0.75)),
    *((share, 1 - share) for share in (0.10, 0.25, 0.50)),
    (0.25, 0.25),
)
CASES = (*((shares, True) for shares in SHARES), ((0.5, 0.5), False))
"""Shares, and whether turns are taken; the last shows what they are for."""
STEPS_S = {"10 ms": 0.01, "irregular": 0.01, "0.5 s": 0.5}
"""Irregular: 2.5 to 40 ms."""

Row = dict[str, Any]

_ERROR, _TOGETHER = "worst error, points", "together, of exclusive"


# ------------------------------------------------------------------------------ real processes


def run_together(
    chunks: int, kind: str, shares: Sequence[float | None], seconds: float, turns: bool = True
) -> list[float]:
    """Let one job for each share compute for so long: CPU time of each, a second."""
    with running(sys.executable, PYTHONPATH=str(ROOT)) as start:
        length = (f"--chunks={chunks}", f"--seconds={seconds}")
        jobs = []
        for number, share in enumerate(shares, start=1):
            more = [f"--irregular={number}"] if kind == "irregular" else []
            allotted = {"gpu_share": share} if turns else {"gpu_share": share, "gpus": []}
            jobs.append(start("core", *length, *more, **allotted))
            # Other work on the host would count as theirs. The kernel weighs sessions first.
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, jobs[-1].pid, -20)
                Path(f"/proc/{jobs[-1].pid}/autogroup").write_text("-20")
        go(*jobs)
        return [told["used_s"] / told["took_s"] for told in (job.answer() for job in jobs)]


def measured(seconds: float) -> list[Row]:
    """Every share by real processes on one core, each beside all of it in the same run."""
    rows: list[Row] = []
    for kind in ("10 ms", "irregular"):
        with running(sys.executable, PYTHONPATH=str(ROOT)) as start:
            chunks = start("core", f"--step={STEPS_S[kind]}").answer()["chunks"]
        for shares, turns in CASES:
            # Before and after: other work on the host comes and goes.
            before = run_together(chunks, kind, (None,), seconds / 2)
            shared = run_together(chunks, kind, shares, seconds, turns)
            after = run_together(chunks, kind, (None,), seconds / 2)
            alone = statistics.fmean((*before, *after))
            got = [each / alone for each in shared]
            rows.append(_row("CPU core (stand-in)", kind, shares, turns, got))
            print(rows[-1], flush=True)
    return rows


# ------------------------------------------------------------------------------ simulated


def simulated(seconds: float) -> list[Row]:
    """Every share on the simulated device, with its events; by the device's own books."""
    rows = []
    for kind in STEPS_S:
        for shares, turns in CASES:
            got = _simulate(kind, shares, seconds, turns)
            rows.append(_row("simulated", kind, shares, turns, got))
            print(rows[-1], flush=True)
    return rows


def _simulate(kind: str, shares: Sequence[float], seconds: float, turns: bool) -> list[float]:
    world, processes = World(), []
    with (
        tempfile.TemporaryDirectory() as state,
        mock.patch.dict(sys.modules, torch=torch(world)),
        mock.patch.dict(os.environ),
    ):
        for number, share in enumerate(shares):
            inside = job_dir(Path(state), f"job-{number}")
            write_allotment(inside, Allotment(gpu_share=share, gpus=("bench",) if turns else ()))
            os.environ["DLSCHED_ALLOTMENT_FILE"] = str(inside / "allotment.json")
            chance = random.Random(number + 1)
            processes.append(world.start(partial(_compute, granted.allotment(), kind, chance)))
        try:
            world.run(seconds)
        finally:
            world.end()
    return [process.busy_s / seconds for process in processes]


def _compute(
    allotment: granted.Allotment | None, kind: str, chance: random.Random, process: Process
) -> None:
    pace = paced(process, lambda: allotment)
    pace()
    while True:
        scale = 4 ** chance.uniform(-1, 1) if kind == "irregular" else 1.0
        process.step(STEPS_S[kind] * scale)
        pace()


# ------------------------------------------------------------------------------ figures


def _row(device: str, kind: str, shares: Sequence[float], turns: bool, got: Sequence[float]) -> Row:
    whole = sum(shares) > 0.999 and len(shares) > 1
    return {
        "device": device,
        "steps": kind,
        "shares, %": " + ".join(f"{100 * share:.0f}" for share in shares),
        "turns": "yes" if turns else "no",
        "measured, %": " + ".join(f"{100 * each:.1f}" for each in got),
        _ERROR: round(
            max(100 * abs(each - share) for each, share in zip(got, shares, strict=True)), 2
        ),
        _TOGETHER: round(sum(got), 3) if whole else "-",
    }


def summary(rows: Sequence[Row]) -> list[str]:
    """By device the worst of all cases with turns, where two figures are promised, and without."""
    lines = []
    for (device, turns), own in results.grouped(rows, itemgetter("device", "turns")).items():
        together = min(row[_TOGETHER] for row in own if row[_TOGETHER] != "-")
        error, asked = max(row[_ERROR] for row in own), turns == "yes"
        lines.append(
            f"{device}, {'in turns' if asked else 'without turns'}: worst error {error:.1f} points "
            f"of {len(own)} cases{' (figure: 5)' * asked}; two jobs together at least "
            f"{together:.3f} of exclusive throughput{' (figure: 0.95)' * asked}."
        )
    return lines


def main(arguments: list[str] | None = None) -> int:
    chosen = options(__doc__, arguments, seconds=(6.0, "of each case"))
    before = os.sched_getaffinity(0)
    core = max(before)
    psutil.cpu_percent(percpu=True)
    os.sched_setaffinity(0, {core})
    try:
        rows = measured(chosen.seconds)
    finally:
        os.sched_setaffinity(0, before)
    busy_ratio = psutil.cpu_percent(percpu=True)[core] / 100
    rows = simulated(20 * chosen.seconds) + rows
    title = "Pacing, without a GPU: a simulated device, and a CPU core as a stand-in"
    results.finish(
        NAME, "none needed", [], rows, {title: rows}, summary(rows), core_busy_ratio=busy_ratio
    )
    return 0
