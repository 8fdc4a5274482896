"""Threads that spin, recognised from outside: adopted containers, which dlsched did not start.

Spinners: libgomp, OpenBLAS, PyTorch and ONNX Runtime with as many threads as they choose, at a CPU
limit of 0.5, 1 and 1.5 cores, and without one beside two busy containers. Each is adopted while it
computes; the time until the alarm is the figure. Honest work: a compiler, a database under load, a
video encoder, OpenMP's OpenBLAS with a passive wait, and the project's examples, each with more
threads or processes than CPU for two minutes; the figure is that none has an alarm.

    python -m benchmarks run spinning     writes benchmarks/results/spinning.json
"""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.options import options, stage
from benchmarks.places import ROOT
from benchmarks.publish import results
from benchmarks.real.scene import stranger, typed
from benchmarks.real.threads import BUSY, LIBRARIES, LIMITS, MODELS, NAME, PROGRAMS, build_pool
from tests.stacks import environments
from tests.stacks.containers import PYTHON
from tools.base_image import BASE, ensure_base
from tools.images import ensure_all
from tools.session import Session, session, wait_for

ROUNDS = 2
"""Times that every library is tried beside busy containers: 20 cases in all."""
READY_S, RECOGNISED_S, HONEST_S = 180.0, 30.0, 120.0
"""Longest wait for first steps, and the two figures."""
SPINNER, HONEST_WORK = "spinner", "honest"
_SITE = f"/packages/lib/{PYTHON}/site-packages"
_HOST = {"/usr": "/usr", "/etc/alternatives": "/etc/alternatives"}
"""Of this host, which has the image's Debian: where its compiler, encoder and database are."""
_COMPILE = r"""
for i in $(seq 3000); do
  echo "int f$i(int a,int b){int s=0;for(int j=0;j<a;j++){s+=b*j;if(s%$((i+1))==0)s^=b;}return s;}"
done > /tmp/big.c
while :; do seq 8 | xargs -P 8 -I{} gcc -O2 -c /tmp/big.c -o /tmp/{}.o; done
"""
_ENCODE = r"""
while :; do
  ffmpeg -loglevel error -f lavfi -i testsrc2=size=1280x720:rate=30 -t 20 -c:v libx264 -threads 8 \
    -f null -
done
"""
_DATABASE = r"""
bin=/usr/lib/postgresql/15/bin
mkdir -p /tmp/db && chown nobody /tmp/db
run() { setpriv --reuid=nobody --clear-groups env HOME=/tmp PGHOST=/tmp "$@"; }
run $bin/initdb -D /tmp/db -U bench > /dev/null
run $bin/pg_ctl -D /tmp/db -o '-k /tmp -c fsync=off' -l /tmp/db.log -w start > /dev/null
run $bin/createdb -U bench bench
run $bin/pgbench -U bench -i -s 5 -q bench
while :; do run $bin/pgbench -U bench -c 8 -j 4 -T 60 bench; done
"""
_PASSIVE = """
import numpy as np
a = np.random.default_rng(1).random((700, 700), dtype=np.float32)
while True: a @ a
"""
_PACKAGES = ("python3-numpy", "libopenblas0-openmp", "libgfortran5", "libquadmath0", "libgomp1")
"""Debian's, which are unpacked, not installed: this OpenBLAS waits by OpenMP, which can sleep."""
_LIBRARIES = "/numpy/usr/lib/x86_64-linux-gnu"
_PASSIVE_ENVIRONMENT = {
    "OMP_NUM_THREADS": "2",
    "OMP_WAIT_POLICY": "passive",
    "PYTHONPATH": "/numpy/usr/lib/python3/dist-packages",
    "LD_LIBRARY_PATH": f"{_LIBRARIES}/openblas-openmp:{_LIBRARIES}",
}
PASSIVE = "numpy with a passive wait"
HONEST: Mapping[str, Sequence[str]] = {
    "gcc -j 8": ("sh", "-c", _COMPILE),
    "ffmpeg with 8 threads": ("sh", "-c", _ENCODE),
    "postgres with 8 clients": ("sh", "-c", _DATABASE),
    PASSIVE: ("python3", "-c", _PASSIVE),
}
EXAMPLES = ("digit-training", "face-unlock", "lane-detection")
"""Job files of examples/jobs that need no network."""


