"""Moves of a training between two GPUs that are none: what is lost, how long it pauses.

The daemon is whole and the engine real: a policy of the tests decides every move, and a real
training saves itself, is stopped and goes on in a new container. The GPUs are stand-ins: a driver
that tells of two, and device nodes that nothing computes on. So the times are those of saving,
stopping, starting and importing PyTorch on the CPU, and say nothing of a GPU's own memory.

Owns the run and its figures. Needs root (device nodes) and a C compiler (the driver's stand-in).
"""

from __future__ import annotations

import os
import stat
import statistics
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.options import options
from benchmarks.publish import results
from dlsched.model.actions import Move
from dlsched.model.cycle import CycleReport
from dlsched.model.state import JobState
from tests.nvml.library import Stub, build
from tests.nvml.scenario import GIB, Gpu, Scenario
from tools.session import Session, session, wait_for

NAME = "gpu-move"
IMAGE = "dlsched-examples/training"
MOVES = 20
JOB = "trains"
GPUS = ("GPU-0000aaaa-0000-0000-0000-000000000000", "GPU-1111bbbb-0000-0000-0000-000000000000")
STAY_S = 4.0
WITHIN_S = 240.0
NODES = {
    "nvidia0": (10, 229),
    "nvidia1": (10, 237),
    "nvidiactl": (1, 7),
    "nvidia-uvm": (1, 3),
    "nvidia-uvm-tools": (1, 5),
}
"""Character devices that every kernel lets be opened."""

WAYS = {"told to end (SIGTERM)": "SIGTERM", "killed (SIGKILL)": "SIGKILL"}
_LOST = "steps lost of an acknowledged checkpoint"


@dataclass(frozen=True, slots=True)
class Moved:
    """One move, and what became of it."""

    begun_s: float
    """Of the agent's clock."""
    back: bool
    """Whether it came to nothing, and the job went on where it was."""
    pause_s: float
    """From the signal to the first report after."""
    acknowledged: int
    """Steps that it had acknowledged as saved when it was resumed."""
    made: int
    """Steps that it had made by then."""
    resumed: int
    """The step that it went on from."""

    @property
    def lost_acknowledged(self) -> int:
        """Steps of an acknowledged checkpoint that had to be made again: there must be none."""
        return max(0, self.acknowledged - self.resumed)

    @property
    def lost_after(self) -> int:
        """Steps that it had made after the one that it was resumed from."""
        return max(0, self.made - self.resumed)


def moves_in(reports: Iterable[CycleReport]) -> list[Moved]:
    """The moves that a journal holds from beginning to end; the training reports each step."""
    views = [(report, job) for report in reports for job in report.snapshot.jobs if job.name == JOB]
    moves = []
    for index, (report, old) in enumerate(views):
        begun = any(
            isinstance(outcome.action, Move) and outcome.status == "begun"
            for outcome in report.outcomes
        )
        if not begun or old.state is not JobState.RUNNING:
            continue
        begun_s = report.snapshot.now_s
        new = next(
            (
                job
                for _, job in views[index:]
                if (job.started_at_s or 0.0) > begun_s
                and job.progress.samples
                and job.progress.samples[-1].received_s > (job.started_at_s or 0.0)
            ),
            None,
        )
        if new is None:
            continue
        started_s = new.started_at_s or 0.0
        steps = [
            (sample.received_s, sample.step)
            for sample in new.progress.samples
            if sample.step is not None
        ]
        acknowledged = [
            job.progress.checkpoint.step
            for seen, job in views
            if job.progress.checkpoint is not None and seen.snapshot.now_s < started_s
        ]
        moves.append(
            Moved(
                begun_s=begun_s,
                back=new.container_id == old.container_id,
                pause_s=min(at_s for at_s, _ in steps if at_s > started_s) - begun_s,
                acknowledged=max(acknowledged, default=0),
                made=max((step for at_s, step in steps if at_s < started_s), default=0),
                resumed=min(step for at_s, step in steps if at_s > started_s) - 1,
            )
        )
    return moves


