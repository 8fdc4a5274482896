"""What an engine does, and what the runtime makes of it: for the fake one and a real one."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlsched.model.actions import Remove, Resize, Start
from dlsched.model.facts import ContainerFact, ContainerState, Observation
from dlsched.model.spec import Bounds, JobSpec, Limits, Stop
from dlsched.runtime.cgroup.group_limits import LimitFiles
from dlsched.runtime.docker.engine import Body, EngineRefused
from dlsched.runtime.docker.limits.changing import BUSY, NO_ANSWER
from dlsched.runtime.docker.runtime import DockerRuntime
from tests.runtime.docker.fake_engine import Faulty
from tests.runtime.docker.rig import fact, job_spec
from tools.base_image import BASE

DEAF = ("sleep", "600")
OBEYS = ("sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done")
ENABLE = {"dlsched.enable": "true", "dlsched.target.latency": "50ms"}


class World:
    """An engine, and a runtime of a random instance on it; to be closed."""

    proc: Path
    engine: Faulty
    runtime: DockerRuntime
    instance: str
    now_s: Callable[[], float]

    def cycle(self) -> Observation:
        """A cycle in which nothing new is to be done."""
        now_s = self.now_s()
        self.runtime.resume(now_s)
        seen = self.runtime.observe(now_s)
        self.runtime.advance(now_s)
        return seen

    def until(self, so: Callable[[Observation], Any]) -> Observation:
        """Cycle until that is so."""
        raise NotImplementedError

    def made(self, command: tuple[str, ...] = DEAF, **host: Any) -> str:
        """Another program's container, which asks to be adopted."""
        labels = {**ENABLE, "dlsched.instance": self.instance}
        body = {"Image": BASE, "Cmd": list(command), "Labels": labels, "HostConfig": host}
        container: str = self.engine.create(f"t{secrets.token_hex(4)}", self.placed(body))
        return container

    def placed(self, body: Body) -> Body:
        """The same in the group in which the engine's containers are to be."""
        return body

    def runs(self, command: tuple[str, ...] = DEAF, **host: Any) -> str:
        container = self.made(command, **host)
        self.engine.start(container)
        return container

    def state(self, container: str) -> str:
        return str(self.engine.inspect(container)["State"]["Status"])

    def quota_us(self, container: str) -> int | None:
        """As the kernel has it."""
        pid = self.engine.inspect(container)["State"]["Pid"]
        return LimitFiles(pid, container, self.proc).read().quota_us

    def started(self, spec: JobSpec) -> ContainerFact:
        self.runtime.apply(Start(spec, Limits(0.5), 1024), self.now_s())
        return self.fact(spec.name, lambda one: one.state is ContainerState.RUNNING)

    def fact(self, job: str, so: Callable[[ContainerFact], Any] = bool) -> ContainerFact:
        """The job's container, once that is so of it."""

        def is_so(seen: Observation) -> bool:
            found = fact(seen, job)
            return found is not None and bool(so(found))

        found = fact(self.until(is_so), job)
        assert found is not None
        return found

    def adopted(self, container: str) -> ContainerFact:
        return self.fact(self.engine.inspect(container)["Name"].lstrip("/"))

    def resize(self, found: ContainerFact, cores: float) -> tuple[str, str]:
        """The outcome of a change, which a busy engine may be too slow for."""
        action = Resize(
            found.job, found.container_id, found.actual, Limits(cores), 512, "a test", None
        )
        outcome = self.runtime.apply(action, self.now_s())
        while outcome.status == "begun" or outcome.detail in (BUSY, NO_ANSWER):
            self.cycle()
            outcome = self.runtime.apply(action, self.now_s())
        return outcome.status, outcome.detail

    def remove(self, found: ContainerFact, grace_s: float) -> None:
        action = Remove(found.job, found.container_id, Stop("SIGTERM", grace_s), None, "a test")
        assert self.runtime.apply(action, self.now_s()).status == "begun"
        self.until(lambda seen: fact(seen, found.job) is None)


