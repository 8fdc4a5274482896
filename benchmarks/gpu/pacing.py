"""`make bench-gpu`: do jobs that share a GPU keep to their shares, and is none of it lost?

Where PYTHON (an interpreter of the host; `--python`) has torch with CUDA, real torch processes
share the first GPU. What a job used is the work that it got done, against what it does alone and
unpaced in the same run; NVML's utilisation stands beside it. Anywhere else the same is measured on
a simulated device, and with two processes on one core as the device, by their CPU time: no figure
is a GPU's then.
Needs no Docker. Writes benchmarks/results/gpu-pacing.json.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
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
from dlsched.runtime.cgroup.read import PROC
from dlsched.runtime.gpu import Inventory
from dlsched.runtime.gpu.inventory import DEV
from dlsched.runtime.gpu.nvml import load
from dlsched.runtime.gpu.session import Session
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
CAP_BYTES = 2**30
LOOKS = 50


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
) -> tuple[list[Mapping[str, Any]], float | None]:
    """Let one job for each share compute for so long: what each reports, and NVML's utilisation."""
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
        busy = _utilisation(seconds) if device.gpu else None
        return [job.answer() for job in jobs], busy


def ask(device: Device, *arguments: str, **allotted: Any) -> dict[str, Any]:
    """Run a job that computes nothing, to its end."""
    with running(device.python, PYTHONPATH=str(ROOT)) as start:
        return start(device.work, *arguments, **allotted).answer()


def _utilisation(seconds: float) -> float | None:
    """Of the first GPU, by NVML, in the mean over the time."""
    inventory, seen = Inventory(), []
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        devices = inventory.poll(time.monotonic()).devices
        if devices and devices[0].busy_ratio is not None:
            seen.append(devices[0].busy_ratio)
        time.sleep(0.5)
    inventory.close()
    return statistics.fmean(seen) if seen else None


def measured(device: Device, seconds: float, kinds: Sequence[str]) -> list[Row]:
    """Every share by real processes, each beside the device's whole in the same run."""
    rows: list[Row] = []
    for kind in kinds:
        chunks = ask(device, f"--step={STEPS_S[kind]}")["chunks"]
        for shares, turns in CASES:
            # Before and after: other work on the host comes and goes.
            around = [run_together(device, chunks, kind, (None,), seconds / 2)]
            shared, busy = run_together(device, chunks, kind, shares, seconds, turns)
            around.append(run_together(device, chunks, kind, (None,), seconds / 2))
            alone = statistics.fmean(_rate(told) for (told,), _ in around)
            got = [_rate(told) / alone for told in shared]
            rows.append(_row(device.name, kind, shares, turns, got, busy))
            print(rows[-1], flush=True)
    return rows


def _rate(told: Mapping[str, Any]) -> float:
    """The device's time by its own books, or where it keeps none the work done, a second."""
    done = told["chunks"] if told["used_s"] is None else told["used_s"]
    return float(done / told["took_s"])


# ------------------------------------------------------------------------------ simulated


def simulated(seconds: float) -> list[Row]:
    """Every share on the simulated device, with its events; by the device's own books."""
    rows = []
    for kind in STEPS_S:
        for shares, turns in CASES:
            got = _simulate(kind, shares, seconds, turns)
            rows.append(_row("simulated", kind, shares, turns, got, None))
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

Row = dict[str, object]


def _row(
    device: str,
    kind: str,
    shares: Sequence[float],
    turns: bool,
    got: Sequence[float],
    busy: float | None,
) -> Row:
    whole = sum(shares) > 0.999 and len(shares) > 1
    row: Row = {
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
    if busy is not None:
        row["NVML utilisation, %"] = round(100 * busy, 1)
    return row


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


def nvml_cost() -> dict[str, object]:
    """What a look at all GPUs costs."""
    costs_s = []
    with suppress(Exception):  # NVML's own, when the library is there and the driver is not
        if (nvml := load()) is not None:
            with closing(Session(nvml, DEV, PROC)) as session:
                for _ in range(LOOKS):
                    start_s = time.perf_counter()
                    session.read()
                    costs_s.append(time.perf_counter() - start_s)
    if not costs_s:
        return {"driver": "none: the cost of reading NVML was not measured"}
    return {
        "looks": len(costs_s),
        "median_ms": round(1e3 * statistics.median(costs_s), 3),
        "worst_ms": round(1e3 * max(costs_s), 3),
    }


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
    more: dict[str, object] = {"nvml": nvml_cost()}
    if gpu is not None:
        print(f"== {gpu.name}", flush=True)
        rows = measured(gpu, chosen.seconds, tuple(STEPS_S))
        cap = ask(gpu, "--cap", gpu_memory_bytes=CAP_BYTES)
        more |= {"device": gpu.name, "memory_cap": cap}
        title = f"Pacing on one GPU: {gpu.name}"
    else:
        print("== No GPU here (no torch with CUDA): no figure below is a GPU's", flush=True)
        before = os.sched_getaffinity(0)
        core = max(before)
        stand_in = Device("CPU core (stand-in)", chosen.python, False, "core")
        psutil.cpu_percent(percpu=True)
        os.sched_setaffinity(0, {core})
        try:
            rows = measured(stand_in, chosen.seconds, ("10 ms", "irregular"))
        finally:
            os.sched_setaffinity(0, before)
        rows = simulated(20 * chosen.seconds) + rows
        more |= {
            "device": "none, simulated",
            "memory_cap": "not tried: no GPU",
            "core_busy_ratio": psutil.cpu_percent(percpu=True)[core] / 100,
        }
        title = "Pacing, without a GPU: a simulated device, and a CPU core as a stand-in"
    lines = summary(rows)
    facts = results.host_facts("none needed")
    results.save(NAME, facts, [], rows, title=title, table=rows, headlines=lines, **more)
    results.show({title: rows}, [*lines, *(f"{name}: {what}" for name, what in more.items())])
    return 0
