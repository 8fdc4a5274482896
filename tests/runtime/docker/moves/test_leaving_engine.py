"""Jobs that leave for another node, on the real engine: the other node is a second instance."""

from __future__ import annotations

import io
import re
import secrets
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError

from dlsched.model.actions import Remove, Start
from dlsched.model.facts import ContainerFact, ContainerState
from dlsched.model.leaving import Leaving, LeavingPhase
from dlsched.model.spec import Checkpoint, JobSpec, Limits, Restart, Stop
from dlsched.runtime.allotment import job_dir, read_allotment
from dlsched.runtime.docker import engine_calls
from dlsched.runtime.docker.create import creation
from dlsched.runtime.docker.identity.labels import container_name, set_aside_name
from tests.doubles import texts
from tests.runtime.docker.moves.test_moves_engine import SAVES, TRAINS, Mortal, names, policy_of
from tests.runtime.docker.rig import Rig, fact, job_spec, options_for

pytestmark = pytest.mark.engine

CHECKPOINT = Checkpoint("SIGUSR1", 30.0, "/data/ckpt")
MOST = 1 << 24


class Node:
    """One node: a runtime, and the job's volume there."""

    def __init__(self, rig: Rig, folder: Path) -> None:
        self.rig = rig
        self.archive = folder / "job-e1.tar"
        self.volume = f"dlsched-test-{secrets.token_hex(4)}"

    @property
    def jobs(self) -> Any:
        return self.rig.runtime.moves

    def spec(self, when_asked: str = SAVES, **more: Any) -> JobSpec:
        """A job that saves itself in a volume of that name."""
        code = TRAINS.replace("{when_asked}", when_asked).replace("{at_start}", "")
        code = code.replace("/ckpt", "/data/ckpt").replace("{at_end}", "")
        code = "import os; os.makedirs('/data/ckpt', exist_ok=True)\n" + code
        spec = job_spec(
            "trains",
            ("python3", "-c", code),
            volumes=(f"{self.volume}:/data",),
            network="none",
            **more,
        )
        return replace(spec, stop=Stop(grace_s=30.0), checkpoint=CHECKPOINT)

    def start(self, spec: JobSpec) -> ContainerFact:
        found = self.rig.start(spec, cores=1.0)
        self.makes_steps()
        return found

    def makes_steps(self) -> None:
        """Wait for a new step: what it came with has steps in its log, and a container runs for the
        engine before its program has said a word."""
        count = self.log().count("step ")
        self.rig.until(lambda _: self.log().count("step ") > count)

    def log(self) -> str:
        """What the job noted of itself, in whatever container it runs."""
        return self.read("/data/ckpt/log")

    def read(self, path: str) -> str:
        with suppress(APIError):
            chunks, _ = self.rig.client.get_archive(self.present(), path)
            with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as tar:
                file = tar.extractfile(tar.next() or "")
                return "" if file is None else file.read().decode()
        return ""

    def present(self) -> str:
        there = names(self.rig)
        own = container_name(self.rig.options.instance, "trains")
        return own if own in there else set_aside_name(self.rig.options.instance, "trains")

    def leave(self, checkpoint: Checkpoint = CHECKPOINT, most_bytes: int = MOST) -> None:
        self.jobs.leave("trains", checkpoint, self.archive, most_bytes)

    def until(self, phase: LeavingPhase | None) -> Leaving | None:
        def there(_: object) -> bool:
            state = self.jobs.leaving("trains")
            return (None if state is None else state.phase) is phase

        self.rig.until(there)
        state: Leaving | None = self.jobs.leaving("trains")
        return state

    def left(self) -> Leaving:
        """It has left."""
        self.leave()
        state = self.until(LeavingPhase.AWAY)
        assert state is not None
        return state

    def runs_again(self) -> ContainerFact:
        """It runs under its own name, nothing is being done to it, and it makes steps."""

        def still(seen: Any) -> bool:
            found = fact(seen, "trains")
            running = found is not None and found.state is ContainerState.RUNNING
            return running and found is not None and found.operation is None

        found = fact(self.rig.until(still), "trains")
        assert found is not None
        assert names(self.rig) == {container_name(self.rig.options.instance, "trains"): "running"}
        self.makes_steps()
        return found


def begins_of(log: str) -> list[int]:
    return [int(step) for step in re.findall(r"begins (\d+)", log)]


def saved_of(log: str) -> list[int]:
    return [int(step) for step in re.findall(r"saved (\d+)", log)]


@pytest.fixture
def node(rig: Rig, tmp_path: Path) -> Iterator[Node]:
    yield from one_node(rig, tmp_path)


