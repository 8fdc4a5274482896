"""Limits given back by a real daemon, or by a command after it was killed, on a real engine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress

import docker
import pytest

from dlsched.runtime.cgroup.group_limits import LimitFiles
from tests.daemon.forked import command, session
from tests.daemon.test_daemon import alarms, goes_on
from tools.base_image import BASE
from tools.session import Session, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.engine]


SPEC = f"""
name: own
image: {BASE}
command: [sleep, "600"]
network: none
cpus: {{min: 0.05, max: 1}}
stop: {{grace: 1s}}
target: {{latency: 50ms}}
"""
THEIRS = {"dlsched.enable": "true"}
FIXED = "tools.fixed_policy:FixedPolicy"


class Host:
    """A session with one job of a file, and one container that asks to be adopted."""

    def __init__(self, node: Session, client: docker.APIClient) -> None:
        self.node = node
        self.client = client
        self.theirs_name = f"theirs-{node.instance}"
        labels = {**THEIRS, "dlsched.instance": node.instance}
        config = client.create_host_config(
            cpu_quota=40_000, cpu_period=50_000, cpu_shares=333, mem_limit="100000001b"
        )
        made = client.create_container(
            BASE,
            ["sleep", "600"],
            name=self.theirs_name,
            labels=labels,
            host_config={**config, "NetworkMode": "none", "RestartPolicy": {"Name": "always"}},
        )
        self.theirs = str(made["Id"])
        client.start(self.theirs)
        self.before = self.files(self.theirs)
        node.drop("own", SPEC)

    @property
    def own(self) -> str:
        return str(self.client.inspect_container(f"dlsched-{self.node.instance}-own")["Id"])

    def start(self) -> None:
        """The daemon, and both under the limits that it decides."""
        cores = f"own=0.2,{self.theirs_name}=0.3"
        self.node.start(FIXED, {"cores": cores})
        wait_for(self._limited, 30, "both limits")

    def files(self, container: str) -> Mapping[str, str]:
        pid = self.client.inspect_container(container)["State"]["Pid"]
        return LimitFiles(pid, container).read().files

    def quota(self, container: str) -> int:
        return int(self.client.inspect_container(container)["HostConfig"]["CpuQuota"])

    def assert_given_back(self) -> None:
        assert self.files(self.theirs) == self.before
        host = self.client.inspect_container(self.theirs)["HostConfig"]
        words = (host["CpuQuota"], host["CpuPeriod"], host["CpuShares"], host["NanoCpus"])
        assert words == (40_000, 50_000, 333, 0)
        assert (host["Memory"], host["RestartPolicy"]["Name"]) == (100_000_001, "always")
        assert self.quota(self.own) == 100_000

    def _limited(self) -> bool:
        with suppress(docker.errors.NotFound):
            return (self.quota(self.own), self.quota(self.theirs)) == (20_000, 30_000)
        return False


@pytest.fixture
def host(
    docker_host: str,
    base_image: str,
    docker_client: docker.APIClient,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Host]:
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    with session() as node:
        made = Host(node, docker_client)
        try:
            yield made
        finally:
            docker_client.remove_container(made.theirs, force=True)


@pytest.mark.gate
def test_after_a_kill_the_command_gives_everything_back(host: Host) -> None:
    host.start()
    assert host.files(host.theirs) != host.before
    host.node.kill()
    done = command(host.node, "release")
    assert done.returncode == 0, done
    own, theirs = done.stdout.splitlines()
    assert own.startswith("own (job ") and "1 cores (period 100000 us), " in own
    assert theirs.startswith(f"{host.theirs_name} (adopted {host.theirs[:12]}): 0.8 cores")
    host.assert_given_back()
    again = command(host.node, "release")
    assert (again.returncode, again.stdout) == (0, "")
    assert again.stderr == "no container has limits set by dlsched\n"


@pytest.mark.gate
def test_killed_and_started_again_it_goes_on_and_gives_back_at_its_end(host: Host) -> None:
    host.start()
    for _ in range(2):
        host.node.kill()
        host.start()
    host.node.stop()
    host.assert_given_back()


@pytest.mark.gate
def test_a_running_daemon_gives_back_and_holds_still_until_it_is_resumed(host: Host) -> None:
    host.start()
    done = command(host.node, "release", "-o", "json")
    assert done.returncode == 0, done
    given_back = json.loads(done.stdout)["containers"]
    assert {one["job"]: one["failure"] for one in given_back} == {
        "own": None,
        host.theirs_name: None,
    }
    host.assert_given_back()
    goes_on(host.node, 4)
    host.assert_given_back()
    alarms(host.node, "all limits were given back by `dlsched release`")

    host.node.kill()  # it holds over a restart
    host.node.start(FIXED, {"cores": "own=0.2"})
    goes_on(host.node, 4)
    host.assert_given_back()

    assert command(host.node, "release", "--resume").returncode == 0
    wait_for(lambda: host.quota(host.own) == 20_000, 30, "the limit again")

    # A limit is set within a cycle, and told at its end.
    text = "released"
    wait_for(lambda: text not in str(host.node.client.jobs()["alarms"]), 30, "no alarm any more")


def test_what_another_agent_limited_and_this_one_does_not_manage_is_given_back_at_start(
    host: Host,
) -> None:
    host.start()
    host.node.kill()
    own = host.own
    (host.node.watch / "own.yaml").unlink()
    host.node.start(FIXED, more={"instance": f"{host.node.instance}x"})
    wait_for(lambda: host.quota(own) == 100_000, 30, "the ceiling")
    wait_for(lambda: host.files(host.theirs) == host.before, 30, "the original limits")


def test_a_container_that_fails_makes_the_exit_code_1(host: Host) -> None:
    host.start()
    host.node.kill()
    record = host.node.state_dir / "originals" / f"{host.theirs}.json"
    record.write_text("{")
    done = command(host.node, "release")
    assert done.returncode == 1
    assert "FAILED: the record of the container's original limits cannot be read: " in done.stdout
    assert host.quota(host.own) == 100_000


def test_without_an_engine_it_ends_with_3(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.start()
    host.node.kill()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{host.node.root}/nobody.sock")
    monkeypatch.setenv("DLSCHED_ENGINE_HOST", f"unix://{host.node.root}/nobody.sock")
    done = command(host.node, "release")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("\n") == 1
