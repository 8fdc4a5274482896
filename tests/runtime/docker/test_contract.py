"""The fake engine does what an engine does, without a thread and on a clock of numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlsched.model.actions import Remove, Resize
from dlsched.model.facts import Observation
from dlsched.model.spec import Limits, Stop
from dlsched.runtime.docker import watch
from dlsched.runtime.docker.instance import DockerOptions
from dlsched.runtime.docker.listing import Events
from dlsched.runtime.docker.moves import Moves
from dlsched.runtime.docker.runtime import DockerRuntime
from dlsched.runtime.gpu import GpuSnapshot
from dlsched.runtime.machine.calls import DropArchive, Kill
from dlsched.simulation.clock import VirtualClock
from tests.doubles import texts
from tests.runtime.docker.engine_contract import OBEYS, EngineContract, World
from tests.runtime.docker.fake_engine import FakeEngine, Faulty
from tests.runtime.docker.rig import job_spec

CYCLES = 100


class NoGpus:
    def poll(self, _: float) -> GpuSnapshot:
        return GpuSnapshot((), None)

    def close(self) -> None: ...


class FakeWorld(World):
    instance = "i"

    def __init__(self, root: Path, **options: Any) -> None:
        self.clock = VirtualClock(100.0)
        self.now_s = self.clock.now_s
        fake = FakeEngine(root)
        self.proc = fake.proc
        self.engine = Faulty(fake)
        engine: Any = self.engine
        inventory: Any = NoGpus()
        asked = DockerOptions("i", root / "state", wire=False, **options)
        self.runtime = DockerRuntime(
            asked, self.clock, lambda _: None, inventory, engine, self.proc
        )

    def until(self, so: Callable[[Observation], Any]) -> Observation:
        for _ in range(CYCLES):
            self.clock.advance(0.5)
            seen = self.cycle()
            if so(seen):
                return seen
        raise AssertionError("it does not come about")


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch, without_threads: None) -> None:
    """No thread, and no clock but the world's."""
    monkeypatch.setattr(Events, "start", lambda _: None)
    monkeypatch.setattr(watch, "time", SimpleNamespace(time=lambda: 0.0))


@pytest.fixture
def world(tmp_path: Path, in_process: None) -> Iterator[FakeWorld]:
    made = FakeWorld(tmp_path)
    yield made
    made.runtime.close()


class TestFake(EngineContract):
    """On the fake one."""


def test_no_more_is_removed_than_what_is_there_and_ours(world: FakeWorld) -> None:
    theirs = world.adopted(world.runs())
    gone = Remove("job", "f" * 64, Stop("SIGTERM", 1.0), None, "a test")
    for action, outcome in (
        (gone, ("done", "there is no such container")),
        (
            replace(gone, job=theirs.job, container_id=theirs.container_id),
            ("failed", "the container is adopted, so dlsched may not end it"),
        ),
    ):
        told = world.runtime.apply(action, world.now_s())
        assert (told.status, told.detail) == outcome
    world.cycle()
    assert (world.state(theirs.container_id), world.runtime._machine.busy) == ("running", {})


@pytest.mark.parametrize("held", [False, True])
def test_what_belongs_to_no_job_and_what_is_held_is_given_back(
    world: FakeWorld, held: bool
) -> None:
    own, theirs = world.started(job_spec("job", OBEYS)).container_id, world.runs()
    assert world.resize(world.adopted(theirs), 0.25) == ("done", "")

    def cycles() -> list[int | None]:
        """The quotas after some cycles."""
        for _ in range(5):
            world.clock.advance(0.5)
            world.cycle()
        return [world.quota_us(one) for one in (own, theirs)]

    world.runtime.expect({}, {theirs})
    assert cycles() == [50_000, 25_000]
    if held:
        world.runtime.hold("a test")
        assert cycles() == [-1, -1]
    else:
        world.runtime.expect({}, set())
        assert cycles() == [50_000, -1], "an own one is its job's, if that is known or not"


def test_the_gpus_of_a_job_that_is_away_are_observed(
    world: FakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Moves, "gpus_away", lambda _: {"train": ("GPU-0",)})
    assert world.cycle().gpus_away == {"train": ("GPU-0",)}


def test_a_dry_run_examines_what_is_left_alone_again(tmp_path: Path, in_process: None) -> None:
    world = FakeWorld(tmp_path, read_only=True)
    dry = world.runtime
    host = world.engine.all[world.runs()].host
    for shares, words in (("3", "shares without the engine"), ("1024", "")):
        host.write("cpu.shares", shares)
        seen = world.until(lambda seen, had=words: bool(texts(dry.alarms())) == bool(had))
        assert all(words in text for text in texts(dry.alarms()))
        (one,) = seen.containers
        assert words in str(one.operation or "")
    assert host.updates == []
    with closing(dry):
        assert not world.runtime._machine.busy


def test_a_dry_run_after_an_agent_changes_nothing(world: FakeWorld, tmp_path: Path) -> None:
    own, theirs = world.started(job_spec("job", OBEYS)).container_id, world.runs()
    assert world.resize(world.adopted(theirs), 0.25) == ("done", "")
    engine: Any = world.engine
    options = DockerOptions("i", tmp_path / "state", wire=False, read_only=True)
    inventory: Any = NoGpus()
    dry = DockerRuntime(options, world.clock, lambda _: None, inventory, engine, world.proc)
    limits = [world.quota_us(one) for one in (own, theirs)]
    assert limits[1] == 25_000
    (archive := tmp_path / "archive").touch()
    (allotment,) = (tmp_path / "state").rglob("allotment.json")
    told = allotment.read_bytes()
    with closing(dry):
        for why in (None, "a test"):
            dry.hold(why)
            for _ in range(5):
                world.clock.advance(10.0)
                now_s = world.now_s()
                dry.resume(now_s)
                dry.observe(now_s)
                dry.expect({}, set())
                dry.advance(now_s)
            assert dry.held == "dry run"
        assert dry.release({}) == ()
        resize = Resize("job", own, Limits(1.0), Limits(0.5), 1024, "late")
        for action in (resize, Remove("job", own, Stop(), None, "gone")):
            assert dry.apply(action, now_s).status == "withheld"
        assert [one.detail for one in dry.apply_all([resize], now_s)] == ["dry run"]
        dry.report_deliverable("job", True)
        dry._executor.do(Kill(theirs))
        dry._executor.do(DropArchive(archive))
    assert allotment.read_bytes() == told
    assert archive.exists()
    assert [world.quota_us(one) for one in (own, theirs)] == limits
    assert world.state(theirs) == "running"
