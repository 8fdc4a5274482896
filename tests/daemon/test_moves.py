"""The whole daemon moves a job to another GPU: stand-ins for driver and devices, the real engine.

The job saves itself in a folder of the host, whose log tells what it did, whatever became of its
containers.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.forked import command
from tests.daemon.test_daemon import containers, goes_on, reaches, row, spec
from tests.daemon.test_gpus import A, B, Host, held, host, on, placed
from tests.nvml.scenario import GPU_IS_LOST, Failure
from tests.runtime.docker.moves.test_moves_engine import SAVES, TRAINS
from tools.session import wait_for

__all__ = ["host"]

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.engine,
    pytest.mark.skipif(os.geteuid() != 0, reason="device nodes can only be made by root"),
]


@pytest.fixture
def saved(host: Host) -> Iterator[Path]:
    """Where the job saves itself."""
    folder = host.node.root / "ckpt"
    folder.mkdir()
    folder.chmod(0o777)
    host.node.root.chmod(0o755)
    yield folder


def trains(saved: Path, gpus: str, at_start: str = "", **keys: str) -> str:
    """A job file of the name `trains`."""
    code = TRAINS.replace("{when_asked}", SAVES).replace("{at_start}", at_start)
    command = json.dumps(["python3", "-c", code.replace("{at_end}", "")])
    usual = {
        "gpus": gpus,
        "volumes": f'["{saved}:/ckpt"]',
        "checkpoint": "{signal: SIGUSR1, timeout: 30s, path: /ckpt}",
        "target": "{metric: accuracy, deliver: 0.4, finish: 0.9}",
        "stop": "{grace: 5s}",
    }
    return spec("trains", command, **usual | keys)


def log_of(saved: Path) -> list[tuple[str, int]]:
    if not (saved / "log").exists():  # a container runs before its program has said a word
        return []
    words = (line.split() for line in (saved / "log").read_text().splitlines())
    return [(word, int(step)) for word, step in words]


def states(host: Host) -> dict[str, str]:
    """Of the containers, by job."""
    return {
        one.name.partition(f"{host.node.instance}-")[2]: one.status for one in containers(host.node)
    }


def lost_nothing(saved: Path) -> None:
    """Each start went on from what was saved last."""
    last = 0
    for word, step in log_of(saved):
        if word == "saved":
            last = step
        elif word == "begins":
            assert step == last


def steps_on(saved: Path) -> bool:
    """Whether it makes steps."""
    count = len(log_of(saved))
    wait_for(lambda: len(log_of(saved)) > count, 30, "another step")
    return True


def test_off_a_lost_gpu_it_goes_on_with_what_it_had_reached(host: Host, saved: Path):
    host.start(on_loss="move")
    host.node.drop("trains", trains(saved, "{count: 1, share: 0.5}"))
    first = reaches(host.node, "trains", "running")["container"]
    wait_for(lambda: row(host.node, "trains")["tiers"]["delivered"], 30, "its delivery")
    before, (lost,) = len(log_of(saved)), held(host, "trains")

    host.show(Failure("*", GPU_IS_LOST, lost))
    wait_for(lambda: row(host.node, "trains")["container"] not in (None, first), 60, "a new one")
    after = reaches(host.node, "trains", "running")
    wait_for(lambda: states(host) == {"trains": "running"}, 30, "the old one to be gone")
    assert {lost, *held(host, "trains")} == {A, B}
    assert after["tiers"]["delivered"]
    lost_nothing(saved)
    assert "saved" in [word for word, _ in log_of(saved)[before:]]


HANGS = """
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
step = 7
open(saved, "w").write("7")
note("saved", 7)
tell(checkpoint={"step": 7, "path": saved})
"""


def test_one_that_hangs_on_a_lost_gpu_goes_on_from_what_it_had_saved(host: Host, saved: Path):
    host.start(on_loss="move")
    checkpoint = "{signal: SIGUSR1, timeout: 2s, path: /ckpt}"
    half = "{count: 1, share: 0.5}"
    host.node.drop("trains", trains(saved, half, HANGS, checkpoint=checkpoint))
    reaches(host.node, "trains", "running")
    wait_for(lambda: ("saved", 7) in log_of(saved), 30, "the checkpoint")
    goes_on(host.node, 3)  # and the checkpoint is read
    host.show(Failure("*", GPU_IS_LOST, B))
    wait_for(lambda: placed(host) == [A], 60, "the move")
    wait_for(lambda: ("begins", 7) in log_of(saved), 30, "it to go on")


def test_it_makes_room_for_one_that_fits_nowhere_else_where_moves_are_allowed(
    host: Host, saved: Path
):
    host.start(move=False)
    host.node.drop("trains", trains(saved, "{count: 1, share: 0.5, memory: 4GiB}"))
    reaches(host.node, "trains", "running")
    wait_for((saved / "log").exists, 30, "its first steps")
    model = "A100" if held(host, "trains") == [A] else "T4"
    host.node.drop("alone", on("alone", f"{{count: 1, model: {model}}}"))
    reaches(host.node, "alone", "waiting")
    goes_on(host.node, 4)
    assert row(host.node, "alone")["state"] == "waiting"

    host.reload(move=True)
    reaches(host.node, "alone", "running", 60.0)
    both = {"alone": "running", "trains": "running"}
    wait_for(lambda: states(host) == both, 30, "the old one to be gone")
    assert {held(host, "trains")[0], held(host, "alone")[0]} == {A, B}
    lost_nothing(saved)
    assert "makes room for alone" in " ".join(command(host.node, "why", "trains").stdout.split())


def wanders(host: Host, saved: Path) -> None:
    """Under a policy that moves it again and again, it is on its way."""
    settings = {"injection": "nodes", "device_folder": str(host.folder)}
    policy = "tests.nvml.wanders:Wanders"
    host.node.start(policy, {"stay_s": 0.5}, more={"gpus": settings, "period": "100ms"})
    host.node.drop("trains", trains(saved, "1", restart="unless-stopped"))
    wait_for(lambda: row(host.node, "trains")["state"] == "moving", 30, "a move")


@pytest.mark.parametrize("after_s", [0.0, 0.2, 0.4, 0.6, 0.8, 1.1])
def test_kill_9_in_the_middle_leaves_one_that_goes_on(host: Host, saved: Path, after_s: float):
    wanders(host, saved)
    time.sleep(after_s)
    host.node.kill()
    host.start()
    reaches(host.node, "trains", "running", 60.0)
    wait_for(lambda: states(host) == {"trains": "running"}, 30, "one container")
    assert steps_on(saved)
    lost_nothing(saved)


@pytest.mark.parametrize("after_s", [0.0, 0.5])
def test_the_daemons_end_in_the_middle_leaves_one_that_runs(
    host: Host, saved: Path, after_s: float
):
    wanders(host, saved)
    time.sleep(after_s)
    host.node.stop()
    assert list(states(host).values()).count("running") == 1
    assert steps_on(saved)
    lost_nothing(saved)


@pytest.mark.parametrize("how", ["stop", "file"])
@pytest.mark.parametrize("after_s", [0.0, 0.5])
def test_who_wants_it_gone_gets_it_gone(host: Host, saved: Path, how: str, after_s: float):
    wanders(host, saved)
    time.sleep(after_s)
    if how == "stop":
        assert command(host.node, "stop", "trains").returncode == 0
    else:
        (host.node.watch / "trains.yaml").unlink()
    reaches(host.node, "trains", "stopped" if how == "stop" else "absent", 60.0)
    wait_for(lambda: states(host) == {}, 30, "nothing to be left over")
