"""Threads that fit: what libraries with pools of threads do in jobs that dlsched starts.

libgomp, OpenBLAS, PyTorch and ONNX Runtime, each at a CPU limit of 0.5, 1 and 1.5 cores, and
without one beside two busy jobs. Four jobs of a library are stopped and continued in turns: with
what dlsched sets (`fit`), with the library's own choice (`own`), and with one and two threads that
wait without spinning (`1`, `2`). Then the limit falls under a job that calls `fit_to_allotment()`
at each step (`follow`).

    python -m benchmarks run threads     writes benchmarks/results/threads.json
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import statistics
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from operator import truediv
from pathlib import Path

from benchmarks.options import options, stage
from benchmarks.places import ROOT
from benchmarks.publish import results
from tests.stacks import environments
from tests.stacks.containers import PYTHON
from tools.base_image import BASE, ensure_base
from tools.session import Session, session, wait_for
from tools.waiting import until

NAME = "threads"
PROGRAMS = Path(__file__).parent / "programs"
MODELS = ROOT / "examples" / "images" / "inference" / "models"
LIBRARIES = ("libgomp", "openblas", "torch", "onnxruntime")
LIMITS = (0.5, 1.0, 1.5)
FALLS = (1.0, 0.5)
"""Limits in cores, and those to which one of two cores falls."""
BUSY = "beside two busy jobs"
TURNS, SECONDS, SETTLE_S = 7, 1.0, 0.3
"""Of each job, and what it computes before it is measured: a few periods of its limit."""
READY_S, CHANGED_S = 120.0, 30.0
"""Longest wait for a job's first steps, and the figure: so soon it fits a changed limit."""
REACHED_RATIO = 0.95
"""Figure: throughput, of that with the best number of threads."""


def fixed(threads: int) -> dict[str, str]:
    """An environment with that number for every library."""
    names = ("OMP_NUM_THREADS", "ORT_INTRA_OP_NUM_THREADS")
    return {**dict.fromkeys(names, str(threads)), "OMP_WAIT_POLICY": "passive"}


VARIANTS: Mapping[str, Mapping[str, str]] = {"fit": {}, "own": {}, "1": fixed(1), "2": fixed(2)}


@dataclass(frozen=True)
class Row:
    """One job in one turn."""

    library: str
    scene: str
    variant: str
    turn: int
    threads: int
    """0: the library's own choice, which it does not say."""
    steps_per_s: float
    fitted_after_s: float | None = None
    """After the limit fell, until the job had the number of threads of its new one."""


