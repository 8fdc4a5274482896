"""The service under a real systemd: installed, reloaded, hung, killed, stopped, removed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.systemd.host import IMAGE, Host, host
from tools.engine import REQUIRE
from tools.steps import SetupError

pytestmark = [pytest.mark.slow, pytest.mark.engine]

CEILING = 100_000
"""Of the job's spec, as a quota: one core."""
HELD = 20_000
"""What the policy gives."""

FILES = ("cpu.cfs_*_us", "cpu.shares", "cpu.max*", "cpu.weight")
"""Of a group's CPU limits, on cgroup v1 and v2."""

SETTINGS = """
policy: held:HeldPolicy
reserve: {cpus: 0, memory: 64MiB}
period: 200ms
deliver_hook: {command: [/usr/bin/id, -u], user: nobody}
"""
JOB = f"""
name: alpha
image: {IMAGE}
network: none
user: "1000:1000"
command:
  - sh
  - -c
  - |
    umask 077
    step=1
    while true; do
      line="{{\\"t\\": 1, \\"latency_s\\": [0.02], \\"step\\": $step, \\"accuracy\\": 0.95}}"
      echo "$line" >> "$DLSCHED_METRICS_FILE"
      step=$((step + 1))
      sleep 0.2
    done
cpus: {{min: 0.05, max: 1}}
stop: {{grace: 1s}}
target: {{latency: 50ms}}
"""
REPORT = r"{\"t\": 1, \"latency_s\": [0.02]}"
ADOPTED = f"""
docker run -d --name other --network none --cpus 0.7 --label dlsched.enable=true \\
    --label dlsched.target.latency=50ms --label dlsched.metrics.path=/metrics.jsonl {IMAGE} \\
    sh -c 'while true; do echo "{REPORT}"; sleep 0.2; done >/metrics.jsonl'
"""
# Quicker than the unit itself, and slow enough to look at the host between an end and a start.
DROP_IN = """
[Service]
Environment=PYTHONPATH=/etc/dlsched/policies
WatchdogSec=4s
RestartSec=6s
"""


@pytest.fixture(scope="module")
def installed(docker_host: str, docker_client: docker.APIClient, instance: str) -> Iterator[Host]:
    """A host with dlsched installed from this tree, and never started."""
    try:
        with host(docker_host, docker_client, instance) as one:
            one.run("cd /src && make install WHEELS=wheels")
            yield one
    except SetupError as error:
        if os.environ.get(REQUIRE) == "1":
            raise
        pytest.skip(str(error))


@pytest.fixture
def node(installed: Host) -> Host:
    """That host, its service active and the job held by the policy."""
    held = (Path(__file__).parent / "held.py").read_text()
    installed.write("/etc/dlsched/policies/held.py", held)
    installed.write("/etc/dlsched/dlsched.yaml", SETTINGS)
    installed.write("/etc/dlsched/jobs.d/alpha.yaml", JOB)
    installed.write("/run/systemd/system/dlsched.service.d/test.conf", DROP_IN)
    installed.run("systemctl daemon-reload; systemctl start dlsched", code=None)
    installed.wait(lambda: quota(installed) == HELD, 60, "the job to be held")
    return installed


def limits(node: Host, container: str) -> dict[str, str]:
    """What the kernel has in the container's files of CPU limits, by file."""
    wanted = " ".join(f"{node.cpu_group(container)}/{name}" for name in FILES)
    told = node.run(f"grep -Hs . {wanted}", code=None)
    lines = (line.rpartition("/")[2] for line in told.splitlines())
    return dict(line.partition(":")[::2] for line in lines)


def quota(node: Host, container: str = "dlsched-alpha") -> int | None:
    """The quota that the kernel has for the container; None: none, or no such container."""
    group = node.cpu_group(container)
    told = group and node.run(
        f"cat {group}/cpu.cfs_quota_us {group}/cpu.max 2>/dev/null", code=None
    )
    word = (told or "").partition(" ")[0]
    return int(word) if word.isdecimal() else None


def jobs(node: Host) -> dict[str, Any]:
    """The daemon's own account, by job; empty while it does not answer."""
    told = node.run("dlsched ps --output json 2>/dev/null", code=None)
    return {row["name"]: row for row in json.loads(told)["jobs"]} if told.startswith("{") else {}


def restarts(node: Host) -> int:
    return int(node.show("NRestarts")["NRestarts"])


