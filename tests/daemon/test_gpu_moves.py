"""The daemon that moves jobs to other GPUs, off one that vanished and to make room, and dies in it.

Stand-ins for driver and device nodes as in test_daemon_gpus; the containers are real.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.real.session import wait_for
from tests.daemon.forked import command
from tests.daemon.test_daemon import SLEEP, node, reaches, row
from tests.daemon.test_gpus import A, B, Host, held, host, on, placed
from tests.nvml.scenario import GPU_IS_LOST, Failure

__all__ = ["host", "node"]

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.engine,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="device nodes can only be made by root"),
]

SAVES = """
  - python
  - -c
  - |
    import json, os, signal, time
    path = "/ckpt/step"
    step = int(open(path).read()) if os.path.exists(path) else 0
    print("from step", step, flush=True)
    def tell(**line):
        with open(os.environ["DLSCHED_METRICS_FILE"], "a") as out:
            out.write(json.dumps(line) + "\\n")
    def save(*_):
        with open(path + ".new", "w") as file:
            file.write(str(step))
        os.rename(path + ".new", path)
        tell(checkpoint={"step": step, "path": path})
    signal.signal(signal.SIGUSR1, save)
    while True:
        step += 1
        if step % 25 == 0:
            tell(step=step, loss=1 / step)
        time.sleep(0.02)
"""


SLOWLY = """def save(*_):
        time.sleep(1)"""


def saving(name: str, saved: Path) -> str:
    """A job that shares a GPU and saves itself to that folder when it is asked to."""
    saved.mkdir()
    saves = {
        "volumes": f"['{saved}:/ckpt']",
        "checkpoint": "{signal: SIGUSR1, timeout: 10s, path: /ckpt}",
    }
    return on(name, "{count: 1, share: 0.5}", **saves).replace(SLEEP, SAVES)


def printed(host: Host, name: str) -> str:
    return b"".join(host.node.client.logs(name, 10, False)).decode()


def test_a_job_with_a_checkpoint_is_moved_off_a_gpu_that_vanished(host: Host, tmp_path: Path):
    saved = tmp_path / "saved"
    host.start(on_loss="move")
    host.node.drop("alpha", saving("alpha", saved))
    host.node.drop("beta", on("beta", "{count: 1, share: 0.5}"))
    first = reaches(host.node, "alpha", "running")["container"]
    other = reaches(host.node, "beta", "running")["container"]
    lost = held(host, "alpha")
    host.show(Failure("*", GPU_IS_LOST, lost[0]))
    wait_for(lambda: row(host.node, "alpha")["container"] not in (None, first), 40, "the move")
    reaches(host.node, "alpha", "running")
    assert held(host, "alpha") == [{A: B, B: A}[lost[0]]]
    assert printed(host, "alpha") == f"from step {(saved / 'step').read_text()}\n"
    assert row(host.node, "beta")["container"] == other
    names = {one.name for one in host.node.engine.containers.list(all=True, ignore_removed=True)}
    mine = {name for name in names if host.node.instance in name}
    assert mine == {f"dlsched-{host.node.instance}-{name}" for name in ("alpha", "beta")}


def test_a_job_that_hangs_on_a_gpu_that_vanished_goes_on_from_what_it_had_saved(
    host: Host, tmp_path: Path
):
    once = "signal.signal(signal.SIGUSR1, signal.SIG_IGN)\n    step = 7\n    save()\n"
    hangs = SAVES.replace("signal.signal(signal.SIGUSR1, save)\n", once)
    host.start(on_loss="move")
    text = saving("alpha", tmp_path / "saved").replace(SAVES, hangs)
    host.node.drop("alpha", text.replace("timeout: 10s", "timeout: 2s"))
    reaches(host.node, "alpha", "running")
    wait_for((tmp_path / "saved" / "step").exists, 15, "the checkpoint")
    cycle = host.node.cycle()
    wait_for(lambda: host.node.cycle() > cycle + 1, 15, "the checkpoint to be read")
    host.show(Failure("*", GPU_IS_LOST, B))
    wait_for(lambda: placed(host) == [A], 40, "the move")
    assert printed(host, "alpha") == "from step 7\n"


@pytest.mark.parametrize("at", ["saves itself", "new container"])
def test_a_daemon_killed_in_a_move_ends_it_at_its_next_start(host: Host, tmp_path: Path, at: str):
    saved = tmp_path / "saved"
    host.start(on_loss="move")
    host.node.drop("alpha", saving("alpha", saved).replace("def save(*_):", SLOWLY))
    first = reaches(host.node, "alpha", "running")["container"]
    wait_for(lambda: "from step" in printed(host, "alpha"), 15, "the first step")
    host.show(Failure("*", GPU_IS_LOST, B))
    if at == "saves itself":
        wait_for(lambda: at in (row(host.node, "alpha")["reason"] or ""), 20, "the move to begin")
    else:
        wait_for(lambda: row(host.node, "alpha")["container"] not in (None, first), 30, at)
    host.node.kill()
    host.start(on_loss="move")
    wait_for(lambda: placed(host) == [A], 60, "its end")
    reaches(host.node, "alpha", "running")
    assert held(host, "alpha") == [A]
    step = int((saved / "step").read_text())
    assert printed(host, "alpha") == f"from step {step}\n"
    assert step > 0


def test_a_job_with_a_checkpoint_makes_room_for_one_that_waits_where_moves_are_allowed(
    host: Host, tmp_path: Path
):
    saved = tmp_path / "saved"
    host.start(move=False)
    host.node.drop("alpha", saving("alpha", saved))
    reaches(host.node, "alpha", "running")
    assert held(host, "alpha") == [B]
    wait_for(lambda: "from step" in printed(host, "alpha"), 15, "the first step")
    host.node.drop("large", on("large", "{count: 1, model: T4}"))
    reaches(host.node, "large", "waiting")
    cycle = host.node.cycle()
    wait_for(lambda: host.node.cycle() > cycle + 3, 15, "a few cycles")
    assert row(host.node, "alpha")["state"] == "running"
    assert row(host.node, "large")["state"] == "waiting"

    host.reload(move=True)
    reaches(host.node, "large", "running", 60)
    assert held(host, "large") == [B]
    reaches(host.node, "alpha", "running")
    assert held(host, "alpha") == [A]
    assert printed(host, "alpha") == f"from step {(saved / 'step').read_text()}\n"
    assert "makes room for large" in " ".join(command(host.node, "why", "alpha").stdout.split())