class Job:
    """A job, and what it counts."""

    def __init__(self, one: Session, name: str, library: str, variant: str) -> None:
        self._one = one
        self.name, self.library, self.variant = name, library, variant
        self._counts = one.root / name
        self._counts.write_bytes(bytes(16))

    def drop(self, limit: float | None) -> None:
        """Write its file, with that limit."""
        packages = environments.folder(NAME).resolve()
        command = ["/pool"]
        if self.library != "libgomp":
            command = ["python3", "/programs/pool.py"]
        more = [self.library, *(["follow"] if self.variant == "follow" else [])]
        site = f"/packages/lib/{PYTHON}/site-packages"
        spec = {
            "name": self.name,
            "image": BASE,
            "command": [*command, "/counts", *more],
            "threads": "own" if self.variant in ("own", "1", "2") else "fit",
            "environment": {"PYTHONPATH": site, **VARIANTS.get(self.variant, {})},
            "volumes": [
                f"{packages}:/packages:ro",
                f"{PROGRAMS}:/programs:ro",
                f"{MODELS}:/models:ro",
                f"{self._one.root / 'pool'}:/pool:ro",
                f"{self._counts}:/counts",
            ],
            "stop": {"signal": "SIGKILL"},
            **({} if limit is None else {"cpus": {"max": limit}}),
        }
        self._one.drop(self.name, json.dumps(spec))

    def counted(self) -> tuple[int, int]:
        """Its steps and its threads."""
        steps, threads = struct.unpack("qq", self._counts.read_bytes())
        return steps, threads

    def begins(self) -> None:
        """Wait for its first steps, and stop it."""
        wait_for(lambda: self.counted()[0] > 2, READY_S, str(self), self._one.why_not_running)
        labels = {"label": f"dlsched.job={self.name}"}
        listed = partial(self._one.engine.containers.list, filters=labels, ignore_removed=True)
        # A program computes before the engine says that it runs.
        self._pid = until(listed, f"the container of {self}")[0].attrs["State"]["Pid"]
        os.kill(self._pid, signal.SIGSTOP)

    def turn(self, seconds: float) -> tuple[int, float]:
        """Let it compute for that time: its threads, and its steps a second."""
        os.kill(self._pid, signal.SIGCONT)
        try:
            time.sleep(SETTLE_S)
            before, began_s = self.counted()[0], time.monotonic()
            time.sleep(seconds)
            (steps, threads), took_s = self.counted(), time.monotonic() - began_s
        finally:
            os.kill(self._pid, signal.SIGSTOP)
        return threads, (steps - before) / took_s

    def fits_after(self, limit: float) -> float:
        """Change its limit to at most one core while it computes: the time until it has one
        thread."""
        os.kill(self._pid, signal.SIGCONT)
        self.drop(limit)
        began_s = time.monotonic()
        with suppress(AssertionError):  # its row says how late it was
            wait_for(lambda: self.counted()[1] == 1, 2 * CHANGED_S, f"one thread of {self}")
        took_s = time.monotonic() - began_s
        os.kill(self._pid, signal.SIGSTOP)
        return took_s

    def __str__(self) -> str:
        return f"{self.name} ({self.library}, {self.variant})"


@contextmanager
def jobs(one: Session, library: str, limits: Mapping[str, float | None]) -> Iterator[list[Job]]:
    """That library in these variants, each with its limit, stopped after the first steps."""
    made = []
    try:
        for variant, limit in limits.items():
            job = Job(one, f"pool-{secrets.token_hex(3)}", library, variant)
            made.append(job)
            job.drop(limit)
            job.begins()
        yield made
    finally:
        for job in made:
            (one.watch / f"{job.name}.yaml").unlink()
        names = {job.name for job in made}
        wait_for(
            lambda: not names & {row["name"] for row in one.client.jobs()["jobs"]}, 60, "their end"
        )


def measure(one: Session, scene: str, limit: float | None, turns: int, seconds: float) -> list[Row]:
    """Every library in every variant at that limit."""
    rows = []
    for library in LIBRARIES:
        with jobs(one, library, dict.fromkeys(VARIANTS, limit)) as made:
            rows += take_turns(made, Row(library, scene, "", 0, 0, 0.0), turns, seconds)
        print(table([row for row in rows if row.library == library])[0], flush=True)
    return rows


def follow(one: Session, scene: str, limit: float, turns: int, seconds: float) -> list[Row]:
    """The limit falls from two cores to that one, under libraries in Python."""
    rows = []
    for library in LIBRARIES[1:]:
        with jobs(one, library, {"follow": 2.0, "1": limit, "2": limit}) as made:
            fitted_s = made[0].fits_after(limit)
            of = Row(library, scene, "", 0, 0, 0.0, fitted_s)
            rows += take_turns(made, of, turns, seconds)
        print(table([row for row in rows if row.library == library])[0], flush=True)
    return rows


def take_turns(made: Sequence[Job], of: Row, turns: int, seconds: float) -> Iterator[Row]:
    """A row for each turn of each job."""
    for number in range(1, turns + 1):
        for job in made:
            threads, rate = job.turn(seconds)
            what = {"variant": job.variant, "turn": number, "threads": threads}
            yield replace(of, **what, steps_per_s=rate)


def rates(rows: Sequence[Row], scene: str, library: str) -> dict[str, list[float]]:
    """Steps a second in each turn, by variant."""
    here = [row for row in rows if (row.scene, row.library) == (scene, library)]
    by_variant = results.grouped(here, lambda row: row.variant)
    return {name: [row.steps_per_s for row in found] for name, found in by_variant.items()}


