"""A real engine does what the fake one does."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dlsched.model.facts import Observation
from dlsched.runtime.cgroup.read import PROC
from dlsched.runtime.clock import SystemClock
from dlsched.runtime.docker.engine import Body, Engine
from dlsched.runtime.docker.runtime import DockerRuntime
from tests.runtime.docker.engine_contract import EngineContract, World
from tests.runtime.docker.fake_engine import Faulty
from tests.runtime.docker.rig import options_for
from tests.waiting import until
from tools.engine import CGROUP_PARENT

pytestmark = [pytest.mark.engine, pytest.mark.contract]


class RealWorld(World):
    proc = PROC

    def __init__(self, host: str, state_dir: Path) -> None:
        self.instance = f"t{secrets.token_hex(3)}"
        self.clock = SystemClock()
        self.now_s = self.clock.now_s
        self.engine = Faulty(Engine(host, 120.0))
        engine: Any = self.engine
        options = options_for(host, self.instance, state_dir, wire=False)
        self.runtime = DockerRuntime(options, self.clock, lambda _: None, engine=engine)

    def placed(self, body: Body) -> Body:
        if parent := os.environ.get(CGROUP_PARENT):
            body["HostConfig"]["CgroupParent"] = parent
        return body

    def until(self, so: Callable[[Observation], Any]) -> Observation:
        return until(self.cycle, "the observation", so=so)

    def close(self) -> None:
        self.runtime.close()
        engine: Engine = self.engine.engine
        for one in engine.containers({"dlsched.instance": self.instance}):
            engine.discard(one["Id"])
        engine.close()


class TestReal(EngineContract):
    @pytest.fixture
    def world(self, docker_host: str, base_image: str, tmp_path: Path) -> Iterator[World]:
        made = RealWorld(docker_host, tmp_path)
        yield made
        made.close()