def started_at(node: Host) -> object:
    state = node.inspect("dlsched-alpha")["State"]
    assert isinstance(state, dict)
    return state["StartedAt"]


def is_given_back_before_the_next_start(
    node: Host, result: str, also: Callable[[], None] = lambda: None
) -> None:
    """Between the agent's end and its next start the job has its ceiling, and `also` holds."""
    node.wait(lambda: node.show("SubState")["SubState"] == "auto-restart", 60, "the agent's end")
    assert quota(node) == CEILING, node.log()
    also()
    assert node.show("Result", "SubState") == {"Result": result, "SubState": "auto-restart"}
    node.wait(lambda: quota(node) == HELD, 60, "the job to be held again")
    assert jobs(node)["alpha"]["state"] == "running"


# The agent's packet sockets, for response times, are 0.2 of its exposure, and so is the call that
# shows whether threads spin.
@pytest.mark.parametrize(("name", "tenths"), [("dlsched", 34), ("dlsched-cluster", 30)])
def test_the_unit_is_quiet_and_its_exposure_is_low(installed: Host, name: str, tenths: int):
    unit = f"/usr/local/lib/systemd/system/{name}.service"
    assert installed.run(f"systemd-analyze verify {unit}") == ""
    installed.run(f"systemd-analyze security --offline=true --threshold={tenths} {unit}")


def test_it_is_active_once_the_first_cycle_ran(node: Host):
    seen = node.show("ActiveState", "Type", "StatusText", "NotifyAccess", "WatchdogUSec")
    assert seen["ActiveState"] == "active"
    assert (seen["Type"], seen["NotifyAccess"], seen["WatchdogUSec"]) == ("notify", "main", "4s")
    assert seen["StatusText"] == "1 of 1 jobs run, policy held:HeldPolicy"
    sockets = node.run("stat -c '%n %U %G %a' /run/dlsched/*.sock").splitlines()
    assert sockets == [
        "/run/dlsched/control.sock root dlsched-admin 660",
        "/run/dlsched/status.sock root dlsched 660",
    ]
    # In control groups it can write, as burst and the weight of its own group need it.
    weight = "/sys/fs/cgroup/*/dlsched-default/cpu.shares /sys/fs/cgroup/dlsched-default/cpu.weight"
    assert node.run(f"cat {weight} 2>/dev/null", code=None) in ("2048", "200")


def test_the_hardened_agent_reads_what_another_user_wrote_for_itself_alone(node: Host):
    node.wait(lambda: jobs(node)["alpha"]["requests"], 60, "requests from the sidecar")
    assert jobs(node)["alpha"]["measured_s"] == pytest.approx(0.02, rel=0.02)


def test_reload_takes_new_settings_in_the_same_process(node: Host):
    before = node.show("MainPID")
    fair = {"StatusText": "1 of 1 jobs run, policy fair", "ActiveState": "active"}
    node.write("/etc/dlsched/dlsched.yaml", SETTINGS.replace("held:HeldPolicy", "fair"))
    try:
        node.run("systemctl reload dlsched")
        node.wait(lambda: node.show(*fair) == fair, 60, "the new policy")
        assert node.show("MainPID") == before
    finally:
        node.write("/etc/dlsched/dlsched.yaml", SETTINGS)
        node.run("systemctl reload dlsched")


def test_a_frozen_agent_is_killed_and_started_again(node: Host):
    node.run("kill -STOP $(systemctl show -P MainPID dlsched)")
    is_given_back_before_the_next_start(node, "watchdog")


def test_a_policy_that_hangs_trips_the_watchdog_and_the_log_shows_where(node: Host):
    node.run("touch /etc/dlsched/hang")
    node.wait(lambda: node.show("SubState")["SubState"] == "auto-restart", 60, "the watchdog")
    node.run("rm /etc/dlsched/hang")
    is_given_back_before_the_next_start(node, "watchdog")
    assert "in decide" in node.log()


def test_an_engine_that_hangs_trips_nothing(node: Host):
    before = restarts(node), node.show("MainPID")
    node.run("kill -STOP $(pidof dockerd)")
    try:
        node.wait(lambda: "does not answer" in node.show("StatusText")["StatusText"], 60, "a hang")
        hung_s = time.monotonic()
        node.wait(lambda: time.monotonic() > hung_s + 8, 60, "twice the watchdog's time")
    finally:
        node.run("kill -CONT $(pidof dockerd)")
    node.wait(lambda: "answer" not in node.show("StatusText")["StatusText"], 60, "its return")
    assert (restarts(node), node.show("MainPID")) == before


