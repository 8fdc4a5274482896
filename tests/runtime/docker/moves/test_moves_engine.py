"""Moves on the real engine: containers without devices, whose job saves itself in a volume."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlsched.model.actions import Move, Start
from dlsched.model.facts import ContainerFact, ContainerState, Observation
from dlsched.model.spec import Checkpoint, JobSpec, Limits, Restart, Stop
from dlsched.runtime.allotment import job_dir, read_allotment
from dlsched.runtime.docker import engine_calls
from dlsched.runtime.docker.create import creation
from dlsched.runtime.docker.identity.labels import container_name
from dlsched.runtime.machine import move
from tests.doubles import texts
from tests.inside import run_inside
from tests.runtime.docker.rig import Rig, fact, job_spec

pytestmark = pytest.mark.engine

TRAINS = """
import json, os, signal, sys, time
saved, asked, ended = "/ckpt/step", [], []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
def tell(**what):
    with open(os.environ["DLSCHED_METRICS_FILE"], "a") as file:
        file.write(json.dumps(dict(what, t=time.time())) + "\\n")
def note(word, step):
    with open("/ckpt/log", "a") as log:
        log.write(f"{word} {step}\\n")
step = int(open(saved).read()) if os.path.exists(saved) else 0
note("begins", step)
{at_start}
while not ended:
    step += 1
    tell(step=step, accuracy=0.5)
    note("step", step)
    if asked:
        asked.clear()
        open(saved, "w").write(str(step))
        note("saved", step)
        {when_asked}
    time.sleep(0.02)
note("ends", step)
{at_end}
sys.exit(143)
"""
SAVES = 'tell(checkpoint={"step": step, "path": saved})'


def trains(
    folder: Path, when_asked: str = SAVES, at_start: str = "", at_end: str = "", **more: Any
) -> JobSpec:
    """A job that makes steps, and when asked saves itself in that folder of the host."""
    folder.chmod(0o777)
    code = TRAINS.replace("{when_asked}", when_asked).replace("{at_start}", at_start)
    code = code.replace("{at_end}", at_end)
    spec = job_spec(
        "trains", ("python3", "-c", code), volumes=(f"{folder}:/ckpt",), network="none", **more
    )
    return replace(spec, stop=Stop(grace_s=30.0))


def move_of(found: ContainerFact, spec: JobSpec, timeout_s: float = 30.0) -> Move:
    return Move(
        container_id=found.container_id,
        start=Start(spec, Limits(0.5), 1024),
        checkpoint=Checkpoint("SIGUSR1", timeout_s, "/ckpt"),
        why="a test",
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "ckpt"
    made.mkdir()
    return made


def log_of(folder: Path) -> list[tuple[str, int]]:
    """What the job has done, in order."""
    words = (line.split() for line in (folder / "log").read_text().splitlines())
    return [(word, int(step)) for word, step in words]


def started(rig: Rig, spec: JobSpec, folder: Path) -> ContainerFact:
    """It runs, and its signal handlers are in place."""
    found = rig.start(spec)
    rig.until(lambda _: (folder / "log").exists())
    return found


def still(seen: Observation, state: ContainerState = ContainerState.RUNNING) -> bool:
    """Whether the job stands there and nothing is being done to it."""
    found = fact(seen, "trains")
    return found is not None and found.operation is None and found.state is state


def names(rig: Rig) -> dict[str, str]:
    """The states of this instance's containers by their names."""
    mine = {"label": f"dlsched.instance={rig.options.instance}"}
    listed = rig.client.containers(all=True, filters=mine)
    return {one["Names"][0].lstrip("/"): one["State"] for one in listed}


def own_name(rig: Rig) -> str:
    return container_name(rig.options.instance, "trains")


@pytest.mark.gate
def test_a_job_goes_on_in_a_new_container_from_its_checkpoint(rig: Rig, folder: Path) -> None:
    spec = trains(folder, at_start='open("/scratch/kept", "a").write("x")')
    volumes = (*spec.container.volumes, ":/scratch")  # which only the old container knows
    spec = replace(spec, container=replace(spec.container, volumes=volumes))
    before = started(rig, spec, folder)
    old = rig.client.inspect_container(before.container_id)
    assert rig.apply(move_of(before, spec)).status == "begun"
    assert rig.apply(move_of(before, spec)).detail.startswith(
        "moving to a new container: the job saves itself ("
    )
    rig.until(still)
    after = rig.fact("trains")
    assert after.container_id != before.container_id
    assert after.life == before.container_id
    assert run_inside(rig.client, after.container_id, ["cat", "/scratch/kept"]) == (0, b"xx")
    assert names(rig) == {own_name(rig): "running"}
    told = log_of(folder)
    saved = [step for word, step in told if word == "saved"]
    assert [step for word, step in told if word == "begins"] == [0, saved[-1]]
    new = rig.client.inspect_container(after.container_id)
    assert new["Config"]["Hostname"] == old["Config"]["Hostname"]
    assert new["Config"]["Env"] == old["Config"]["Env"]
    assert new["HostConfig"]["CpuQuota"] == 50_000
    assert not read_allotment(folder_of(rig)).checkpoint_wanted
    assert texts(rig.runtime.alarms()) == ()


def folder_of(rig: Rig) -> Path:
    return job_dir(rig.options.state_dir, "trains")


HANGS_ELSEWHERE = """
while step and not os.path.exists("/here"):
    time.sleep(0.01)
    ended and sys.exit(143)
open("/here", "w")
"""


