"""`make bench-gpu`: do jobs that share a GPU keep to their shares, and is none of it lost?

Where PYTHON (an interpreter of the host; `--python`) has torch with CUDA, real torch processes
share the first GPU. What a job used is the work that it got done, against what it does alone and
unpaced in the same run. Anywhere else the same is measured on a simulated
device, and with two processes on one core as the device, by their CPU time: no figure
is a GPU's then.
Needs no Docker. Writes benchmarks/results/gpu-pacing.json.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.jobs import go, running
from benchmarks.options import options
from benchmarks.places import ROOT
from benchmarks.publish import results

NAME = "gpu-pacing"
SHARES: tuple[tuple[float, ...], ...] = (
    *((share,) for share in (0.10, 0.25, 0.50, 0.75)),
    *((share, 1 - share) for share in (0.10, 0.25, 0.50)),
    (0.25, 0.25),
)
CASES = (*((shares, True) for shares in SHARES), ((0.5, 0.5), False))
"""Shares, and whether turns are taken; the last shows what they are for."""
CAP_BYTES = 2**30
STEPS_S = {"10 ms": 0.01, "irregular": 0.01, "0.5 s": 0.5}
"""Irregular: 2.5 to 40 ms."""


@dataclass(frozen=True, slots=True)
class Device:
    """What is shared, and who computes on it."""

    name: str
    python: str
    gpu: bool
    work: str
    """Of `benchmarks.gpu.job`."""


# ------------------------------------------------------------------------------ real processes


def run_together(
    device: Device,
    chunks: int,
    kind: str,
    shares: Sequence[float | None],
    seconds: float,
    turns: bool = True,
) -> list[Mapping[str, Any]]:
    """Let one job for each share compute for so long; what they have told."""
    with running(device.python, PYTHONPATH=str(ROOT)) as start:
        length = (f"--chunks={chunks}", f"--seconds={seconds}")
        jobs = []
        for number, share in enumerate(shares, start=1):
            more = [f"--irregular={number}"] if kind == "irregular" else []
            allotted = {"gpu_share": share} if turns else {"gpu_share": share, "gpus": []}
            jobs.append(start(device.work, *length, *more, **allotted))
            if not device.gpu:
                # Other work on the host would count as theirs. The kernel weighs sessions first.
                with suppress(OSError):
                    os.setpriority(os.PRIO_PROCESS, jobs[-1].pid, -20)
                    Path(f"/proc/{jobs[-1].pid}/autogroup").write_text("-20")
        go(*jobs)
        return [job.answer() for job in jobs]


def measured(device: Device, seconds: float, kinds: Sequence[str]) -> list[Row]:
    """Every share by real processes, each beside the device's whole in the same run."""
    rows: list[Row] = []
    for kind in kinds:
        with running(device.python, PYTHONPATH=str(ROOT)) as start:
            chunks = start(device.work, f"--step={STEPS_S[kind]}").answer()["chunks"]
        for shares, turns in CASES:
            # Before and after: other work on the host comes and goes.
            around = [run_together(device, chunks, kind, (None,), seconds / 2)]
            shared = run_together(device, chunks, kind, shares, seconds, turns)
            around.append(run_together(device, chunks, kind, (None,), seconds / 2))
            alone = statistics.fmean(_rate(told) for (told,) in around)
            got = [_rate(told) / alone for told in shared]
            rows.append(_row(device.name, kind, shares, turns, got))
            print(rows[-1], flush=True)
    return rows


def _rate(told: Mapping[str, Any]) -> float:
    """The device's time by its own books, or where it keeps none the work done, a second."""
    done = told["chunks"] if told["used_s"] is None else told["used_s"]
    return float(done / told["took_s"])


# ------------------------------------------------------------------------------ figures

Row = dict[str, object]


def _row(
    device: str,
    kind: str,
    shares: Sequence[float],
    turns: bool,
    got: Sequence[float],
) -> Row:
    whole = sum(shares) > 0.999 and len(shares) > 1
    return {
        "device": device,
        "steps": kind,
        "shares, %": " + ".join(f"{100 * share:.0f}" for share in shares),
        "turns": "yes" if turns else "no",
        "measured, %": " + ".join(f"{100 * each:.1f}" for each in got),
        "worst error, points": round(
            max(100 * abs(each - share) for each, share in zip(got, shares, strict=True)), 2
        ),
        "together, of exclusive": round(sum(got), 3) if whole else "-",
    }


def summary(rows: Sequence[Row]) -> list[str]:
    """The two figures that are promised, by device: the worst of all with turns."""
    lines = []
    for device in dict.fromkeys(str(row["device"]) for row in rows):
        own = [row for row in rows if row["device"] == device and row["turns"] == "yes"]
        errors = [float(str(row["worst error, points"])) for row in own]
        sums = [
            float(str(row["together, of exclusive"]))
            for row in own
            if row["together, of exclusive"] != "-"
        ]
        lines.append(
            f"{device}: worst error {max(errors):.1f} points of {len(own)} cases (figure: 5); two "
            f"jobs together at least {min(sums):.3f} of exclusive throughput (figure: 0.95)."
        )
    return lines


def found_gpu(python: str) -> Device | None:
    """The first GPU, if that interpreter's torch can use it."""
    text = "import torch; print(torch.cuda.get_device_name(0), 'torch', torch.__version__)"
    with suppress(OSError, subprocess.TimeoutExpired):
        asked = subprocess.run(
            [python, "-c", text], capture_output=True, text=True, check=False, timeout=120
        )
        if asked.returncode == 0:
            return Device(asked.stdout.strip(), python, True, "products")
    return None


def main(arguments: list[str] | None = None) -> int:
    chosen = options(
        __doc__,
        arguments,
        python=(sys.executable, "an interpreter with torch"),
        seconds=(6.0, "of each case"),
    )
    gpu = found_gpu(chosen.python)
    if gpu is not None:
        print(f"== {gpu.name}", flush=True)
        rows = measured(gpu, chosen.seconds, tuple(STEPS_S))
        with running(gpu.python, PYTHONPATH=str(ROOT)) as start:
            cap = start(gpu.work, "--cap", gpu_memory_bytes=CAP_BYTES).answer()
        print(f"memory cap: {cap}")
        title = f"Pacing on one GPU: {gpu.name}"
    else:
        print("== No GPU here (no torch with CUDA): no figure below is a GPU's", flush=True)
        before = os.sched_getaffinity(0)
        stand_in = Device("CPU core (stand-in)", chosen.python, False, "core")
        os.sched_setaffinity(0, {max(before)})
        try:
            rows = measured(stand_in, chosen.seconds, ("10 ms", "irregular"))
        finally:
            os.sched_setaffinity(0, before)
        title = "Pacing, without a GPU: a CPU core as a stand-in"
    results.finish(NAME, "none needed", [], rows, {title: rows}, summary(rows))
    return 0
