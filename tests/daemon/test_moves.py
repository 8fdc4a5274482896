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
from tests.daemon.test_daemon import reaches, row
from tests.daemon.test_gpus import A, B, Host, held, host, on
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


def trains(saved: Path, gpus: str, **keys: str) -> str:
    """A job file of the name `trains`."""
    code = TRAINS.replace("{when_asked}", SAVES).replace("{at_start}", "")
    text = on(
        "trains",
        gpus,
        volumes=f'["{saved}:/ckpt"]',
        checkpoint="{signal: SIGUSR1, timeout: 30s, path: /ckpt}",
        target="{metric: accuracy, deliver: 0.4, finish: 0.9}",
        **{"stop": "{grace: 5s}", **keys},
    )
    lines = text.splitlines()
    lines[2] = "command: " + json.dumps(["python3", "-c", code])
    return "\n".join(lines) + "\n"


def log_of(saved: Path) -> list[tuple[str, int]]:
    if not (saved / "log").exists():  # a container runs before its program has said a word
        return []
    words = (line.split() for line in (saved / "log").read_text().splitlines())
    return [(word, int(step)) for word, step in words]


def containers(host: Host) -> dict[str, str]:
    label = f"dlsched.instance={host.node.instance}"
    listed = host.node.engine.api.containers(all=True, filters={"label": label})
    return {one["Names"][0].partition(f"{host.node.instance}-")[2]: one["State"] for one in listed}


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
    wait_for(lambda: containers(host) == {"trains": "running"}, 30, "the old one to be gone")
    assert {lost, *held(host, "trains")} == {A, B}
    assert after["tiers"]["delivered"]
    lost_nothing(saved)
    assert "saved" in [word for word, _ in log_of(saved)[before:]]
    told = " ".join(command(host.node, "why", "trains").stdout.split())
    assert "moving" in told


def test_it_makes_room_for_one_that_fits_nowhere_else(host: Host, saved: Path):
    host.start()
    host.node.drop("trains", trains(saved, "{count: 1, share: 0.5, memory: 4GiB}"))
    reaches(host.node, "trains", "running")
    held(host, "trains")
    wait_for((saved / "log").exists, 30, "its first steps")
    model = "A100" if held(host, "trains") == [A] else "T4"
    host.node.drop("alone", on("alone", f"{{count: 1, model: {model}}}"))
    reaches(host.node, "alone", "running", 60.0)
    reaches(host.node, "trains", "running")
    both = {"alone": "running", "trains": "running"}
    wait_for(lambda: containers(host) == both, 30, "the old one to be gone")
    assert {held(host, "trains")[0], held(host, "alone")[0]} == {A, B}
    lost_nothing(saved)


def wanders(host: Host, saved: Path) -> None:
    """Under a policy that moves it again and again, it is on its way."""
    settings = {"injection": "nodes", "device_folder": str(host.folder)}
    policy = "benchmarks.gpu.move:Wanders"
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
    wait_for(lambda: containers(host) == {"trains": "running"}, 30, "one container")
    assert steps_on(saved)
    lost_nothing(saved)


@pytest.mark.parametrize("after_s", [0.0, 0.5])
def test_the_daemons_end_in_the_middle_leaves_one_that_runs(
    host: Host, saved: Path, after_s: float
):
    wanders(host, saved)
    time.sleep(after_s)
    host.node.stop()
    assert list(containers(host).values()).count("running") == 1
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
    wait_for(lambda: containers(host) == {}, 30, "nothing to be left over")
