"""The daemon that moves jobs to other GPUs, off one that vanished and to make room, and dies in it.

Stand-ins for driver and device nodes as in test_daemon_gpus; the containers are real.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.daemon.forked import command
from tests.daemon.test_daemon import SLEEP, goes_on, reaches, row
from tests.daemon.test_gpus import A, B, Host, held, host, on, placed
from tests.nvml.scenario import GPU_IS_LOST, Failure
from tools.session import wait_for

__all__ = ["host"]

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.engine,
    pytest.mark.skipif(os.geteuid() != 0, reason="device nodes can only be made by root"),
]

SAVES = """
  - python
  - -c
  - |
    import json, os, signal, time
    path = "/ckpt/step"
    step = int(open(path).read()) if os.path.exists(path) else 0
    def tell(**line):
        with open(os.environ["DLSCHED_METRICS_FILE"], "a") as out:
            out.write(json.dumps(line) + "\\n")
    def save(*_):
        with open(path + ".new", "w") as file:
            file.write(str(step))
        os.rename(path + ".new", path)
        tell(checkpoint={"step": step, "path": path})
    signal.signal(signal.SIGUSR1, save)
    print("from step", step, flush=True)
    while True:
        step += 1
        if step % 25 == 0:
            tell(step=step, loss=1 / step)
        time.sleep(0.02)
"""


SLOWLY = """def save(*_):
        time.sleep(4)"""


def saving(name: str, saved: Path) -> str:
    """A job that shares a GPU and saves itself to that folder when it is asked to."""
    saved.mkdir()
    saves = {
        "volumes": f"['{saved}:/ckpt']",
        "checkpoint": "{signal: SIGUSR1, timeout: 30s, path: /ckpt}",
    }
    return on(name, "{count: 1, share: 0.5}", **saves).replace(SLEEP, SAVES)


def printed(host: Host, name: str) -> str:
    return b"".join(host.node.client.logs(name, 10, False)).decode()


def begins_at(host: Host, name: str, step: str) -> None:
    """Its container has printed that it goes on from there, and nothing else.

    What a job prints is there later than what it reports, by which its move is over.
    """
    wait_for(lambda: printed(host, name) != "", 30, "what it prints")
    assert printed(host, name) == f"from step {step}\n"


def test_a_job_with_a_checkpoint_is_moved_off_a_gpu_that_vanished(host: Host, tmp_path: Path):
    saved = tmp_path / "saved"
    host.start(on_loss="move")
    host.node.drop("alpha", saving("alpha", saved))
    host.node.drop("beta", on("beta", "{count: 1, share: 0.5}"))
    first = reaches(host.node, "alpha", "running")["container"]
    other = reaches(host.node, "beta", "running")["container"]
    lost = held(host, "alpha")
    wait_for(lambda: "from step" in printed(host, "alpha"), 30, "the first step")
    host.show(Failure("*", GPU_IS_LOST, lost[0]))
    wait_for(lambda: row(host.node, "alpha")["container"] not in (None, first), 60, "the move")
    reaches(host.node, "alpha", "running")
    assert held(host, "alpha") == [{A: B, B: A}[lost[0]]]
    begins_at(host, "alpha", (saved / "step").read_text())
    assert row(host.node, "beta")["container"] == other

    def mine() -> set[str]:
        listed = host.node.engine.containers.list(all=True, ignore_removed=True)
        return {one.name for one in listed if host.node.instance in one.name}

    both = {f"dlsched-{host.node.instance}-{name}" for name in ("alpha", "beta")}
    wait_for(lambda: mine() == both, 30, "the old one to be gone")


def test_a_job_that_hangs_on_a_gpu_that_vanished_goes_on_from_what_it_had_saved(
    host: Host, tmp_path: Path
):
    once = "signal.signal(signal.SIGUSR1, signal.SIG_IGN)\n    step = 7\n    save()\n"
    hangs = SAVES.replace("signal.signal(signal.SIGUSR1, save)\n", once)
    host.start(on_loss="move")
    text = saving("alpha", tmp_path / "saved").replace(SAVES, hangs)
    host.node.drop("alpha", text.replace("timeout: 30s", "timeout: 2s"))
    reaches(host.node, "alpha", "running")
    wait_for((tmp_path / "saved" / "step").exists, 30, "the checkpoint")
    goes_on(host.node, 3)  # and the checkpoint is read
    host.show(Failure("*", GPU_IS_LOST, B))
    wait_for(lambda: placed(host) == [A], 60, "the move")
    reaches(host.node, "alpha", "running")
    begins_at(host, "alpha", "7")


@pytest.mark.parametrize("at", ["saves itself", "new container"])
def test_a_daemon_killed_in_a_move_ends_it_at_its_next_start(host: Host, tmp_path: Path, at: str):
    saved = tmp_path / "saved"
    host.start(on_loss="move")
    host.node.drop("alpha", saving("alpha", saved).replace("def save(*_):", SLOWLY))
    first = reaches(host.node, "alpha", "running")["container"]
    wait_for(lambda: "from step" in printed(host, "alpha"), 30, "the first step")
    host.show(Failure("*", GPU_IS_LOST, B))
    if at == "saves itself":
        wait_for(lambda: at in (row(host.node, "alpha")["reason"] or ""), 30, "the move to begin")
    else:
        wait_for(lambda: row(host.node, "alpha")["container"] not in (None, first), 60, at)
    host.node.kill()
    host.start(on_loss="move")
    wait_for(lambda: placed(host) == [A], 90, "its end")
    reaches(host.node, "alpha", "running")
    assert held(host, "alpha") == [A]
    step = (saved / "step").read_text()
    begins_at(host, "alpha", step)
    assert int(step) > 0


def test_a_job_with_a_checkpoint_makes_room_for_one_that_waits_where_moves_are_allowed(
    host: Host, tmp_path: Path
):
    saved = tmp_path / "saved"
    host.start(move=False)
    host.node.drop("alpha", saving("alpha", saved))
    reaches(host.node, "alpha", "running")
    assert held(host, "alpha") == [B]
    wait_for(lambda: "from step" in printed(host, "alpha"), 30, "the first step")
    host.node.drop("large", on("large", "{count: 1, model: T4}"))
    reaches(host.node, "large", "waiting")
    goes_on(host.node, 4)
    assert row(host.node, "alpha")["state"] == "running"
    assert row(host.node, "large")["state"] == "waiting"

    host.reload(move=True)
    reaches(host.node, "large", "running", 60)
    assert held(host, "large") == [B]
    reaches(host.node, "alpha", "running")
    assert held(host, "alpha") == [A]
    begins_at(host, "alpha", (saved / "step").read_text())
    assert "makes room for large" in " ".join(command(host.node, "why", "alpha").stdout.split())
