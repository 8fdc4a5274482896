"""The Debian package under a real systemd: its service over an upgrade and a removal."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from tests.systemd.host import Host, host
from tests.systemd.test_service import ADOPTED, HELD, limits, quota
from tools.debian_package import package
from tools.engine import REQUIRE
from tools.release import wheels
from tools.steps import SetupError

pytestmark = [pytest.mark.slow, pytest.mark.engine, pytest.mark.timeout(1800)]

SETTINGS = "policy: held:HeldPolicy\nreserve: {cpus: 0, memory: 64MiB}\nperiod: 200ms\n"
FAILING = """
#!/bin/sh
[ "$1" != release ] || exit 3
exec /usr/lib/dlsched/bin/python -sP /root/launcher "$@"
"""
DROP_IN = "[Service]\nEnvironment=PYTHONPATH=/etc/dlsched/policies\n"


@pytest.fixture
def node(
    tmp_path: Path, docker_host: str, docker_client: docker.APIClient, instance: str
) -> Iterator[Host]:
    """A host with two versions of the package in /given, and nothing of dlsched installed."""
    wheels(tmp_path)
    (wheel,) = tmp_path.glob("dlsched-*.whl")
    made = {
        f"{name}.deb": package(wheel, version, 1_700_000_000, tmp_path, level=0)
        for name, version in (("earlier", "0.2.0"), ("later", "0.2.0+later"))
    }
    try:
        with host(docker_host, docker_client, instance) as one:
            one.carry_in("/given", made)
            yield one
    except SetupError as error:
        if os.environ.get(REQUIRE) == "1":
            raise
        pytest.skip(str(error))


def test_the_service_goes_on_over_an_upgrade_and_ends_before_its_files_do(node: Host) -> None:
    node.run(ADOPTED)
    node.wait(lambda: node.cpu_group("other"), 60, "the container")
    before = limits(node, "other")
    said = node.run("apt-get -q -y install /given/earlier.deb")
    assert "dlsched: nothing is started yet: `dlsched doctor`, then `systemctl enable" in said
    unit = "/usr/lib/systemd/system/dlsched.service"
    assert node.run(f"systemd-analyze verify {unit}") == ""
    held = (Path(__file__).parent / "held.py").read_text()
    node.write("/etc/dlsched/policies/held.py", held)
    node.write("/etc/dlsched/dlsched.yaml", SETTINGS)
    node.write("/etc/systemd/system/dlsched.service.d/test.conf", DROP_IN)
    node.run("systemctl daemon-reload; systemctl enable --now dlsched")
    node.wait(lambda: quota(node, "other") == HELD, 120, "the container to be held")

    first = node.show("MainPID")
    node.run("apt-get -q -y install /given/later.deb")
    node.wait(lambda: node.show("ActiveState")["ActiveState"] == "active", 120, "the service")
    assert node.show("MainPID") != first
    node.wait(lambda: quota(node, "other") == HELD, 120, "the container to be held again")
    assert "first start" not in node.log().rpartition("Stopping")[2]

    # A removal that is refused leaves the service as it was.
    launcher = "/usr/lib/dlsched/bin/dlsched"
    node.run(f"mv {launcher} /root/launcher")
    node.write(launcher, FAILING)
    node.run(f"chmod +x {launcher}")
    said = node.run("apt-get -q -y remove dlsched", code=100)
    assert "dlsched: not removed: limits are not given back" in said
    node.wait(lambda: quota(node, "other") == HELD, 120, "the container to be held once more")
    node.run(f"mv /root/launcher {launcher}")

    node.run("apt-get -q -y remove dlsched")
    assert limits(node, "other") == before
    assert node.run("systemctl is-active dlsched", code=None) == "inactive"
    assert node.run("ls /etc/systemd/system/multi-user.target.wants/dlsched.service", code=2)
    node.run("apt-get -q -y purge dlsched; rm -r /etc/systemd/system/dlsched.service.d")
    left = "find / -xdev -path '*dlsched*' ! -path '/src/*' ! -path '/given/*' ! -type d"
    assert node.run(f"{left}; grep ^dlsched /etc/group", code=None) == ""