@contextmanager
def host() -> Iterator[tuple[Session, Path]]:
    """A session on a host with two stand-in GPUs, and the folder that its training saves to."""
    with session() as one:
        stub = Stub(build(), one.root / "scenario")
        gpus = (Gpu(uuid, minor=n, memory_bytes=GIB) for n, uuid in enumerate(GPUS))
        stub.show(Scenario(tuple(gpus)))
        os.environ.update(stub.environment)
        devices, saved = one.root / "dev", one.root / "ckpt"
        devices.mkdir()
        for name, (major, minor) in NODES.items():
            os.mknod(devices / name, 0o666 | stat.S_IFCHR, os.makedev(major, minor))
        saved.mkdir()
        saved.chmod(0o777)
        one.root.chmod(0o755)
        yield one, saved


def job_file(saved: Path, stop_signal: str, steps: int) -> str:
    """A training that tells every step."""
    train = f"exec python train.py --model mlp --steps {steps} --evaluate-every 1"
    words = f'["sh", "-c", "{train} --checkpoint-every 1000000"]'
    return f"""\
name: {JOB}
image: {IMAGE}
command: {words}
user: "0"
volumes: ["{saved}:/ckpt"]
network: none
gpus: 1
cpus: {{min: 0.5}}
target: {{metric: accuracy, deliver: 0.999, finish: 1.0}}
stop: {{signal: {stop_signal}, grace: 10s}}
checkpoint: {{signal: SIGUSR1, timeout: 60s, path: /ckpt}}
"""


def wander(stop_signal: str, count: int) -> list[Moved]:
    """So many moves of one training."""
    with host() as (one, saved):
        one.drop(JOB, job_file(saved, stop_signal, 1_000_000))
        gpus = {"injection": "nodes", "device_folder": str(one.root / "dev")}
        policy = {"stay_s": STAY_S}
        one.start("tests.nvml.wanders:Wanders", policy, more={"gpus": gpus})
        for wanted in range(1, count + 1):
            wait_for(
                lambda wanted=wanted: len(moves_in(one.reports(0))) >= wanted,
                WITHIN_S,
                f"the end of move {wanted}",
            )
        return moves_in(one.reports(0))[:count]


def row_of(way: str, moves: Sequence[Moved]) -> dict[str, object]:
    pauses_s = sorted(move.pause_s for move in moves)
    return {
        "the old container is": way,
        "moves": len(moves),
        "went back": sum(move.back for move in moves),
        _LOST: sum(move.lost_acknowledged for move in moves),
        "steps lost after it": sum(move.lost_after for move in moves),
        "steps made": max(move.made for move in moves),
        "pause, median s": round(statistics.median(pauses_s), 2),
        "least s": round(pauses_s[0], 2),
        "most s": round(pauses_s[-1], 2),
    }


def main(arguments: list[str] | None = None) -> int:
    chosen = options(__doc__, arguments, moves=(MOVES, "of each kind; fewer: not saved"))
    facts = results.engine_facts()
    rows, every = [], []
    for way, stop_signal in WAYS.items():
        print(f"== {chosen.moves} moves, the old container {way}", flush=True)
        moves = wander(stop_signal, chosen.moves)
        rows.append(row_of(way, moves))
        every += [{"way": way, **asdict(move)} for move in moves]
    lost = sum(int(str(row[_LOST])) for row in rows)
    headline = (
        f"{len(every)} moves of a real training between two stand-in GPUs (no GPU computed "
        f"anything): {lost} steps of an acknowledged checkpoint were lost (figure: 0). The pauses "
        "are those of saving, stopping, starting and importing PyTorch on the CPU."
    )
    title = "Moves of a training between two stand-in GPUs, on the real engine"
    whole = chosen.moves == MOVES
    results.finish(NAME, facts, [], every, {title: rows}, [headline], whole=whole)
    return 0
