"""DockerRuntime on a real engine: start, observe, resize, remove, and what goes wrong."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from dlsched.model.actions import Start
from dlsched.model.facts import ContainerFact, ContainerState, OperationKind
from dlsched.model.spec import Bounds, Limits
from dlsched.runtime.allotment import job_dir, read_allotment
from dlsched.runtime.cgroup.read import CgroupReader
from dlsched.runtime.docker.doctor.engine import examine
from dlsched.runtime.docker.engine import Engine
from dlsched.runtime.docker.limits.writer import release_all
from tests.runtime.docker.rig import SPIN, Rig, cpu_files, fact, job_spec, options_for
from tests.waiting import until
from tools.base_image import BASE

pytestmark = pytest.mark.engine


@pytest.mark.gate
@pytest.mark.contract
def test_a_start_sets_the_quota_in_the_kernel_and_the_fact_reads_it_back(rig: Rig) -> None:
    found = rig.start(job_spec("quota"), cores=0.37, shares=512)
    assert found.actual == Limits(0.37)
    files = cpu_files(rig.client, found.container_id)
    if "cpu.max" in files:
        assert files["cpu.max"] == "37000 100000"
    else:
        assert found.cpu_shares == 512
        assert (files["cpu.cfs_quota_us"], files["cpu.cfs_period_us"]) == ("37000", "100000")
    body = rig.client.inspect_container(found.container_id)
    assert body["HostConfig"]["NanoCpus"] == 0
    assert body["Name"] == f"/dlsched-{rig.options.instance}-quota"
    assert body["Config"]["Labels"]["dlsched.instance"] == rig.options.instance


@pytest.mark.gate
def test_a_resize_goes_down_up_and_to_no_limit(rig: Rig) -> None:
    found = rig.start(job_spec("resized"), cores=1.0)
    for cores in (0.25, 1.5, None, 0.5):
        assert rig.resized(found, cores, shares=2048).engine_s > 0
        now = rig.fact("resized")
        assert now.actual == Limits(cores)
        assert now.cpu_shares in (2048, None)
    assert read_allotment(job_dir(rig.options.state_dir, "resized")).cpu_cores == 0.5


def test_a_running_container_is_counted(rig: Rig) -> None:
    rig.start(job_spec("busy", SPIN), cores=0.05)
    found = rig.until_fact("busy", lambda one: one.throttled_periods)
    assert found.periods and found.usage_core_s and found.memory_bytes
    seen = rig.observe()
    assert seen.host_busy_core_s is not None
    assert seen.node is not None and seen.node.cores >= 1


def deaf(rig: Rig, name: str) -> ContainerFact:
    """A job that does not end when it is asked to."""
    ignores = "import signal,time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True)\n"
    found = rig.start(job_spec(name, ("python", "-c", ignores + "while True: time.sleep(1)")))
    rig.until(lambda _: b"deaf" in rig.client.logs(found.container_id))
    return found


def test_a_stop_with_long_grace_blocks_nothing(rig: Rig) -> None:
    found = deaf(rig, "deaf")
    began_s = time.monotonic()
    assert rig.remove(found, grace_s=60, lift=Limits(1.5)).status == "begun"
    assert time.monotonic() - began_s < 10  # of 60 s of grace
    now = rig.until_fact("deaf", lambda one: one.actual == Limits(1.5))
    assert now.operation is not None
    assert now.operation.kind is OperationKind.STOPPING
    assert "of grace left" in now.operation.text
    began_s = time.monotonic()
    assert rig.remove(found, grace_s=60).status == "begun"
    rig.observe()
    assert time.monotonic() - began_s < 10
    assert rig.answered(found, 0.2).detail.startswith("operation under way: stopping")


def test_a_job_that_ends_is_told_its_last_limits_and_not_those_it_had(rig: Rig) -> None:
    found = deaf(rig, "told")
    rig.reopen()  # an agent that has not looked at the allotment yet
    now_s = rig.clock.now_s()
    while fact(rig.runtime.observe(now_s), "told") is None:
        time.sleep(0.02)
        rig.runtime.resume(now_s := rig.clock.now_s())
    # One cycle: what it does to the container is done before the allotments are looked after.
    assert rig.remove(found, grace_s=60, lift=Limits(1.5)).status == "begun"
    inside = job_dir(rig.options.state_dir, "told")
    until(lambda: read_allotment(inside).cpu_cores == 1.5, "its last allotment")
    rig.runtime.advance(now_s)
    assert read_allotment(inside).cpu_cores == 1.5


@pytest.mark.gate
@pytest.mark.contract
def test_a_container_past_its_grace_is_killed_and_removed(rig: Rig) -> None:
    spec = job_spec("obeys", ("sh", "-c", "trap '' TERM; while :; do sleep 1; done"))
    found = rig.start(spec)
    rig.remove(found, grace_s=0.5)
    seen = rig.until(lambda s: fact(s, "obeys") is None)
    assert seen.engine_ok


def test_a_start_of_the_same_digest_is_adopted(rig: Rig) -> None:
    spec = job_spec("again")
    first = rig.start(spec)
    rig.reopen()
    assert rig.apply(Start(spec, Limits(0.7), 1024)).status == "begun"
    now = rig.until_fact("again", lambda one: one.actual == Limits(0.7))
    assert (now.container_id, now.state) == (first.container_id, ContainerState.RUNNING)
    rig.until(lambda seen: not seen.begun)


@pytest.mark.gate
def test_release_gives_ceilings_and_default_shares_back(rig: Rig) -> None:
    bounded = rig.start(job_spec("bounded"), cores=0.1, shares=99)
    free = rig.start(job_spec("free"), cores=0.1, shares=99)
    backs = rig.runtime.release({"bounded": 1.5})
    assert [(back.job, back.failure) for back in backs] == [("bounded", None), ("free", None)]
    for found, cores in ((bounded, 1.5), (free, None)):
        now = rig.fact(found.job)
        assert now.actual == Limits(cores)
        assert now.state is ContainerState.RUNNING
        assert read_allotment(job_dir(rig.options.state_dir, found.job)).cpu_cores == cores
        files = cpu_files(rig.client, found.container_id)
        assert files.get("cpu.shares", "1024") == "1024"
        assert files.get("cpu.weight", "100") == "100"


@pytest.mark.gate
def test_a_burst_is_set_with_the_limit_lost_with_a_restart_and_set_again(rig: Rig) -> None:
    found = rig.start(job_spec("bursts"), cores=0.5)
    if found.burst_cores is None:
        pytest.skip("this kernel has no CFS burst")
    assert found.burst_cores == 0.0
    for cores, burst in ((0.5, 0.15), (0.1, 0.03), (1.0, 0.3), (0.2, 0.06)):
        rig.resized(found, cores, burst_cores=burst)
        now = rig.fact("bursts")
        assert (now.actual, now.burst_cores) == (Limits(cores), burst)
    rig.client.restart(found.container_id, timeout=0)
    now = rig.until_fact(
        "bursts", lambda one: one.state is ContainerState.RUNNING and one.burst_cores == 0.0
    )
    assert now.actual == Limits(0.2)
    rig.resized(now, 0.2, burst_cores=0.06)
    now = rig.fact("bursts")
    assert now.burst_cores == 0.06
    (back,) = rig.runtime.release({"bursts": 1.0})
    assert back.failure is None
    now = rig.fact("bursts")
    assert (now.actual, now.burst_cores) == (Limits(1.0), 0.0)


@pytest.mark.gate
def test_what_was_left_by_an_agent_that_was_killed_is_released_from_the_records(rig: Rig) -> None:
    spec = replace(job_spec("left"), bounds=Bounds(0.1, 1.5))
    found = rig.start(spec, cores=0.1, shares=99)
    (back,) = release_all(rig.options)
    assert (back.job, back.failure) == ("left", None)
    assert back.now.startswith("1.5 cores (period 100000 us), ")
    # It uses no CPU: what somebody else set is seen once the engine tells, or after 5 s.
    now = rig.until_fact("left", lambda one: one.actual == Limits(1.5))
    assert now.container_id == found.container_id
    assert release_all(rig.options) == ()


def test_logs(rig: Rig) -> None:
    waits = "trap 'echo last; exit' TERM; for i in 1 2 3 4; do echo line $i; done"
    script = f"{waits}; while :; do sleep 0.1; done"
    found = rig.start(job_spec("talks", ("sh", "-c", script)))
    lines = rig.runtime.logs("talks", 10, True)
    begun = b""
    while b"line 4" not in begun:
        begun += next(lines)
    rig.client.kill(found.container_id, "TERM")
    followed = (begun + b"".join(lines)).decode()
    assert followed.splitlines() == ["line 1", "line 2", "line 3", "line 4", "last"]
    assert b"".join(rig.runtime.logs("talks", 2, False)) == b"line 4\nlast\n"
    with pytest.raises(KeyError):
        next(rig.runtime.logs("nobody", 1, False))


@pytest.mark.gate
@pytest.mark.contract
def test_another_instances_containers_are_not_seen_nor_touched(
    rig: Rig, docker_host: str, tmp_path: Path
) -> None:
    mine = rig.start(job_spec("mine"))
    with closing(
        Rig(options_for(docker_host, f"{rig.options.instance}x", tmp_path), docker_host)
    ) as other:
        assert other.until(lambda s: s.engine_ok).containers == ()
        assert other.remove(mine).status == "done"
        assert other.resize(mine, 0.1).status == "failed"
    now = rig.fact("mine")
    assert (now.state, now.actual) == (ContainerState.RUNNING, Limits(0.5))


@pytest.mark.gate
def test_parent_group_has_its_weight_and_ends_with_its_containers(
    rig: Rig, docker_host: str, tmp_path: Path
) -> None:
    options = options_for(docker_host, f"{rig.options.instance}b", tmp_path, group_weight=4.0)
    labels = {
        "dlsched.enable": "true",
        "dlsched.instance": options.instance,
        "dlsched.target.latency": "50ms",
    }
    with ExitStack() as ending:
        light = ending.enter_context(closing(Rig(options, docker_host)))
        found = light.start(job_spec("light"), shares=256)
        reader = CgroupReader(light.client.inspect_container(found.container_id)["State"]["Pid"])
        reader.close()
        assert reader.cpu_folder is not None
        group = reader.cpu_folder.parent
        assert options.instance in group.name
        name, alone = ("cpu.weight", "400") if reader.v2 else ("cpu.shares", "4096")
        file, inside = group / name, (reader.cpu_folder / name).read_text()
        assert reader.v2 or inside == "256\n"
        light.until(lambda _: file.read_text().strip() == alone)
        host = light.client.create_host_config(network_mode="none", init=True)
        made = light.client.create_container(
            BASE, ["sleep", "600"], labels=labels, host_config=host
        )
        ending.callback(light.client.remove_container, made["Id"], force=True)
        light.client.start(made["Id"])
        light.until(lambda _: file.read_text() == inside)
    assert not group.exists()


def test_doctor_finds_nothing_wrong_here(rig: Rig) -> None:
    rig.runtime.check_engine()
    with closing(Engine(rig.options.host, 10.0)) as engine:
        findings = list(examine(engine))
    assert [one.what for one in findings][:2] == ["engine", "cgroup"]
    assert all(one.state == "ok" for one in findings)


def test_descriptors_are_closed_with_their_container(rig: Rig) -> None:
    rig.until(lambda seen: seen.engine_ok)
    found = rig.start(job_spec("brief"))
    open_files = len([name for name in _open_files() if found.container_id in name])
    assert open_files >= 3
    rig.remove(found, grace_s=0.1)
    rig.until(lambda seen: fact(seen, "brief") is None)
    assert not [name for name in _open_files() if found.container_id in name]


def _open_files() -> list[str]:
    names = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            names.append(str(descriptor.readlink()))
    return names