class EngineContract:
    """Cases for a fixture `world`."""

    def test_a_container_lives_and_ends(self, world: World) -> None:
        container, engine = world.made(OBEYS), world.engine
        assert world.state(container) == "created"
        for _ in range(2):
            engine.start(container)
        assert world.state(container) == "running"
        with pytest.raises(EngineRefused) as caught:
            engine.remove(container)
        assert caught.value.status == 409
        engine.kill(container, "SIGKILL")
        world.until(lambda _: world.state(container) == "exited")
        assert engine.inspect(container)["State"]["ExitCode"] == 137
        with pytest.raises(EngineRefused) as caught:
            engine.kill(container, "SIGTERM")
        assert caught.value.status == 409
        for _ in range(2):
            engine.remove(container)
        with pytest.raises(EngineRefused) as caught:
            engine.inspect(container)
        assert caught.value.status == 404

    def test_a_name_is_taken_once(self, world: World) -> None:
        one, two = world.made(), world.made()
        name = world.engine.inspect(one)["Name"].lstrip("/")
        body = {"Image": BASE, "Cmd": list(DEAF), "Labels": {}, "HostConfig": {}}
        for act in (world.engine.create, lambda name, _: world.engine.rename(two, name)):
            with pytest.raises(EngineRefused) as caught:
                act(name, body)
            assert caught.value.status == 409, caught.value

    @pytest.mark.parametrize(
        ("made", "words", "status", "quota_us"),
        [
            ({"CpuQuota": 50_000, "CpuPeriod": 100_000}, {"NanoCpus": 10**9}, 409, 50_000),
            ({"NanoCpus": 500_000_000}, {"CpuQuota": 90_000, "CpuPeriod": 100_000}, 409, 50_000),
            ({}, {"CpuQuota": 999, "CpuPeriod": 100_000}, 400, -1),
        ],
        ids=["--cpus of quota", "quota of --cpus", "under 1 ms"],
    )
    def test_an_update_that_is_refused_changes_nothing(
        self,
        world: World,
        made: dict[str, int],
        words: dict[str, int],
        status: int,
        quota_us: int,
    ) -> None:
        container = world.runs(**made)
        before = world.engine.inspect(container)["HostConfig"]
        with pytest.raises(EngineRefused) as caught:
            world.engine.update(container, words)
        assert caught.value.status == status
        assert world.engine.inspect(container)["HostConfig"] == before
        assert world.quota_us(container) == quota_us

    def test_zero_changes_nothing_and_minus_one_lifts_a_quota(self, world: World) -> None:
        container = world.runs(CpuQuota=50_000)
        world.engine.update(container, {"CpuQuota": 0})
        assert world.quota_us(container) == 50_000
        world.engine.update(container, {"CpuQuota": -1})
        assert world.quota_us(container) == -1

    @pytest.mark.parametrize("command", [OBEYS, DEAF], ids=["obeys", "deaf"])
    def test_a_job_starts_with_its_limits_and_stops(
        self, world: World, command: tuple[str, ...]
    ) -> None:
        found = world.started(job_spec("job", command))
        assert found.actual == Limits(0.5)
        assert world.quota_us(found.container_id) == 50_000
        world.remove(found, grace_s=0.5 if command is DEAF else 60.0)
        with pytest.raises(EngineRefused):
            world.engine.inspect(found.container_id)

    @pytest.mark.parametrize(
        ("host", "before"),
        [({}, -1), ({"CpuQuota": 70_000}, 70_000), ({"NanoCpus": 800_000_000}, 80_000)],
        ids=["none", "quota", "nano"],
    )
    def test_limits_are_changed_in_the_containers_dialect_and_given_back(
        self, world: World, host: dict[str, int], before: int
    ) -> None:
        container = world.runs(**host)
        found = world.adopted(container)
        assert world.resize(found, 0.25) == ("done", "")
        assert world.quota_us(container) == 25_000
        world.cycle()
        (back,) = world.runtime.release({})
        assert back.failure is None
        assert world.quota_us(container) == before

    def test_a_refused_update_is_an_outcome_and_no_end(self, world: World) -> None:
        container = world.runs()
        found = world.adopted(container)
        world.engine.refused["update"] = EngineRefused(500, "no such cgroup")
        assert world.resize(found, 0.25) == ("failed", "no such cgroup")
        assert world.quota_us(container) == -1
        world.engine.refused.clear()
        assert world.resize(found, 0.25) == ("done", "")

    def test_an_update_whose_answer_is_lost_is_read_from_the_kernel(self, world: World) -> None:
        container = world.runs()
        found = world.adopted(container)
        world.engine.lost.add("update")
        assert world.resize(found, 0.25)[0] == "failed"
        world.engine.lost.clear()
        assert world.fact(found.job, lambda one: one.actual.cpu_cores == 0.25).altered
        (back,) = world.runtime.release({})
        assert (back.failure, world.quota_us(container)) == (None, -1)

    def test_a_start_whose_answer_is_lost_makes_one_container(self, world: World) -> None:
        world.engine.lost.add("start")
        spec = replace(job_spec("job", OBEYS), bounds=Bounds(ceiling_cores=1.0))
        world.runtime.apply(Start(spec, Limits(0.5), 1024), world.now_s())
        found = world.fact("job", lambda one: one.state is ContainerState.RUNNING)
        world.engine.lost.clear()
        assert world.until(lambda seen: not seen.begun).containers
        world.remove(found, grace_s=60.0)

    @pytest.mark.parametrize("call", ["kill", "remove"])
    def test_a_stop_whose_answers_are_lost_goes_on(self, world: World, call: str) -> None:
        found = world.started(job_spec("job", OBEYS))
        world.engine.lost.add(call)
        action = Remove("job", found.container_id, Stop("SIGTERM", 60.0), None, "a test")

        def gone(seen: Observation) -> bool:
            one = fact(seen, "job")
            if one is not None and one.operation is None:
                # It is still wanted, as by the plan of every cycle.
                assert world.runtime.apply(action, world.now_s()).status == "begun"
            return one is None

        world.until(gone)

    def test_events_that_contradict_the_engine_change_nothing(self, world: World) -> None:
        found = world.started(job_spec("job", OBEYS))
        labels = {"dlsched.instance": world.instance, "dlsched.job": "job"}
        for action in ("destroy", "die", "create", "start", "die"):
            actor = {"ID": found.container_id, "Attributes": labels}
            world.runtime._events._take({"Actor": actor, "Action": action})
        assert world.fact("job").state is ContainerState.RUNNING

    def test_an_engine_that_is_started_again(self, world: World) -> None:
        found = world.started(job_spec("job", OBEYS))
        world.engine.away = True
        world.runtime._listings.want()
        seen = world.until(lambda seen: not seen.engine_ok)
        assert fact(seen, "job") is not None, "what is known stays known"
        action = Resize("job", found.container_id, found.actual, Limits(0.1), 512, "a test", None)
        assert world.runtime.apply(action, world.now_s()).status in ("failed", "withheld")
        world.engine.away = False
        world.engine.kill(found.container_id, "SIGKILL")
        assert world.until(lambda seen: seen.engine_ok).engine_ok
        world.fact("job", lambda one: one.state is ContainerState.EXITED)
