"""A DockerRuntime of a random instance on the real engine, and waiting with a deadline."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError

from dlsched.model.actions import Action, Outcome, Remove, Resize, Start
from dlsched.model.facts import Begun, ContainerFact, ContainerState, Observation
from dlsched.model.spec import ContainerSpec, JobSpec, Limits, Stop
from dlsched.runtime.cgroup.read import CgroupReader
from dlsched.runtime.clock import SystemClock
from dlsched.runtime.docker.instance import DockerOptions
from dlsched.runtime.docker.limits.changing import BUSY, NO_ANSWER
from dlsched.runtime.docker.runtime import DockerRuntime
from dlsched.runtime.gpu import Inventory
from tests.waiting import until
from tools.base_image import BASE
from tools.engine import CGROUP_PARENT
from tools.engine_probe import connect

SLEEP = ("sleep", "600")
SPIN = ("python", "-c", "while True: pass")


def job_spec(name: str, command: tuple[str, ...] = SLEEP, **container: Any) -> JobSpec:
    """A job of the base image, with digests that tell its command."""
    parts = {"image": BASE, "command": command, **container}
    digest = f"{abs(hash(repr(sorted(parts.items())))):x}"
    return JobSpec(name, ContainerSpec(**parts), container_digest=f"c{digest}", digest=f"d{digest}")


class Rig:
    """A runtime under test; to be closed, which removes all that it made."""

    def __init__(
        self, options: DockerOptions, engine: str, inventory: Inventory | None = None
    ) -> None:
        """`engine`: where the test itself reaches the engine, whatever the runtime is told."""
        self.inventory = inventory
        self.options = options
        self.clock = SystemClock()
        self.wakes: list[str] = []
        self.runtime = DockerRuntime(options, self.clock, self.wakes.append, inventory)
        self.client = connect(engine, timeout_s=120)

    def reopen(self) -> None:
        """The agent restarts."""
        self.runtime.close()
        self.runtime = DockerRuntime(self.options, self.clock, self.wakes.append, self.inventory)

    def observe(self, later_s: float = 0.0) -> Observation:
        """A cycle, so much later than it is, in which nothing new is to be done."""
        now_s = self.clock.now_s() + later_s
        self.runtime.resume(now_s)
        seen = self.runtime.observe(now_s)
        self.runtime.advance(now_s)
        return seen

    def apply(self, action: Action) -> Outcome:
        return self.runtime.apply(action, self.clock.now_s())

    def until(self, true: Callable[[Observation], bool], within_s: float = 60.0) -> Observation:
        """Observe until that is so; fails with the last observation when it takes too long."""
        return until(self.observe, "the observation", within_s, so=true)

    def start(self, spec: JobSpec, cores: float | None = 0.5, shares: int = 1024) -> ContainerFact:
        """Start a job and wait until it runs."""
        assert self.apply(Start(spec, Limits(cores), shares)).status == "begun"
        return self.until_state(spec.name, ContainerState.RUNNING)

    def until_fact(
        self, job: str, so: Callable[[ContainerFact], object], within_s: float = 60.0
    ) -> ContainerFact:
        """Observe until that is so of the job's container, and return it."""
        found = until(
            lambda: fact(self.observe(), job),
            f"the container of {job}",
            within_s,
            so=lambda one: one is not None and so(one),
        )
        assert found is not None
        return found

    def until_state(self, job: str, state: ContainerState, within_s: float = 60.0) -> ContainerFact:
        return self.until_fact(job, lambda found: found.state is state, within_s)

    def fact(self, job: str) -> ContainerFact:
        """The job's container, observed once."""
        found = fact(self.observe(), job)
        assert found is not None
        return found

    def until_failed(self, job: str, within_s: float = 60.0) -> Begun:
        """Wait until its start has failed."""

        def failed(seen: Observation) -> bool:
            return any(word.job == job and word.stage == "failed" for word in seen.begun)

        seen = self.until(failed, within_s)
        return next(word for word in seen.begun if word.job == job)

    def resize(
        self,
        found: ContainerFact,
        cores: float | None,
        shares: int = 1024,
        burst_cores: float | None = None,
    ) -> Outcome:
        action = Resize(
            job=found.job,
            container_id=found.container_id,
            before=found.actual,
            limits=Limits(cores),
            cpu_shares=shares,
            why="a test",
            burst_cores=burst_cores,
        )
        return self.apply(action)

    def resized(self, found: ContainerFact, cores: float | None, **more: Any) -> Outcome:
        """Resize, and again where the engine of a busy machine was not waited for."""
        return self._resize_until(lambda one: one.status == "done", found, cores, **more)

    def answered(self, found: ContainerFact, cores: float | None) -> Outcome:
        """What becomes of a resize that the engine of a busy machine was waited for."""
        return self._resize_until(lambda one: one.detail not in (NO_ANSWER, BUSY), found, cores)

    def _resize_until(
        self,
        true: Callable[[Outcome], bool],
        found: ContainerFact,
        cores: float | None,
        **more: Any,
    ) -> Outcome:
        return until(lambda: self.resize(found, cores, **more), "the resize", so=true)

    def remove(
        self, found: ContainerFact, grace_s: float = 1.0, lift: Limits | None = None
    ) -> Outcome:
        stop = Stop(grace_s=grace_s)
        return self.apply(Remove(found.job, found.container_id, stop, lift, "a test"))

    def close(self) -> None:
        mine = {"label": f"dlsched.instance={self.options.instance}"}
        for container in self.client.containers(all=True, filters=mine):
            with suppress(APIError):
                self.client.remove_container(container["Id"], force=True, v=True)
        with suppress(AssertionError):
            self.until(lambda seen: not seen.containers, 30.0)
        self.runtime.close()
        self.client.close()


def fact(seen: Observation, job: str) -> ContainerFact | None:
    return next((found for found in seen.containers if found.job == job), None)


def cpu_files(client: docker.APIClient, container: str) -> Mapping[str, str]:
    """The CPU limit of a running container as its own cgroup files say."""
    pid = client.inspect_container(container)["State"]["Pid"]
    reader = CgroupReader(pid)
    folder = reader.cpu_folder
    reader.close()
    assert folder is not None
    names = ("cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.shares", "cpu.max", "cpu.weight")
    return {n: (folder / n).read_text().strip() for n in names if (folder / n).exists()}


def options_for(host: str, instance: str, state_dir: Path, **changes: Any) -> DockerOptions:
    """Settings of a runtime under test: below a private engine's own group, where it has one."""
    under = os.environ.get(CGROUP_PARENT, "")
    options = DockerOptions(instance, state_dir, host, cgroup_under=under)
    return replace(options, **changes)
