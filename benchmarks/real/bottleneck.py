"""The bottleneck of services that miss their target: planted causes, and what dlsched names.

Each scene is a small server in a container that is slow for one cause, and its clients. It is
adopted with a target that it misses. dlsched runs with policy `none`, so that the cause stays. A
scene is right if its cause, and no other one, is named within a minute and still named at the end.
Disks are slowed down by the engine's limit on operations a second.

    python -m benchmarks run bottleneck     writes benchmarks/results/bottleneck.json
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import psutil

from benchmarks.options import options, stage
from benchmarks.publish import results
from benchmarks.real.scene import SPIN, stranger, takes, told_if_it_fails, typed
from dlsched.model.bottleneck import Cause
from tools.base_image import BASE, ensure_base
from tools.session import Session, session, wait_for

NAME = "bottleneck"
PROGRAMS = Path(__file__).parent / "programs"
PROGRAM, SPIN_SOURCE = PROGRAMS / "planted.py", PROGRAMS / "spin.c"
NAMED_S, KEPT_S = 60.0, 15.0
"""The longest time until a name is expected, and for how long it is then watched."""
POLL_S = 1.0
LISTENS_S = 60.0
RIGHT_OF_21 = 19
"""Figure."""
IDLE_CORES, IDLE_OVER_S = 1.2, 5.0
"""Of the host, before a whole run."""


@dataclass(frozen=True)
class Scene:
    """A server with a planted cause."""

    cause: Cause
    words: str
    kind: str
    answer: tuple[str, ...]
    clients: int = 8
    rate_per_s: float = 0.0
    """0: each client asks again when it is answered."""
    target_ms: int = 10
    callee: tuple[str, ...] = ()
    """Kind and answer of the server that it calls."""
    reads_per_s: int = 0
    """Operations on the disk that its container may have; 0: no limit."""
    writes_per_s: int = 0
    busy: int = 0
    """Neighbours with two busy processes each."""
    limits: Mapping[str, Any] = field(default_factory=dict)
    """Of its container, as the engine's library takes them."""


_SMALL = {"mem_limit": "48m", "memswap_limit": "48m"}
SCENES = (
    Scene(Cause.DISK, "fsync for each request", "threads", ("fsync",), writes_per_s=60),
    Scene(Cause.DISK, "synchronous writes", "threads", ("synced_writes",), writes_per_s=60),
    Scene(Cause.DISK, "direct reads", "async", ("direct_reads",), reads_per_s=60),
    Scene(Cause.LOCK, "a lock held over a sleep", "threads", ("lock_and_sleep", "0.02")),
    Scene(Cause.LOCK, "the same, open loop", "threads", ("lock_and_sleep", "0.02"), 12, 60.0),
    Scene(Cause.LOCK, "a file lock of four processes", "4", ("file_lock", "0.02")),
    Scene(Cause.CALLEE, "a slow callee", "threads", ("call",), callee=("threads", "sleep", "0.1")),
    Scene(Cause.CALLEE, "one worker", "one", ("call",), 1, callee=("threads", "sleep", "0.05")),
    Scene(Cause.CALLEE, "open loop", "async", ("call",), 32, 40.0, callee=("4", "sleep", "0.1")),
    Scene(
        *(Cause.MEMORY, "a mapped file", "threads", ("mapped_pages", "20"), 4),
        reads_per_s=300,
        limits=_SMALL,
    ),
    Scene(
        *(Cause.MEMORY, "a file that is read", "async", ("read_pages", "20"), 4),
        reads_per_s=300,
        limits=_SMALL,
    ),
    Scene(
        *(Cause.MEMORY, "a file that is scanned", "threads", ("scan", "4"), 4),
        reads_per_s=300,
        limits=_SMALL,
    ),
    Scene(Cause.TRAFFIC, "one thread that computes", "threads", ("cpu", "0.02"), 32, 70.0),
    Scene(Cause.TRAFFIC, "a pool in one interpreter", "async", ("cpu", "0.02"), 32, 70.0),
    Scene(Cause.TRAFFIC, "more than all cores", "2", ("cpu", "0.03"), 32, 120.0),
    Scene(
        *(Cause.THREADS, "four threads on one core", "threads", ("spin", "4"), 2),
        limits={"nano_cpus": 1_000_000_000},
    ),
    Scene(
        *(Cause.THREADS, "two threads on half a core", "async", ("spin", "2"), 2),
        limits={"nano_cpus": 500_000_000},
    ),
    Scene(Cause.THREADS, "busy neighbours", "threads", ("spin", "2"), 2, busy=2),
    Scene(
        Cause.CPU, "its own limit", "threads", ("cpu", "0.01"), 4, limits={"nano_cpus": 300_000_000}
    ),
    Scene(Cause.CPU, "busy neighbours", "threads", ("cpu", "0.01"), 1, busy=3),
    Scene(Cause.CPU, "two processes, busy neighbours", "2", ("cpu", "0.02"), 2, 20.0, busy=3),
)


@dataclass(frozen=True)
class Row:
    """What was named in one scene."""

    planted: str
    scene: str
    named: str
    """At the end; none: nothing was."""
    others: str
    """What else was named meanwhile."""
    after_s: float | None
    """From the adoption to the planted name."""
    text: str

    @property
    def right(self) -> bool:
        return self.named == self.planted and not self.others


