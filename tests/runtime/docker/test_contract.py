"""The fake engine does what an engine does, without a thread and on a clock of numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlsched.model.facts import Observation
from dlsched.runtime.docker import watch
from dlsched.runtime.docker.events import Events
from dlsched.runtime.docker.options import DockerOptions
from dlsched.runtime.docker.runtime import DockerRuntime
from dlsched.runtime.gpu import GpuSnapshot
from dlsched.simulation.clock import VirtualClock
from tests.runtime.docker.engine_contract import EngineContract, World
from tests.runtime.docker.fake_engine import FakeEngine, Faulty

CYCLES = 100


class NoGpus:
    def poll(self, _: float) -> GpuSnapshot:
        return GpuSnapshot((), None)

    def close(self) -> None: ...


class FakeWorld(World):
    instance = "i"

    def __init__(self, root: Path) -> None:
        self.clock = VirtualClock(100.0)
        self.now_s = self.clock.now_s
        fake = FakeEngine(root)
        self.proc = fake.proc
        self.engine = Faulty(fake)
        engine: Any = self.engine
        inventory: Any = NoGpus()
        options = DockerOptions("i", root / "state", wire=False)
        self.runtime = DockerRuntime(
            options, self.clock, lambda _: None, inventory, engine, self.proc
        )

    def until(self, so: Callable[[Observation], Any]) -> Observation:
        for _ in range(CYCLES):
            self.clock.advance(0.5)
            seen = self.cycle()
            if so(seen):
                return seen
        raise AssertionError("it does not come about")


class TestFake(EngineContract):
    @pytest.fixture
    def world(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_threads: None
    ) -> Iterator[World]:
        monkeypatch.setattr(Events, "start", lambda _: None)
        monkeypatch.setattr(watch, "time", SimpleNamespace(time=lambda: 0.0))
        made = FakeWorld(tmp_path)
        yield made
        made.runtime.close()
