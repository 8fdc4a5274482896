"""The Debian package, in a bare Debian 12 and 13: installed, at work, upgraded, removed, purged."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import docker
import pytest

from dlsched.runtime.originals import Original, Originals
from tests.conftest import group_for
from tests.package.bare import Bare, bare
from tests.waiting import until
from tools.debian_package import package
from tools.engine_remains import cgroup_mounts
from tools.release import wheels

pytestmark = [pytest.mark.slow, pytest.mark.engine, pytest.mark.timeout(1800)]

TIME_S = 1_700_000_000
EARLIER, LATER = "0.2.0", "0.2.0+later"
REQUESTS = """
import json, time
while True:
    began = time.monotonic()
    until = time.process_time() + 0.02
    while time.process_time() < until:
        pass
    took = time.monotonic() - began
    with open("/tmp/metrics.jsonl", "a") as file:
        file.write(json.dumps({"t": time.time(), "latency_s": [took]}) + "\\n")
    time.sleep(0.05)
"""
OWN_LIMITS = {"cpu_period": 50_000, "cpu_quota": 45_000, "cpu_shares": 512}
LIMITS = ("cpu.cfs_*_us", "cpu.shares", "cpu.idle", "cpu.max*", "cpu.weight")
SETTINGS = "instance: {instance}\nengine: {{cgroup_parent: {group}}}\nperiod: 1s\n"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of this tree, as small as it need not be, and the same as a later version."""
    folder = tmp_path_factory.mktemp("deb")
    wheels(folder)
    (wheel,) = folder.glob("dlsched-*.whl")
    for version in (EARLIER, LATER):
        package(wheel, version, TIME_S, folder, level=0)
    return folder


@pytest.fixture(params=[12, 13])
def host(request: pytest.FixtureRequest, packages: Path, docker_host: str) -> Iterator[Bare]:
    """A bare Debian, with the packages in /tmp, and the package lists of its release."""
    if not docker_host.startswith("unix://"):
        pytest.skip(f"the engine's socket cannot be mounted: {docker_host}")
    with bare(request.param, Path(docker_host.removeprefix("unix://"))) as one:
        for file in packages.glob("*.deb"):
            shutil.copy(file, one.root / "tmp")
        one.run("apt-get -q update")
        yield one


@pytest.fixture
def containers(docker_client: docker.APIClient, base_image: str) -> Iterator[tuple[str, str]]:
    """Two that run, with limits of their own: a service, and one that only computes."""
    made = []
    try:
        for program in (REQUESTS, "while True: pass"):
            name = f"deb-{secrets.token_hex(3)}"
            limits = docker_client.create_host_config(network_mode="none", init=True, **OWN_LIMITS)
            docker_client.create_container(
                base_image, ["python3", "-c", program], name=name, host_config=limits
            )
            made.append(name)
            docker_client.start(name)
        service, batch = made
        yield service, batch
    finally:
        for name in made:
            docker_client.remove_container(name, force=True, v=True)


def limits_of(client: docker.APIClient, names: Sequence[str]) -> dict[str, bytes]:
    """What the kernel has in the containers' files of CPU limits."""
    containers = [client.inspect_container(name)["Id"] for name in names]
    found = {
        str(path): path.read_bytes()
        for mount in cgroup_mounts()
        for container in containers
        for folder in mount.rglob(f"*{container}*")
        for pattern in LIMITS
        for path in folder.glob(pattern)
    }
    assert found
    return found


@pytest.fixture
def lonely(packages: Path) -> Iterator[Bare]:
    """A Debian without any engine, and the package in /tmp."""
    with bare(12, None) as one:
        shutil.copy(packages / f"dlsched_{EARLIER}_amd64.deb", one.root / "tmp")
        one.run("apt-get -q update")
        yield one