@pytest.fixture
def other(docker_host: str, base_image: str, tmp_path: Path) -> Iterator[Node]:
    """The node that it goes to."""
    folder = tmp_path / "other"
    folder.mkdir()
    rig = Rig(options_for(docker_host, f"t{secrets.token_hex(3)}", folder), docker_host)
    try:
        yield from one_node(rig, folder)
    finally:
        rig.close()


def one_node(rig: Rig, folder: Path) -> Iterator[Node]:
    made = Node(rig, folder)
    try:
        yield made
    finally:
        rig.close()
        mine = {"label": f"dlsched.instance={rig.options.instance}"}
        volumes = rig.client.volumes(filters=mine)["Volumes"] or ()
        for name in (made.volume, *(one["Name"] for one in volumes)):
            with suppress(APIError):
                rig.client.remove_volume(name)


@pytest.mark.gate
def test_a_job_leaves_and_goes_on_elsewhere_from_its_checkpoint(node: Node, other: Node) -> None:
    node.start(node.spec())
    state = node.left()
    assert state.size_bytes == node.archive.stat().st_size
    assert node.archive.stat().st_mode & 0o777 == 0o600
    seen = node.rig.observe()
    assert seen.containers == ()
    aside = set_aside_name(node.rig.options.instance, "trains")
    assert names(node.rig) == {aside: "exited"}
    start = Start(node.spec(), Limits(0.5), 1024)
    refused = node.rig.apply(start)
    assert (refused.status, refused.detail) == ("withheld", "the job moved to another node")
    node.rig.runtime.release({})
    assert names(node.rig) == {aside: "exited"}
    assert texts(node.rig.runtime.alarms()) == ()

    other.jobs.bring("trains", 2, node.archive)
    spec = replace(other.spec(), container=replace(other.spec().container, restart=Restart()))
    after = other.start(spec)
    log = other.log()
    assert begins_of(log) == [0, saved_of(log)[0]]
    assert saved_of(log)[0] == state.step
    inspected = other.rig.client.inspect_container(after.container_id)
    (mount,) = [one for one in inspected["Mounts"] if one["Destination"] == "/data"]
    own = f"{container_name(other.rig.options.instance, 'trains')}-e2"
    assert mount["Name"] == own
    assert other.rig.client.inspect_volume(own)["Labels"] == {
        "dlsched.instance": other.rig.options.instance,
        "dlsched.job": "trains",
    }

    node.jobs.clear("trains")
    assert node.jobs.leaving("trains") is None
    node.rig.until(lambda _: names(node.rig) == {})
    node.rig.until(lambda _: not node.archive.exists())

    # It is made anew there: with the same volume, which is not filled again.
    other.archive.unlink(missing_ok=True)
    gone = Remove("trains", after.container_id, Stop(grace_s=5.0), None, "a test")
    other.rig.apply(gone)
    other.rig.until(lambda seen: fact(seen, "trains") is None and names(other.rig) == {})
    node.archive.unlink(missing_ok=True)
    other.rig.reopen()
    other.rig.until(lambda _: True)
    other.start(spec)
    assert len(begins_of(other.log())) == 3

    # Its file is removed: what it has written stays, for its next container here, too.
    ours = {"label": f"dlsched.instance={other.rig.options.instance}"}
    other.rig.apply(replace(gone, container_id=fact(other.rig.observe(), "trains").container_id))
    other.jobs.clear("trains", keeps=True)
    other.rig.until(lambda _: names(other.rig) == {})
    other.rig.until(lambda _: other.rig.client.volumes(filters=ours)["Volumes"])
    other.start(spec)
    assert len(begins_of(other.log())) == 4


@pytest.mark.parametrize("what", ["missing", "noise", "hostile"])
def test_what_cannot_be_unpacked_leaves_nothing(node: Node, what: str) -> None:
    if what == "noise":
        node.archive.write_bytes(b"noise" * 1000)
    elif what == "hostile":
        with tarfile.open(node.archive, "w") as tar:
            for name, kind in (("c", tarfile.DIRTYPE), ("c/a", tarfile.REGTYPE), ("c/n", b"3")):
                info = tarfile.TarInfo(name)
                info.type = kind
                tar.addfile(info)
    node.jobs.bring("trains", 2, node.archive)
    assert node.rig.apply(Start(node.spec(), Limits(0.5), 1024)).status == "begun"
    begun = node.rig.until_failed("trains")
    assert not begun.retryable
    assert begun.detail.startswith("the job's checkpoint from another node cannot be unpacked: ")
    assert "\n" not in begun.detail
    assert names(node.rig) == {}
    mine = {"label": f"dlsched.instance={node.rig.options.instance}"}
    assert not node.rig.client.volumes(filters=mine)["Volumes"]
    node.jobs.bring("trains", 4, node.archive)
    assert node.rig.observe().begun == ()