def table(rows: Sequence[Row]) -> list[dict[str, object]]:
    """A line a scene and library: the best number of threads, and the others' rates over its rate
    of the same turn, in the median: the host is slower and faster by the second."""
    lines: list[dict[str, object]] = []
    for scene, library in dict.fromkeys((row.scene, row.library) for row in rows):
        found = rates(rows, scene, library)
        best = max(("1", "2"), key=lambda variant: statistics.median(found[variant]))
        of_best = {
            variant: round(statistics.median(map(truediv, each, found[best])), 2)
            for variant, each in found.items()
        }
        lines.append({"library": library, "where": scene, "best": int(best)} | of_best)
    return lines


def headlines(lines: Sequence[Mapping[str, object]], rows: Sequence[Row]) -> list[str]:
    """The figures: from the start at limits and beside busy jobs, and with the reporter."""
    limited = [line for line in lines if "fit" in line and line["where"] != BUSY]
    busy = [line for line in lines if line["where"] == BUSY]
    followed = [line for line in lines if "follow" in line]
    late_s = max(row.fitted_after_s or 0.0 for row in rows)
    in_time = f", with one thread after {late_s:.0f} s at the latest (asked: {CHANGED_S:g} s)"
    return [
        _figure("from the start, at a limit", limited, "fit"),
        _figure("from the start, beside two busy jobs", busy, "fit"),
        _figure("with the reporter after a change", followed, "follow", in_time, late_s),
    ]


def _figure(
    words: str,
    lines: Sequence[Mapping[str, object]],
    variant: str,
    more: str = "",
    late_s: float = 0.0,
) -> str:
    ratios = [float(str(line[variant])) for line in lines]
    kept = sum(ratio >= REACHED_RATIO for ratio in ratios)
    worst = lines[ratios.index(min(ratios))]
    reached = results.verdict(kept == len(ratios) and late_s <= CHANGED_S)
    return (
        f"Threads that fit {words}: at least {REACHED_RATIO:g} of the throughput with the best "
        f"number in {kept} of {len(ratios)} cases, least {min(ratios):.2f} ({worst['library']}, "
        f"{worst['where']}){more}: {reached}"
    )


def busy(one: Session) -> None:
    """Two jobs that use a core each."""
    for name in ("busy-1", "busy-2"):
        spec = {"command": ["sh", "-c", "while :; do :; done"], "stop": {"signal": "SIGKILL"}}
        one.drop(name, json.dumps({"name": name, "image": BASE, **spec}))
    wait_for(lambda: one.running() == 2, 60, "the busy jobs", one.why_not_running)


def build_pool(folder: Path) -> None:
    """Compile the pool of libgomp into that folder."""
    build = ["gcc", "-O2", "-fopenmp", "-static", str(PROGRAMS / "pool.c")]
    subprocess.run([*build, "-o", str(folder / "pool")], check=True)


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = options(
        __doc__,
        arguments,
        turns=(TURNS, "of each job; fewer: not saved"),
        seconds=(SECONDS, "of each turn"),
    )
    environments.ensure(NAME)
    ensure_base(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"))
    rows: list[Row] = []
    with session() as one:
        build_pool(one.root)
        one.start("adaptive")
        for limit in LIMITS:
            stage(scene := f"limit {limit:g}")
            rows += measure(one, scene, limit, chosen.turns, chosen.seconds)
        for limit in FALLS:
            stage(scene := f"limit 2, then {limit:g}")
            rows += follow(one, scene, limit, chosen.turns, chosen.seconds)
        stage(BUSY)
        busy(one)
        rows += measure(one, BUSY, None, chosen.turns, chosen.seconds)
        version = str(one.engine.version()["Version"])
    lines = table(rows)
    title = "Steps a second, of those with the best number of threads, 1 or 2"
    whole = chosen.turns >= TURNS
    results.finish(NAME, version, [], rows, {title: lines}, headlines(lines, rows), whole=whole)
    return 0
