"""DockerRuntime on a real engine: start, observe, resize, remove, and what goes wrong."""

from __future__ import annotations

import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

from dlsched.model.facts import ContainerFact, ContainerState
from dlsched.model.spec import Limits
from dlsched.runtime.allotment import job_dir, read_allotment
from dlsched.runtime.docker import listing
from tests.runtime.docker.rig import Rig, cpu_files, fact, job_spec, options_for
from tests.waiting import until

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


def deaf(rig: Rig, name: str) -> ContainerFact:
    """A job that does not end when it is asked to."""
    ignores = "import signal,time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True)\n"
    found = rig.start(job_spec(name, ("python", "-c", ignores + "while True: time.sleep(1)")))
    rig.until(lambda _: b"deaf" in rig.client.logs(found.container_id))
    return found


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


@pytest.mark.contract
def test_an_exit_is_seen_at_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.until(lambda _: rig.runtime._events._stream is not None)  # events are listened to
    found = rig.start(job_spec("dies"))
    rig.wakes.clear()
    monkeypatch.setattr(listing, "EVERY_S", 3600.0)  # only the event has it listed
    rig.client.kill(found.container_id)
    until(lambda: any("die" in wake for wake in rig.wakes), "the event", every_s=0.005)
    assert rig.until_state("dies", ContainerState.EXITED).exit_code == 137


@pytest.mark.gate
@pytest.mark.contract
def test_another_instances_containers_are_not_seen_nor_touched(
    rig: Rig, docker_host: str, tmp_path: Path
) -> None:
    mine = rig.start(job_spec("mine"))
    folder = tmp_path / "other"  # with records of its own
    folder.mkdir()
    with closing(
        Rig(options_for(docker_host, f"{rig.options.instance}x", folder), docker_host)
    ) as other:
        assert other.until(lambda s: s.engine_ok).containers == ()
        assert other.remove(mine).status == "done"
        assert other.resize(mine, 0.1).status == "failed"
    now = rig.fact("mine")
    assert (now.state, now.actual) == (ContainerState.RUNNING, Limits(0.5))


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