def test_after_kill_9_limits_are_given_back_before_it_starts_again(node: Host):
    node.run(f"docker run -d --name twin --network none --cpus 0.7 {IMAGE} sleep 1000")
    node.run(ADOPTED)

    def as_if_never_touched() -> None:
        assert limits(node, "other") == limits(node, "twin")

    try:
        node.wait(lambda: quota(node, "other") == HELD, 60, "the adopted container to be held")
        node.run("kill -KILL $(systemctl show -P MainPID dlsched)")
        is_given_back_before_the_next_start(node, "signal", as_if_never_touched)
        node.wait(lambda: quota(node, "other") == HELD, 60, "it to be adopted again")
    finally:
        node.run("docker rm -f other twin")


def test_stop_gives_limits_back_and_leaves_the_job_running(node: Host):
    before = started_at(node)
    node.run("systemctl stop dlsched")
    assert quota(node) == CEILING
    assert node.show("ActiveState", "Result") == {"ActiveState": "inactive", "Result": "success"}
    assert node.run("ls /run/dlsched", code=None).endswith("No such file or directory")
    assert started_at(node) == before


def test_restart_sees_the_job_again_and_reads_its_sidecar(node: Host):
    before = started_at(node)
    node.run("systemctl restart dlsched")
    node.wait(lambda: jobs(node)["alpha"]["requests"], 60, "requests from the sidecar")
    assert jobs(node)["alpha"]["state"] == "running"
    assert started_at(node) == before
    # What it mounts has outlived the agent, too: it was made anew nowhere.
    told = node.run("docker exec dlsched-alpha sh -c 'cat $DLSCHED_ALLOTMENT_FILE'")
    assert json.loads(told)["cpu_cores"] in (0.2, 1.0)


def test_it_reaches_the_nodes_of_gpus_and_of_no_other_device(node: Host):
    """Stand-ins with the number of /dev/null: which nodes it is given does not hang on that."""
    others = "nvidiactl nvidia11 sda"
    node.run(f"for name in {others}; do mknod -m 666 /dev/$name c 1 3; done")
    try:
        node.run("systemctl restart dlsched")
        root = f"/proc/{node.show('MainPID')['MainPID']}/root"
        seen = node.run(f"ls {root}/dev").split()
        assert {"nvidiactl", "nvidia11", "null"} <= set(seen)
        assert not {"sda", "nvidia0"} & set(seen)
        node.run(f"echo through >{root}/dev/nvidia11")
        shown = node.show("DeviceAllow", "DevicePolicy", "PrivateDevices")
        assert (shown["DevicePolicy"], shown["PrivateDevices"]) == ("closed", "yes")
        assert "char-nvidia* rw" in shown["DeviceAllow"]
    finally:
        node.run(f"cd /dev && rm {others}; systemctl restart dlsched")


def test_the_operators_command_runs_as_its_own_user(node: Host):
    accuracy = JOB.replace("latency: 50ms", "metric: accuracy, deliver: 0.9, finish: 0.99")
    node.write("/etc/dlsched/jobs.d/beta.yaml", accuracy.replace("name: alpha", "name: beta"))
    nobody = node.run("id -u nobody")
    node.wait(lambda: f"s: {nobody}" in node.log(), 60, "the deliver_hook")


def test_uninstall_gives_limits_back_and_leaves_settings_and_state(node: Host):
    before = started_at(node)
    told = node.run("cd /src && make uninstall")
    assert quota(node) == CEILING
    assert started_at(node) == before
    assert "PURGE=1 removes" in told
    assert node.run("ls /usr/local/lib/dlsched /usr/local/bin/dlsched 2>/dev/null", code=None) == ""
    assert node.run("systemctl is-active dlsched", code=None) == "inactive"
    assert node.run("systemctl cat dlsched 2>&1", code=None).startswith("No files found")
    assert node.run("cat /etc/dlsched/dlsched.yaml") == SETTINGS.strip()
    assert node.run("ls /var/lib/dlsched/journal.db") == "/var/lib/dlsched/journal.db"
    node.run("cd /src && make uninstall PURGE=1; test ! -e /etc/dlsched -a ! -e /var/lib/dlsched")
