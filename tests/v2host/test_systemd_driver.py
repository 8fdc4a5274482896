"""What systemd does to containers' limits, and that all come back all the same."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import docker
import pytest

from dlsched.model.spec import Limits
from dlsched.runtime.cgroup.read import CgroupReader
from dlsched.runtime.machine.outcomes import Own, Untouchable
from tests.runtime.docker.limits.test_writer_engine import Agent, Make
from tests.v2host.inside import group_of, limits_of, shell, until

pytestmark = [pytest.mark.v2host, pytest.mark.engine]

SPIN = ("sh", "-c", "while :; do :; done")


def reload_systemd() -> None:
    shell("systemctl daemon-reload")


def test_this_is_the_host_that_was_asked_for(docker_client: docker.APIClient) -> None:
    told = docker_client.info()
    assert (told["CgroupVersion"], told["CgroupDriver"]) == ("2", "systemd")


def test_everything_that_is_read_has_a_value(docker_client: docker.APIClient, make: Make) -> None:
    one = make(SPIN, CpuQuota=20_000, CpuShares=512, Memory=100_000_001)
    one.write_burst(5_000)
    assert group_of(docker_client, one.id).name == f"docker-{one.id}.scope"
    with closing(CgroupReader(one.state["Pid"])) as reader:
        first = reader.read()
        assert (first.quota_us, first.period_us, first.burst_us) == (20_000, 100_000, 5_000)
        assert (first.weight, first.shares) == (20, None)
        assert first.usage_core_s is not None and first.usage.memory_bytes is not None
        assert first.usage.memory_bytes > 0
        # Microseconds: taken for nanoseconds or seconds it would be nowhere near.
        until(lambda: (reader.read().usage_core_s or 0) > first.usage_core_s + 0.5, "CPU time")
        until(lambda: (reader.read().throttled_periods or 0) > 0, "a throttled period")
        assert (reader.read().usage_core_s or 0) < 60
        until(
            lambda: (reader.read().usage.cpu_wait_ratio or 0) > 0.1, "pressure of a throttled job"
        )
        assert (reader.read().usage.cpu_wait_ratio or 0) <= 1


def test_1024_shares_are_less_than_none_and_what_is_given_back_is_the_latter(
    docker_client: docker.APIClient, agent: Agent, make: Make
) -> None:
    untouched = make()
    before = limits_of(docker_client, untouched.id)
    assert before["cpu.weight"] == "100\n"
    docker_client.update_container(untouched.id, cpu_shares=1024)
    assert limits_of(docker_client, untouched.id)["cpu.weight"] == "39\n"
    own = make()
    agent.hands.set(own.id, Limits(0.3), 512, own=Own("alpha", 0.5))
    assert limits_of(docker_client, own.id)["cpu.weight"] == "20\n"
    assert agent.give_back(own) is None
    assert limits_of(docker_client, own.id) == {**before, "cpu.max": "50000 100000\n"}


@pytest.mark.parametrize(
    "words",
    [
        {},
        pytest.param(
            {"CpuQuota": 30_000, "CpuPeriod": 50_000, "CpuShares": 77, "Memory": 100_000_001},
            marks=pytest.mark.gate,
        ),
        {"NanoCpus": 370_000_000, "CpuShares": 2},
    ],
    ids=["no limit", "quota and shares", "cpus and shares"],
)
def test_a_reload_of_systemd_changes_nothing_that_was_set_or_given_back(
    docker_client: docker.APIClient, agent: Agent, make: Make, words: dict[str, Any]
) -> None:
    one = make(**words)
    before = limits_of(docker_client, one.id)
    reload_systemd()
    assert limits_of(docker_client, one.id) == before
    agent.hands.set(one.id, Limits(0.25), 2048, burst_cores=0.05)
    held = limits_of(docker_client, one.id)
    assert (held["cpu.max"], held["cpu.max.burst"]) == ("25000 100000\n", "5000\n")
    reload_systemd()
    assert limits_of(docker_client, one.id) == held
    assert agent.give_back(one) is None
    assert limits_of(docker_client, one.id) == before
    reload_systemd()
    assert limits_of(docker_client, one.id) == before


def test_the_idle_class_is_taken_again_after_a_reload_of_systemd_and_given_back(
    docker_client: docker.APIClient, agent: Agent, make: Make
) -> None:
    one, own = make(), Own("alpha", None)
    before = limits_of(docker_client, one.id)
    agent.hands.set(one.id, Limits(0.3), 6, idle=True, own=own)
    assert limits_of(docker_client, one.id)["cpu.idle"] == "1\n"
    reload_systemd()
    agent.hands.set(one.id, Limits(0.2), 6, idle=True, own=own)
    held = limits_of(docker_client, one.id)
    assert (held["cpu.idle"], held["cpu.max"]) == ("1\n", "20000 100000\n")
    agent.hands.set(one.id, Limits(0.2), 512, own=own)
    back = limits_of(docker_client, one.id)
    assert (back["cpu.idle"], back["cpu.weight"]) == ("0\n", "20\n")
    agent.hands.set(one.id, Limits(0.2), 6, idle=True, own=own)
    assert agent.give_back(one) is None
    assert limits_of(docker_client, one.id) == before


def test_a_quota_finer_than_systemds_grain_comes_back_or_is_not_touched(
    docker_client: docker.APIClient, agent: Agent, make: Make
) -> None:
    fine = make(CpuQuota=37_777)
    before = limits_of(docker_client, fine.id)
    if agent.hands.refusal(fine.id) is None:
        agent.change(fine)
        assert agent.give_back(fine) is None
        assert limits_of(docker_client, fine.id) == before
    reload_systemd()
    rounded = limits_of(docker_client, fine.id)
    assert rounded["cpu.max"] == "38000 100000\n"
    with pytest.raises(Untouchable, match="written past the engine"):
        agent.hands.set(fine.id, Limits(0.2), 1024)
    assert limits_of(docker_client, fine.id) == rounded


def test_what_is_written_by_hand_after_a_change_is_mended(
    docker_client: docker.APIClient, agent: Agent, make: Make
) -> None:
    one = make(CpuShares=512)
    before = limits_of(docker_client, one.id)
    agent.hands.set(one.id, Limits(0.25), 2048)
    held = limits_of(docker_client, one.id)
    (group_of(docker_client, one.id) / "cpu.max").write_text("77000 100000")
    agent.hands.set(one.id, Limits(0.25), 2048)
    assert limits_of(docker_client, one.id) == held
    (group_of(docker_client, one.id) / "cpu.weight").write_text("3333")
    assert agent.give_back(one) is None
    assert limits_of(docker_client, one.id) == before