# ---------------------------------------------------------------------- an agent that dies


LEAVES = ["allot", "rename", "allot", "update", "kill", "pack"]
RETURNS = [*LEAVES, "allot", "update", "start", "rename"]


def play(
    node: Node, monkeypatch: pytest.MonkeyPatch, dies_at: int, *, after: bool, back: bool
) -> Mortal:
    """Let the job leave under an agent that dies; returns once it is dead, or the job is away."""
    node.start(node.spec(restart=Restart("unless-stopped")))
    agent = Mortal(dies_at, after=after)
    with monkeypatch.context() as patched:
        for module, words in ((engine_calls, ("change", "write")), (creation, ("write",))):
            for word in words:
                told = f"{word}_allotment"
                patched.setattr(module, told, agent.wrap("allot", getattr(module, told)))
        patched.setattr(engine_calls, "pack", agent.wrap("pack", engine_calls.pack))
        acts = node.rig.runtime._calls
        # For good: what a dead agent has begun may come to its call late.
        mortal = agent.engine(acts.instance.unhurried)
        acts.instance = replace(acts.instance, unhurried=mortal)
        node.leave()

        def away() -> bool:
            state = node.jobs.leaving("trains")
            return state is not None and state.phase is LeavingPhase.AWAY

        node.rig.until(lambda _: agent.dead or away())
        if back and not agent.dead:
            node.jobs.give_back("trains")
            node.rig.until(lambda seen: agent.dead or fact(seen, "trains") is not None)
            node.rig.until(lambda _: agent.dead or not node.rig.runtime.moves.moving)
    return agent


def test_the_points_of_death_are_all_that_there_are(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The last thing is that the request is withdrawn once more, in the background.
    done = play(node, monkeypatch, 100, after=False, back=True).done
    assert done[: len(RETURNS)] == RETURNS
    assert done[len(RETURNS) :] in ([], ["allot"])


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("dies_at", range(len(RETURNS)), ids=lambda n: f"{n}-{RETURNS[n]}")
def test_a_job_that_had_not_left_for_certain_comes_back(
    node: Node, monkeypatch: pytest.MonkeyPatch, dies_at: int, after: bool
) -> None:
    agent = play(node, monkeypatch, dies_at, after=after, back=True)
    assert agent.dead
    assert agent.done == RETURNS[: dies_at + after]
    node.rig.reopen()
    node.runs_again()
    log = node.log()
    assert set(begins_of(log)) <= {0, *saved_of(log)}
    assert node.jobs.leaving("trains") is None
    node.rig.until(lambda _: policy_of(node.rig, node.present()) == "unless-stopped")
    node.rig.until(
        lambda _: (
            not read_allotment(job_dir(node.rig.options.state_dir, "trains")).checkpoint_wanted
        )
    )


@pytest.mark.parametrize("at", ["create", "unpack", "filled"])
def test_an_agent_that_dies_while_the_checkpoint_is_unpacked_begins_again(
    node: Node, other: Node, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    node.start(node.spec())
    state = node.left()
    other.jobs.bring("trains", 2, node.archive)
    arrivals, instance = other.rig.runtime._arrivals, other.rig.runtime._instance
    with monkeypatch.context() as patched:
        agent = Mortal({"create": 0, "unpack": 1, "filled": 2}[at], after=at != "filled")
        mortal = agent.engine(instance.unhurried)
        mortal.unpack = agent.wrap("unpack", instance.unhurried.unpack)
        dying = replace(instance, unhurried=mortal)
        patched.setattr(arrivals, "instance", dying)
        patched.setattr(other.rig.runtime._calls.creation, "instance", dying)
        records = arrivals._records
        patched.setattr(records, "secure", agent.wrap("record", records.secure))
        other.rig.apply(Start(other.spec(), Limits(1.0), 1024))
        other.rig.until(lambda _: agent.dead)
        other.rig.until_failed("trains")
    assert list(names(other.rig).values()) == ["created"]
    other.rig.reopen()
    other.rig.observe()
    other.rig.apply(Start(other.spec(), Limits(1.0), 1024))
    begun = other.rig.until_failed("trains")
    assert begun.retryable
    assert begun.detail.endswith("lacks the checkpoint from the job's last node")
    other.start(other.spec())
    assert begins_of(other.log())[:2] == [0, state.step]