def give_up_soon(rig: Rig, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second after its new program hangs. Before it begins, it would not end at SIGTERM."""
    rig.until(lambda _: [word for word, _ in log_of(folder)].count("begins") == 2)
    monkeypatch.setattr(move, "REPORT_WITHIN_S", 1.0)


class Death(Exception):
    """The agent is dead."""


class Mortal:
    """An agent that dies at the n-th thing that it changes outside, before or after it is done."""

    ENGINES = ("rename", "kill", "update", "create", "start", "remove")

    def __init__(self, dies_at: int, *, after: bool) -> None:
        self._dies_at, self._after = dies_at, after
        self._lock = threading.Lock()
        self.done: list[str] = []
        self.dead = False

    def wrap(self, name: str, call: Callable[..., Any], *, changes: bool = True) -> Any:
        def mortal(*arguments: Any, **named: Any) -> Any:
            with self._lock:
                if self.dead:
                    raise Death
                last = changes and len(self.done) == self._dies_at
                if last and not self._after:
                    self.dead = True
                    raise Death
                answer = call(*arguments, **named)
                if changes:
                    self.done.append(name)
                if last:
                    self.dead = True
                    raise Death
                return answer

        return mortal

    def engine(self, engine: Any) -> Any:
        calls = {name: getattr(engine, name) for name in dir(engine) if name[0] != "_"}
        wrapped = {
            name: self.wrap(name, call, changes=name in self.ENGINES)
            for name, call in calls.items()
            if callable(call)
        }
        return SimpleNamespace(**wrapped)


def play(
    rig: Rig,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    dies_at: int,
    *,
    after: bool,
    at_start: str = "",
) -> Mortal:
    """Begin a move under an agent that dies; returns once it is dead, or the move is over."""
    spec = trains(folder, at_start=at_start, restart=Restart("unless-stopped"))
    before = started(rig, spec, folder)
    agent = Mortal(dies_at, after=after)
    with monkeypatch.context() as patched:
        for module, names in ((engine_calls, ("change", "write")), (creation, ("write",))):
            for name in names:
                told = f"{name}_allotment"
                patched.setattr(module, told, agent.wrap("allot", getattr(module, told)))
        acts = rig.runtime._calls
        hands = acts.creation.writer
        patched.setattr(hands, "remember", agent.wrap("remember", hands.remember))
        # For good: what a dead agent has begun may come to its call late.
        mortal = agent.engine(acts.instance.unhurried)
        acts.instance = acts.creation.instance = replace(acts.instance, unhurried=mortal)
        rig.apply(move_of(before, spec))
        if at_start == HANGS_ELSEWHERE:
            give_up_soon(rig, folder, monkeypatch)
        rig.until(lambda seen: agent.dead or still(seen))
    return agent


ENDS = ["allot", "rename", "allot", "update", "kill"]
GOES = [*ENDS, "create", "remember", "allot", "start", "remove"]
GOES_BACK = [*GOES[:-1], "update", "kill", "remove", "allot", "update", "start", "rename"]


def test_the_points_of_death_are_all_that_there_are(
    rig: Rig, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert play(rig, folder, monkeypatch, 100, after=False).done == GOES


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("dies_at", range(len(GOES)), ids=lambda n: f"{n}-{GOES[n]}")
def test_a_move_outlives_its_agent(
    rig: Rig, folder: Path, monkeypatch: pytest.MonkeyPatch, dies_at: int, after: bool
) -> None:
    agent = play(rig, folder, monkeypatch, dies_at, after=after)
    assert agent.dead
    assert agent.done == GOES[: dies_at + after]
    rig.reopen()
    settles(rig, folder)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("dies_at", range(9, len(GOES_BACK)), ids=lambda n: f"{n}-{GOES_BACK[n]}")
def test_the_way_back_outlives_its_agent(
    rig: Rig, folder: Path, monkeypatch: pytest.MonkeyPatch, dies_at: int, after: bool
) -> None:
    agent = play(rig, folder, monkeypatch, dies_at, after=after, at_start=HANGS_ELSEWHERE)
    assert agent.dead
    assert agent.done == GOES_BACK[: dies_at + after]
    rig.reopen()
    settles(rig, folder)


def settles(rig: Rig, folder: Path) -> None:
    """In the end one container runs, makes steps, and has lost none that was acknowledged."""

    def settled(seen: Observation) -> bool:
        return still(seen) and names(rig) == {own_name(rig): "running"}

    rig.until(settled)
    count = len(log_of(folder))
    rig.until(lambda _: len(log_of(folder)) > count)
    saved = 0
    for word, step in log_of(folder):
        if word == "saved":
            saved = step
        elif word == "begins":
            assert step == saved
    rig.until(lambda _: not read_allotment(folder_of(rig)).checkpoint_wanted)
    (own,) = names(rig)
    rig.until(lambda _: policy_of(rig, own) == "unless-stopped")


def policy_of(rig: Rig, container: str) -> str:
    return str(rig.client.inspect_container(container)["HostConfig"]["RestartPolicy"]["Name"])


def test_being_asked_leaves_the_restart_policy_in_force(rig: Rig, folder: Path) -> None:
    spec = trains(folder, when_asked="pass", restart=Restart("unless-stopped"))
    before = started(rig, spec, folder)
    rig.apply(move_of(before, spec, timeout_s=1.0))
    rig.until(lambda _: len(texts(rig.runtime.alarms())) == 1)
    os.kill(rig.client.inspect_container(before.container_id)["State"]["Pid"], signal.SIGKILL)
    rig.until(lambda seen: still(seen) and [w for w, _ in log_of(folder)].count("begins") == 2)
