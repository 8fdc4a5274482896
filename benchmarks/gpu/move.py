"""Moves of a training between two GPUs that are none: what is lost, how long it pauses.

The daemon is whole and the engine real: a policy of the bench's own decides every move, and a real
training saves itself, is stopped and goes on in a new container. The GPUs are stand-ins: a driver
that tells of two, and device nodes that nothing computes on. So the times are those of saving,
stopping, starting and importing PyTorch on the CPU, and say nothing of a GPU's own memory.

Owns the run and its figures. Needs root (device nodes) and a C compiler (the driver's stand-in).
"""

from __future__ import annotations

import os
import re
import stat
import statistics
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.options import options
from benchmarks.publish import results
from dlsched.model.actions import Move
from dlsched.model.cycle import CycleReport
from dlsched.model.decision import Decision, PolicyMemory
from dlsched.model.state import JobState, Snapshot
from tests.nvml.library import Stub, build
from tests.nvml.scenario import GIB, Gpu, Scenario
from tools.session import Session, session, wait_for

NAME = "gpu-move"
IMAGE = "dlsched-examples/training"
MOVES, FAILURES = 20, 5
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
_FAILS = "told to end; the new one fails"
_LOST = "steps lost of an acknowledged checkpoint"
_RESUMED = re.compile(r"resuming at step (\d+)")
_BREAKS = "if [ -e /ckpt/broken ] && [ -e /dev/nvidia1 ]; then exit 9; fi; "


@dataclass(frozen=True, slots=True)
class WandersParameters:
    """How long it stays."""

    stay_s: float = STAY_S


class Wanders:
    """Every job goes to another GPU as soon as it has reported and stayed for a while."""

    Parameters = WandersParameters
    Memory = PolicyMemory
    reserves = False
    heeds_progress = False

    def __init__(self, parameters: WandersParameters) -> None:
        self.parameters = parameters

    def decide(self, snapshot: Snapshot, memory: object) -> Decision:
        """To the first that it is not on."""
        gpus: dict[str, tuple[str, ...]] = {}
        for job in snapshot.running:
            began_s, told_s = job.started_at_s or 0.0, job.progress.as_of_s or 0.0
            if told_s > began_s and snapshot.now_s >= began_s + self.parameters.stay_s:
                others = (gpu.uuid for gpu in snapshot.node.gpus if gpu.uuid not in job.gpus)
                gpus[job.name] = tuple(others)[:1]
        return Decision(limits={}, why=dict.fromkeys(gpus, "it wanders"), gpus=gpus)


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


@dataclass(slots=True)
class Output:
    """What all containers of a session have written, by the engine's time stamps."""

    lines: list[tuple[str, str]] = field(default_factory=list)

    def follow(self, one: Session) -> None:
        """Take in what every container that starts from now on writes."""
        wanted = {"label": f"dlsched.instance={one.instance}", "event": "start"}
        starts = one.engine.events(decode=True, filters=wanted)

        def listen() -> None:
            for event in starts:
                name = f"output-{event['id'][:12]}"
                since_s = event["timeNano"] / 1e9 - 0.5
                args = (one, str(event["id"]), since_s)
                threading.Thread(target=self._read, args=args, name=name, daemon=True).start()

        threading.Thread(target=listen, name="starts", daemon=True).start()

    def _read(self, one: Session, container: str, since_s: float) -> None:
        stream = one.engine.api.logs(
            container, stream=True, follow=True, timestamps=True, since=since_s
        )
        rest = b""
        for chunk in stream:
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                stamp, _, text = line.decode(errors="replace").partition(" ")
                self.lines.append((stamp[:23], text))

    def has_resumed(self, times: int) -> bool:
        """Whether it went on from a checkpoint so often; a move that fails ends so, too."""
        return sum(_RESUMED.search(text) is not None for _, text in self.lines) >= times

    def resumed(self, since: str) -> tuple[str, int] | None:
        """When after that it resumed from a checkpoint first, and from which step."""
        for stamp, text in sorted(self.lines):
            found = _RESUMED.search(text)
            if found is not None and stamp > since:
                return stamp, int(found[1])
        return None

    def made(self, until: str) -> int:
        """The last step that it had made by then."""
        by = [text for stamp, text in self.lines if stamp < until]
        told = (re.match(r"(?:step|stopped after step) (\d+)", text) for text in by)
        return max((int(found[1]) for found in told if found is not None), default=0)