def test_without_an_engine_it_comes_and_goes_unless_a_container_lacks_something(
    lonely: Bare,
) -> None:
    # Of a checkout's `make install`, whose daemon runs.
    other = lonely.root / "usr" / "local" / "lib" / "dlsched" / "bin" / "dlsched"
    other.parent.mkdir(parents=True)
    other.write_text("#!/bin/sh\nsleep 600\n")
    state = lonely.root / "var" / "lib" / "dlsched"
    state.mkdir(parents=True)
    with subprocess.Popen(["sh", str(other)]) as foreign:
        (state / "lock").write_text(json.dumps({"pid": foreign.pid, "instance": "default"}))
        said = lonely.run(f"apt-get -q -y install /tmp/dlsched_{EARLIER}_amd64.deb")
        foreign.kill()
    lines = [line for line in said.splitlines() if line.startswith("dlsched: ")]
    assert len(lines) == 4, said
    assert "goes first: run `make uninstall` in its checkout" in lines[0]
    assert f"a daemon runs already (process {foreign.pid}): end it before" in lines[1]
    assert lines[2] == "dlsched: no Docker Engine here yet (/var/run/docker.sock)"
    assert lines[3] == "dlsched: no systemd here: `dlsched doctor`, then `dlsched run`"
    said = lonely.run("apt-get -q -y purge dlsched")
    assert "dlsched: settings and state stay: the installation in /usr/local uses them" in said
    assert (state / "lock").exists()
    shutil.rmtree(other.parents[1])

    lonely.run(f"apt-get -q -y install /tmp/dlsched_{EARLIER}_amd64.deb")
    assert "no container has limits set by dlsched" in lonely.run("apt-get -q -y remove dlsched")
    lonely.run(f"apt-get -q -y install /tmp/dlsched_{EARLIER}_amd64.deb")
    Originals(state).secure(Original("a" * 64, "asr", adopted=True))
    said = lonely.run("apt-get -q -y remove dlsched", code=100)
    assert "not removed: limits are not given back (above); DLSCHED_FORCE=1 removes it" in said
    assert lonely.run("dlsched --version") == "dlsched, version 0.2.0"
    lonely.run("apt-get -q -y purge dlsched", DLSCHED_FORCE="1")
    assert lonely.named() == set()


def test_what_was_adopted_has_its_own_limits_when_the_package_goes(
    host: Bare, containers: tuple[str, str], instance: str, docker_client: docker.APIClient
) -> None:
    service, batch = containers
    before = limits_of(docker_client, containers)
    assert host.named() == set()
    said = host.run(f"apt-get -q -y install /tmp/dlsched_{EARLIER}_amd64.deb")
    assert "dlsched: no systemd here: `dlsched doctor`, then `dlsched run`" in said
    assert host.run("dlsched --version") == "dlsched, version 0.2.0"
    group = group_for("").removesuffix("/dlsched-") or "null"
    settings = host.root / "etc" / "dlsched" / "dlsched.yaml"
    settings.write_text(SETTINGS.format(instance=f"{instance}-deb", group=group))

    def job() -> dict[str, Any]:
        said = host.run("dlsched ps -o json", code=None)
        jobs = json.loads(said)["jobs"] if said.startswith("{") else ()
        return next((one for one in jobs if one["name"] == service), {})

    def works() -> None:
        until(lambda: job().get("satisfied_slo"), "the target", every_s=1, shown=job)
        until(lambda: limits_of(docker_client, containers) != before, "limits set", every_s=1)

    with host.daemon() as daemon:
        host.run(f"dlsched adopt {service} --latency 500ms --metrics path=/tmp/metrics.jsonl")
        host.run(f"dlsched adopt {batch} --background")
        works()

        # The later version finds what the earlier one knew.
        said = host.run(f"apt-get -q -y install /tmp/dlsched_{LATER}_amd64.deb")
        assert f"the daemon that runs (process {daemon.pid}) is ended" in said
        assert daemon.wait(60) == 0
        assert limits_of(docker_client, containers) == before
    with host.daemon() as daemon:
        works()
        changed = limits_of(docker_client, containers)
        daemon.kill()
        daemon.wait(60)
        assert limits_of(docker_client, containers) == changed

    # A daemon that was killed has given nothing back.
    said = host.run("apt-get -q -y remove dlsched")
    assert f"{batch} (adopted " in said
    assert limits_of(docker_client, containers) == before
    kept = ("/etc/dlsched/", "/var/lib/dlsched/", "/var/lib/dpkg/info/dlsched.", "dlsched")
    assert [name for name in host.named() if not name.startswith(kept)] == []
    host.run("apt-get -q -y purge dlsched")
    assert host.named() == set()
    assert not any((host.root / path).exists() for path in ("etc/dlsched", "var/lib/dlsched"))