@dataclass(frozen=True)
class Row:
    """One container."""

    kind: str
    """`spinner` or `honest`."""
    program: str
    scene: str
    alarm_after_s: float | None = None
    """After it was adopted; None: there was no alarm."""
    text: str = ""


def alarm_of(one: Session, name: str) -> str | None:
    """What its alarm says; None: it has none."""
    found = (job.threads.spinning for job in one.client.status().jobs if job.name == name)
    return next(found, None)


@contextmanager
def container(
    one: Session, command: Sequence[str], limit: float | None, **more: Any
) -> Iterator[Any]:
    """A container that dlsched did not start, until the end."""
    if limit is not None:
        more["nano_cpus"] = int(limit * 1e9)
    name = f"spin-{secrets.token_hex(3)}"
    made = stranger(one, BASE, name, command, network_mode="none", **more)
    try:
        yield made
    finally:
        made.remove(force=True, v=True)


@contextmanager
def adopted(one: Session, name: str) -> Iterator[float]:
    """It is adopted, without a target; when that was."""
    typed(one, "adopt", name, "--weight", "1", "--config", str(one.root / "dlsched.yaml"))
    wait_for(lambda: name in {row["name"] for row in one.client.jobs()["jobs"]}, 30, "its adoption")
    try:
        yield time.monotonic()
    finally:
        typed(one, "drop", name, "--config", str(one.root / "dlsched.yaml"))


def spinner(one: Session, library: str, scene: str, limit: float | None) -> Row:
    """How soon that library is recognised at that limit."""
    counts = one.root / f"counts-{secrets.token_hex(3)}"
    counts.write_bytes(bytes(16))
    python = ["python3", "/programs/pool.py"]
    command = [*(["/pool"] if library == "libgomp" else python), "/counts", library]
    places = {
        environments.folder(NAME).resolve(): "/packages",
        PROGRAMS: "/programs",
        MODELS: "/models",
        one.root / "pool": "/pool",
    }
    binds = [*(f"{here}:{there}:ro" for here, there in places.items()), f"{counts}:/counts"]
    more = {"volumes": binds, "environment": {"PYTHONPATH": _SITE}}
    with container(one, command, limit, **more) as made:
        wait_for(lambda: counts.read_bytes()[0] > 2, READY_S, f"{library}'s first steps")
        with adopted(one, made.name) as began_s:
            return _watched(one, made.name, Row(SPINNER, library, scene), began_s, 2 * RECOGNISED_S)


def unpacked(folder: Path) -> Path:
    """Debian's numpy in that folder."""
    folder.mkdir()
    subprocess.run(["apt-get", "download", "-q", *_PACKAGES], cwd=folder, check=True)
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, folder], check=True)
    return folder


@contextmanager
def busy(one: Session) -> Iterator[None]:
    """Two containers that use a core each."""
    loop = ["sh", "-c", "while :; do :; done"]
    with container(one, loop, None), container(one, loop, None):
        yield


def honest(one: Session, program: str, seconds: float) -> Row:
    """Whether that program has an alarm within that time, at a limit of one core."""
    binds = [f"{here}:{there}:ro" for here, there in _HOST.items()]
    more: dict[str, Any] = {"volumes": binds}
    if program == PASSIVE:
        binds = [f"{unpacked(one.root / 'numpy')}:/numpy:ro"]
        more = {"volumes": binds, "environment": _PASSIVE_ENVIRONMENT}
    with container(one, HONEST[program], 1.0, **more) as made:
        with adopted(one, made.name) as began_s:
            row = _watched(one, made.name, Row(HONEST_WORK, program, "limit 1"), began_s, seconds)
        made.reload()
        if made.status != "running":
            raise RuntimeError(f"{program} has ended: {made.logs(tail=5)!r}")
    return row


