"""Starts that fail, with their reason; starts that repeat; what a container is given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlsched.model.actions import Outcome, Start
from dlsched.model.facts import ContainerFact, ContainerState
from dlsched.model.spec import Limits, Restart
from dlsched.runtime.docker.carrying import Arrivals
from dlsched.runtime.docker.create.creation import Creation
from dlsched.runtime.docker.create.images import Images
from dlsched.runtime.docker.engine import EngineRefused
from dlsched.runtime.docker.gpus.injection import GpuOptions, Injector
from dlsched.runtime.docker.identity.labels import labels_of
from dlsched.runtime.docker.limits.group import ParentGroup
from dlsched.runtime.docker.limits.writer import LimitWriter
from dlsched.runtime.machine import start as starts
from dlsched.runtime.machine.calls import Pulls, StartJob
from dlsched.runtime.machine.container import Machine
from dlsched.runtime.machine.inspected import Listing
from dlsched.runtime.originals import Originals
from tests.runtime.docker.fake_engine import FakeEngine, Faulty
from tests.runtime.docker.fake_host import full_disk
from tests.runtime.docker.making import calls_of, instance_of, making
from tests.runtime.docker.rig import SLEEP, Rig, fact, job_spec

on_engine = pytest.mark.engine


def begin(rig: Rig, name: str, command: tuple[str, ...] = SLEEP, **container: object) -> None:
    spec = job_spec(name, command, **container)
    assert rig.apply(Start(spec, Limits(0.5), 1024)).status == "begun"


@on_engine
@pytest.mark.parametrize(
    ("command", "volumes", "reason"),
    [
        (("no-such-program",), (), "no-such-program"),
        (SLEEP, ("/no/such/folder:/there",), "/no/such/folder"),
    ],
    ids=["command", "volume"],
)
def test_start_that_the_engine_refuses_leaves_nothing(
    rig: Rig, command: tuple[str, ...], volumes: tuple[str, ...], reason: str
) -> None:
    begin(rig, "nosuch", command, volumes=volumes)
    failed = rig.until_failed("nosuch")
    assert reason in failed.detail and "\n" not in failed.detail
    assert not failed.retryable
    rig.until(lambda seen: fact(seen, "nosuch") is None)


@on_engine
@pytest.mark.gate
def test_what_a_container_is_given(rig: Rig) -> None:
    look = (
        "import os, pathlib as p; import dlsched.report;"
        "print(os.environ['DLSCHED_JOB'], os.environ['MODE']);"
        "print(p.Path('/run/dlsched/in/allotment.json').read_text().strip());"
        "print(os.access('/run/dlsched/in', os.W_OK), os.access('/run/dlsched/out', os.W_OK));"
        "print('tmp', os.access('/scratch', os.W_OK), os.access('/etc', os.W_OK), os.getuid())"
    )
    spec = job_spec(
        "given",
        ("python", "-c", look),
        environment=(("MODE", "try"),),
        user="65534",
        read_only=True,
        tmpfs=("/scratch:mode=1777",),
        labels=(("team", "vision"), ("dlsched.job", "another")),
    )
    rig.apply(Start(spec, Limits(0.5), 1024, "given.yaml"))
    found = rig.until_state("given", ContainerState.EXITED)

    def printed() -> list[str]:
        return list(rig.client.logs(found.container_id).decode().splitlines())

    assert found.exit_code == 0, printed()
    rig.until(lambda _: len(printed()) == 4)  # a busy engine has the last lines after the end
    lines = printed()
    assert lines[0] == "given try"
    assert '"cpu_cores": 0.5' in lines[1]
    assert lines[2:] == ["False True", "tmp True False 65534"]
    assert found.source == "given.yaml"
    labels = rig.client.inspect_container(found.container_id)["Config"]["Labels"]
    assert labels["team"] == "vision"


@on_engine
@pytest.mark.gate
def test_exit_code_and_last_lines(rig: Rig) -> None:
    tell = (
        "import os, signal; signal.pthread_sigmask(signal.SIG_BLOCK, {15});"
        "f = open(os.environ['DLSCHED_METRICS_FILE'], 'a');"
        'f.write(\'{"t": 1, "step": 1, "loss": 0.5}\\n\'); f.flush(); signal.sigwait({15});'
        'f.write(\'{"t": 2, "step": 2, "loss": 0.25}\\nnonsense\\n\'); f.flush();'
        "raise SystemExit(7)"
    )
    rig.apply(Start(job_spec("tells", ("python", "-c", tell)), Limits(None), 1024))
    seen: list[ContainerFact] = []

    def noted(so: Callable[[ContainerFact], object]) -> None:
        def note(one: ContainerFact) -> object:
            seen.append(one)
            return so(one)

        rig.until_fact("tells", note)

    noted(steps_of)
    rig.client.kill(seen[-1].container_id, "SIGTERM")
    noted(lambda one: one.state is ContainerState.EXITED)
    assert seen[-1].exit_code == 7
    assert [step for one in seen for step in steps_of(one)] == [1, 2]
    assert max(one.bad_lines for one in seen) == 1


@on_engine
def test_removing_ends_a_crash_loop(rig: Rig) -> None:
    spec = job_spec("loops", ("sh", "-c", "exit 3"), restart=Restart("always"))
    rig.apply(Start(spec, Limits(None), 1024))
    found = rig.until_state("loops", ContainerState.RESTARTING)
    assert found.exit_code == 3
    rig.remove(found, grace_s=5)
    rig.until(lambda seen: fact(seen, "loops") is None)


def steps_of(found: ContainerFact) -> list[int | None]:
    return [report.sample.step for report in found.reports if report.sample]


class Bench:
    """Starts on a fake engine."""

    def __init__(self, state_dir: Path) -> None:
        self.engine: Any = Faulty(FakeEngine(state_dir))
        self.now_s = 0.0
        self.woken: list[str] = []
        instance = instance_of(self.engine, state_dir, originals=Originals(state_dir))
        creation = Creation(
            instance,
            ParentGroup("i", ""),
            LimitWriter(instance),
            Injector(GpuOptions(), tuple),
            Arrivals(instance),
            lambda: None,
        )
        calls = calls_of(self.engine, None, Images(self.engine, None, lambda: self.now_s), creation)
        self.executor = making(calls, [], lambda: self.now_s, self.woken.append)
        self.machine = Machine(self.executor.do)

    @property
    def created(self) -> list[str]:
        """Digests of the jobs that have a container."""
        return [one["Labels"]["dlsched.digest"] for one in self.engine.containers({})]

    def begin(self, command: str, job: str = "job") -> Outcome:
        self.now_s += 1.0
        outcome = self.machine.start(
            Start(job_spec(job, (command,)), Limits(0.5), 1024), self.now_s
        )
        self.machine.take(self.executor.ended())
        return outcome

    def go_on(self) -> None:
        """What was held is made."""
        self.executor.go_on()
        self.machine.take(self.executor.ended())

    def begun(self, listing: Listing | None = None) -> list[tuple[str, str]]:
        return [(one.job, one.stage) for one in self.machine.begun(listing)]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def digest(command: str) -> str:
    return job_spec("job", (command,)).digest


def test_start_under_way_is_not_begun_twice(bench: Bench) -> None:
    bench.executor.held = True
    assert bench.begin("a").status == "begun"
    assert bench.begin("a").detail == "starting already"
    assert bench.begin("b").status == "failed", "a newer spec does not overtake a creation"
    bench.go_on()
    assert bench.created == [digest("a")]
    assert bench.woken == ["job: start done"]
    assert bench.begun(Listing(0.0)) == [("job", "starting")]
    assert bench.begun(Listing(10.0)) == []


def test_after_a_pull_its_limits_are_decided_again(bench: Bench) -> None:
    bench.engine.engine.there = set()
    bench.begin("a")
    assert (bench.created, bench.begun(Listing(10.0))) == ([], [("job", "pulled")])
    bench.begin("a")
    assert bench.created == [digest("a")]


def test_a_pull_for_an_older_spec_makes_no_container(bench: Bench) -> None:
    bench.executor.held, bench.engine.engine.there = True, set()
    bench.begin("a")
    (older,) = bench.executor._open
    assert isinstance(older, StartJob)
    bench.machine.take([Pulls(older, lambda: "7 %")])
    assert [one.detail for one in bench.machine.begun(None)] == ["7 %"]
    assert bench.begin("a").detail == "pulling already"
    assert bench.begin("b").status == "begun"
    bench.go_on()
    assert bench.created == [digest("b")]
    assert bench.begun(Listing(0.0)) == [("job", "starting")], "by the newer spec, not only pulled"


@pytest.mark.parametrize(
    ("reason", "retryable"),
    [
        ("exec: no such file", False),
        ("driver failed: port is already allocated", True),
        ("container is marked for removal and cannot be started", True),
        ("No such container: 4c01db0b339c", True),
    ],
)
def test_a_container_that_does_not_start_is_taken_away(
    bench: Bench, tmp_path: Path, reason: str, retryable: bool
) -> None:
    bench.engine.refused["start"] = EngineRefused(500, reason)
    bench.begin("a")
    (word,) = bench.machine.begun(None)
    assert (word.stage, word.detail, word.retryable) == ("failed", reason, retryable)
    assert bench.created == []
    (record,) = Originals(tmp_path).all().values()  # recorded before its start
    assert (record.job, record.adopted, record.given_back) == ("job", False, False)


@pytest.mark.parametrize("whose", ["nobody's", "another's", "its image's"])
def test_a_name_that_is_taken_is_left_to_who_has_it(bench: Bench, whose: str) -> None:
    spec = job_spec("job", ("a",))
    labels = {} if whose == "nobody's" else labels_of(spec, "i", "")
    if whose == "another's":
        labels["dlsched.job"] = "other"
    key = bench.engine.create("dlsched-i-job", {"Image": "x", "Labels": labels})
    bench.engine.answers[f"image image-of-{key}"] = {"Config": {"Labels": labels}}
    bench.begin("a")
    (word,) = bench.machine.begun(None)
    assert word.detail.startswith(f"the name dlsched-i-job is taken by container {key[:12]}")
    assert not word.retryable
    assert bench.engine.all[key].status == "created"


def test_a_container_of_an_older_spec_in_the_way_is_worth_trying_again(bench: Bench) -> None:
    bench.begin("a")
    bench.begin("b")
    (word,) = bench.machine.begun(None)
    assert "made from an older version of the job, is still there" in word.detail
    assert word.retryable


def test_job_without_a_record_does_not_start(bench: Bench) -> None:
    with full_disk():
        bench.begin("a")
    (word,) = bench.machine.begun(None)
    assert word.detail.endswith("cannot be recorded: No space left on device")
    assert word.retryable
    assert bench.created == []


def test_a_failure_stays_until_the_next_start(bench: Bench) -> None:
    bench.engine.refused["start"] = EngineRefused(500, "no")
    bench.begin("a")
    assert bench.begun(Listing(10.0)) == [("job", "failed")]
    bench.engine.refused.clear()
    bench.begin("a")
    assert bench.woken == ["job: start failed", "job: start done"]
    assert bench.begun(Listing(10.0)) == []


def test_of_very_many_failures_the_oldest_are_forgotten(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starts, "KEPT", 2)
    bench.engine.refused["start"] = EngineRefused(500, "no")
    for job in ("one", "two", "one", "three", "four"):
        bench.begin("a", job)
    assert bench.begun() == [("three", "failed"), ("four", "failed")]


def test_what_is_under_way_is_never_forgotten(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starts, "KEPT", 1)
    bench.executor.held = True
    bench.begin("a", "one")
    bench.begin("a", "two")
    assert bench.begun() == [("one", "starting"), ("two", "starting")]
