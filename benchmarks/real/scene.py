"""What benches on containers do alike: containers without dlsched, commands, clients, ports."""

from __future__ import annotations

import math
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any

from docker.errors import ImageNotFound

from benchmarks.options import end_on_terminate
from benchmarks.places import ROOT
from dlsched.runtime.cgroup.read import CgroupReader, CgroupReading
from tools.session import STRANGER, Process, Session, launch, undivided

CLIENT = ROOT / "examples" / "images" / "inference"
"""Where the client of the example is run."""
SPIN = ("sh", "-c", "while :; do :; done & while :; do :; done")
"""Two busy processes."""
COMMAND_WITHIN_S = 60.0


def stranger(one: Session, image: str, name: str, command: Sequence[str], **more: Any) -> Any:
    """A running container that dlsched did not start; it ends with the session."""
    with undivided():  # else one may be made that is not removed
        return one.engine.containers.run(
            image,
            list(command),
            name=name,
            detach=True,
            cgroup_parent=one.cgroup_parent or None,
            labels={STRANGER: one.instance},
            **more,
        )


def kernel_reading(container: Any) -> CgroupReading:
    reader = CgroupReader(container.attrs["State"]["Pid"], container=container.id)
    try:
        return reader.read()
    finally:
        reader.close()


def typed(
    one: Session,
    *words: str,
    wait: Callable[[Process], object] = lambda command: command.wait(COMMAND_WITHIN_S),
) -> list[str]:
    """What a command prints, as a user types it; it is shown, too. Raises RuntimeError when it
    fails."""
    print(f"$ dlsched {' '.join(words)}", flush=True)
    with (one.root / "command.log").open("w+b") as log:
        command = launch(words, log)
        try:
            wait(command)
        finally:
            command.kill()
            command.wait()
        log.seek(0)
        lines = log.read().decode(errors="replace").splitlines()
    for line in lines:
        print(f"  {line}", flush=True)
    if command.returncode:
        raise RuntimeError(f"dlsched {words[0]} ended with {command.returncode}: {lines[-1:]}")
    return lines


def asking(address: str, rate_per_s: float, images: int, seed: int, seconds: float) -> list[str]:
    """The command of the example's client, to be run in `CLIENT`."""
    return [
        *(sys.executable, "client.py", address, "--rate", str(rate_per_s)),
        *("--count", str(images), "--seed", str(seed), "--seconds", str(seconds)),
        *("--in-flight", "256"),
    ]


def takes(address: str) -> bool:
    """Whether something listens there."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 1.0).close()
    except OSError:
        return False
    return True


def quantile(ordered: Sequence[float], part: float) -> float:
    """That quantile of ordered values; infinite where there is none."""
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)] if ordered else math.inf


def ms(seconds: float | None) -> float | None:
    """As rows have it; None: never."""
    return None if seconds is None or math.isinf(seconds) else round(1000 * seconds, 1)


def told_if_it_fails(name: str, run: Callable[[], object]) -> int:
    """Run it; the exit code. What ends it early is printed in one line, and leaves no container."""
    end_on_terminate()
    try:
        run()
    except KeyboardInterrupt:
        print("interrupted; this run's containers are removed, whole runs are kept")
        return 130
    except ImageNotFound as error:
        print(f"{name}: {error.explanation}: run it through `.venv/bin/python -m tools.images --`")
        return 1
    except (AssertionError, RuntimeError) as error:
        print(f"{name}: {error}")
        return 1
    return 0