def example(one: Session, name: str, seconds: float) -> Row:
    """The same of a job file of the project's examples."""
    one.drop(name, (ROOT / "examples" / "jobs" / f"{name}.yaml").read_text())
    try:
        began = lambda: name in {row["name"] for row in one.client.jobs()["jobs"]}  # noqa: E731
        wait_for(began, 60, name)
        wait_for(lambda: one.running() > 0, READY_S, name, one.why_not_running)
        row = Row(HONEST_WORK, name, "its job file")
        return _watched(one, name, row, time.monotonic(), seconds)
    finally:
        (one.watch / f"{name}.yaml").unlink()
        wait_for(lambda: one.running() == 0, 60, f"the end of {name}")


def _watched(one: Session, name: str, row: Row, began_s: float, seconds: float) -> Row:
    with suppress(AssertionError):  # its row says that there was none
        wait_for(lambda: alarm_of(one, name) is not None, seconds, "an alarm")
    if (text := alarm_of(one, name)) is not None:
        after_s = round(time.monotonic() - began_s, 1)
        row = replace(row, alarm_after_s=after_s, text=text)
    print(row, flush=True)
    return row


def table(rows: Sequence[Row]) -> list[dict[str, object]]:
    """A line a program and scene."""
    lines: list[dict[str, object]] = []
    for (program, scene), found in results.grouped(
        rows, lambda row: (row.program, row.scene)
    ).items():
        times = [row.alarm_after_s for row in found]
        known = [after_s for after_s in times if after_s is not None]
        lines.append(
            {
                "program": program,
                "where": scene,
                "tried": len(found),
                "alarms": len(known),
                "latest, s": round(max(known)) if known else None,
            }
        )
    return lines


def headlines(rows: Sequence[Row]) -> list[str]:
    """The two figures."""
    spinners = [row for row in rows if row.kind == SPINNER]
    others = [row for row in rows if row.kind != SPINNER]
    soon = [row for row in spinners if (row.alarm_after_s or 1e9) <= RECOGNISED_S]
    false = [row for row in others if row.alarm_after_s is not None]
    recognised = (
        f"Threads that spin in adopted containers are recognised within {RECOGNISED_S:g} s in "
        f"{len(soon)} of {len(spinners)}: {results.verdict(len(soon) == len(spinners))}"
    )
    honest = f"Alarms in two minutes each of honest work: {len(false)} of {len(others)} programs"
    return [recognised, f"{honest}: {results.verdict(not false)}"]


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = options(
        __doc__,
        arguments,
        rounds=(ROUNDS, "beside busy containers; fewer: not saved"),
        seconds=(HONEST_S, "of each honest program; fewer: not saved"),
        only=(str, "programs by comma; not saved"),
    )
    environments.ensure(NAME)
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    ensure_base(host)
    wanted = set((chosen.only or "").split(",")) - {""}

    def asked(programs: Iterable[str]) -> list[str]:
        return [one for one in programs if not wanted or one in wanted]

    rows: list[Row] = []
    with session() as one:
        build_pool(one.root)
        one.start("adaptive")
        for limit in LIMITS:
            stage(scene := f"limit {limit:g}")
            rows += [spinner(one, library, scene, limit) for library in asked(LIBRARIES)]
        stage(BUSY)
        with busy(one):
            for _ in range(chosen.rounds):
                rows += [spinner(one, library, BUSY, None) for library in asked(LIBRARIES)]
        stage("honest work")
        rows += [honest(one, program, chosen.seconds) for program in asked(HONEST)]
        if examples := asked(EXAMPLES):
            ensure_all(host, ("inference", "training"))
        rows += [example(one, name, chosen.seconds) for name in examples]
        version = str(one.engine.version()["Version"])
    title = "Alarms for threads that spin"
    whole = chosen.rounds >= ROUNDS and chosen.seconds >= HONEST_S and not wanted
    results.finish(
        "spinning", version, [], rows, {title: table(rows)}, headlines(rows), whole=whole
    )
    return 0