def moves_in(reports: Iterable[CycleReport], output: Output) -> list[Moved]:
    """The moves that a journal tells of from beginning to end."""
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
        later = [
            (seen, job)
            for seen, job in views[index:]
            if job.state is JobState.RUNNING and (job.started_at_s or 0.0) > begun_s
        ]
        first_s = next(
            (
                job.progress.as_of_s
                for _, job in later
                if (job.progress.as_of_s or 0.0) > (job.started_at_s or 0.0)
            ),
            None,
        )
        resumed = output.resumed(_stamp(report))
        if first_s is None or resumed is None:
            continue
        acknowledged = [
            job.progress.checkpoint.step
            for seen, job in views
            if job.progress.checkpoint is not None and _stamp(seen) < resumed[0]
        ]
        moves.append(
            Moved(
                begun_s=begun_s,
                back=later[0][1].container_id == old.container_id,
                pause_s=first_s - begun_s,
                acknowledged=max(acknowledged, default=0),
                made=output.made(resumed[0]),
                resumed=resumed[1],
            )
        )
    return moves


def _stamp(report: CycleReport) -> str:
    """In the form of the engine's."""
    return report.wall_time[:23]


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
    words = f'["sh", "-c", "{_BREAKS}{train} --checkpoint-every 1000000"]'
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


def wander(stop_signal: str, count: int, *, broken: bool = False) -> list[Moved]:
    """So many moves of one training; `broken`: it does not come back from the second GPU."""
    with host() as (one, saved):
        output = Output()
        output.follow(one)
        if broken:
            (saved / "broken").touch()
        one.drop(JOB, job_file(saved, stop_signal, 1_000_000))
        gpus = {"injection": "nodes", "device_folder": str(one.root / "dev")}
        policy = {"stay_s": STAY_S}
        one.start("benchmarks.gpu.move:Wanders", policy, more={"gpus": gpus})
        for wanted in range(1, count + 1):
            if broken and wanted > 1:
                # It would not be tried again for a while, but by an agent that knows nothing.
                one.stop()
                one.start("benchmarks.gpu.move:Wanders", policy, more={"gpus": gpus})
            wait_for(partial(output.has_resumed, wanted), WITHIN_S, f"the end of move {wanted}")
        wait_for(lambda: len(moves_in(one.reports(0), output)) >= count, WITHIN_S, "all reports")
        return moves_in(one.reports(0), output)[:count]


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
    options(__doc__, arguments)
    facts = results.engine_facts()
    rows, every = [], []
    ways = [(way, stop_signal, MOVES, False) for way, stop_signal in WAYS.items()]
    for way, stop_signal, count, broken in (*ways, (_FAILS, "SIGTERM", FAILURES, True)):
        print(f"== {count} moves, the old container {way}", flush=True)
        moves = wander(stop_signal, count, broken=broken)
        rows.append(row_of(way, moves))
        every += [{"way": way, **asdict(move)} for move in moves]
    lost = sum(int(str(row[_LOST])) for row in rows)
    headline = (
        f"{len(every)} moves of a real training between two stand-in GPUs (no GPU computed "
        f"anything): {lost} steps of an acknowledged checkpoint were lost (figure: 0). The pauses "
        "are those of saving, stopping, starting and importing PyTorch on the CPU."
    )
    title = "Moves of a training between two stand-in GPUs, on the real engine"
    results.finish(NAME, facts, [], every, {title: rows}, [headline])
    return 0