def server(one: Session, name: str, words: Sequence[str], **more: Any) -> tuple[Any, int]:
    """A server in a container that dlsched did not start, and its port."""
    port = next(_PORTS)
    data = one.root / name
    data.mkdir(exist_ok=True)
    kind, *answer = words
    if answer[0] == "spin":
        build = ["gcc", "-O2", "-fopenmp", "-static", str(SPIN_SOURCE)]
        subprocess.run([*build, "-o", str(data / "spin")], check=True)
    container = stranger(
        one,
        BASE,
        name,
        ["python3", "/planted.py", "serve", kind, str(port), *answer],
        network_mode="host",
        volumes=[f"{PROGRAM}:/planted.py:ro", f"{data}:/data"],
        **more,
    )

    def why_not() -> str:
        return str(container.logs(tail=5).decode(errors="replace"))

    wait_for(partial(takes, f"127.0.0.1:{port}"), LISTENS_S, name, why_not)
    return container, port


_PORTS = count(18_000 + os.getpid() % 1000 * 20)


def disk_of(path: Path) -> str:
    """The device that this folder is on."""
    number = path.stat().st_dev
    text = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/uevent").read_text()
    return "/dev/" + dict(line.split("=", 1) for line in text.splitlines())["DEVNAME"]


def run(one: Session, scene: Scene, number: int) -> Row:
    """Plant a cause, and watch what is named."""
    name, made, asking = f"planted-{number}", [], None
    limits = dict(scene.limits)
    for way, rate in (("read", scene.reads_per_s), ("write", scene.writes_per_s)):
        if rate:
            limits[f"device_{way}_iops"] = [{"Path": disk_of(one.root), "Rate": rate}]
    try:
        words = scene.answer
        if scene.callee:
            container, port = server(one, f"{name}-callee", scene.callee)
            made.append(container)
            words = (*words, str(port))
            typed(one, *_adopt(one, f"{name}-callee", 10_000))
        container, port = server(one, name, (scene.kind, *words), **limits)
        made.append(container)
        made += [
            stranger(one, BASE, f"{name}-busy-{each}", SPIN, network_mode="none")
            for each in range(scene.busy)
        ]
        client = [sys.executable, str(PROGRAM), "ask", str(port), str(scene.clients)]
        asking = subprocess.Popen([*client, str(scene.rate_per_s)])
        typed(one, *_adopt(one, name, scene.target_ms))
        return watch(one, scene, name)
    finally:
        if asking is not None:
            asking.kill()
            asking.wait()
        for container in made:
            with contextlib.suppress(Exception):
                container.remove(force=True)
        (one.root / name / "large").unlink(missing_ok=True)


def _adopt(one: Session, name: str, target_ms: int) -> list[str]:
    words = ["adopt", name, "--latency", f"{target_ms}ms", "--quantile", "p95"]
    return [*words, "--run-dir", str(one.root / "run")]


def watch(one: Session, scene: Scene, name: str) -> Row:
    """Poll the status until the planted cause is named, and some time more."""
    began_s, named_s, texts, last = time.monotonic(), None, dict[str, str](), ""
    while True:
        now_s = time.monotonic() - began_s
        found = [row for row in one.client.jobs()["jobs"] if row["name"] == name]
        bottleneck = found[0]["bottleneck"] if found else None
        last = "" if bottleneck is None else bottleneck["cause"]
        if bottleneck is not None:
            texts[last] = bottleneck["text"]
            if last == scene.cause and named_s is None:
                named_s = now_s
        if now_s > (NAMED_S if named_s is None else named_s + KEPT_S):
            break
        time.sleep(POLL_S)
    planted = str(scene.cause)
    others = sorted(texts.keys() - {planted, str(Cause.NOT_KNOWN)})
    after_s = None if named_s is None else round(named_s, 1)
    return Row(
        planted, scene.words, last or "none", ", ".join(others), after_s, texts.get(last, "")
    )


def _idle_cores() -> float:
    """Idle CPU of the host now."""
    return sum(100.0 - used for used in psutil.cpu_percent(IDLE_OVER_S, percpu=True)) / 100.0


def headlines(rows: Sequence[Row]) -> list[str]:
    right = sum(row.right for row in rows)
    falsely = [
        row.scene
        for row in rows
        if row.planted != Cause.CPU and Cause.CPU in (row.named, *row.others.split(", "))
    ]
    causes = len({row.planted for row in rows})
    reached = right >= RIGHT_OF_21 and not falsely
    return [
        (
            f"The bottleneck of a missed target, {causes} planted causes on real containers: "
            f"{right} of {len(rows)} named rightly (asked: {RIGHT_OF_21} of 21), CPU named for "
            f"another cause in {len(falsely)}: {results.verdict(reached)}"
        )
    ]


def table(rows: Sequence[Row]) -> list[dict[str, object]]:
    return [
        {
            "planted": row.planted,
            "scene": row.scene,
            "named": ", then ".join(one for one in (row.others, row.named) if one),
            "after, s": row.after_s if row.after_s is not None else "-",
        }
        for row in rows
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = options(
        __doc__, arguments, scene=("", "only those whose cause or words hold this; not saved")
    )
    scenes = [one for one in SCENES if chosen.scene in f"{one.cause}: {one.words}"]

    def measure() -> None:
        idle_cores = _idle_cores()
        if len(scenes) == len(SCENES) and idle_cores < IDLE_CORES:
            raise RuntimeError(
                f"{idle_cores:.2f} cores of the host are idle, {IDLE_CORES:g} are needed: where "
                "others use the CPU, no other cause is the only one"
            )
        ensure_base(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"))
        rows = []
        with session() as one:
            one.start("none")
            for number, scene in enumerate(scenes, 1):
                stage(f"{scene.cause}: {scene.words}")
                rows.append(run(one, scene, number))
                print(f"named {rows[-1].named} after {rows[-1].after_s} s: {rows[-1].text}")
            version = str(one.engine.version()["Version"])
        whole = len(scenes) == len(SCENES)
        title = "What is named, and after how long"
        results.finish(NAME, version, [], rows, {title: table(rows)}, headlines(rows), whole=whole)

    return told_if_it_fails(NAME, measure)
