"""Owns the fixtures that give tests a real Docker Engine, and the counting of tests without one.

Tests that need an engine are marked `engine`. `make test` sees to an engine; without one they are
left out and counted, or, with DLSCHED_REQUIRE_ENGINE=1, the session ends at once.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import docker
import psutil
import pytest
from docker.errors import APIError

from tests import properties, purity
from tests.lanes import (
    COLLECTED,
    GATE_MAX,
    LANES,
    NEEDING,
    UNIT,
    is_in_gate,
    lane_of,
    lanes_named,
    may_have,
    watch_starts,
    without_processes,
)
from tests.nvml.library import nvml, nvml_stub  # noqa: F401  fixtures for every folder
from tools.base_image import BASE, ensure_base
from tools.engine import CGROUP_PARENT, MISSING, REQUIRE
from tools.engine_probe import answering_host, connect
from tools.engine_remains import cgroup_mounts
from tools.environment import BUILD
from tools.images import ensure_all
from tools.private_engine import Engine, private_engine

DURATIONS = Path(__file__).with_name("durations.json")
HOST = pytest.StashKey[str | None]()
LEFT_OUT = "no engine: "
# What marks the reason of a case that was left out, wherever it is counted.
INSTANCE_LABEL = "dlsched.instance"

properties.load_profile(os.environ)
watch_starts()
pytest_fixture_setup = purity.pytest_fixture_setup


def no_engine_reason() -> str:
    """Why there is no engine, in one line."""
    return os.environ.get(MISSING, "no Docker Engine answers on DOCKER_HOST or the usual sockets")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The choice of lanes."""
    parser.addoption(
        "--lane", default="", metavar="LANES", help=f"only these, by comma: {', '.join(LANES)}"
    )
    parser.addoption("--gate", action="store_true", help="only what runs before each landing")


def pytest_report_header() -> str:
    """Which examples the properties are tried on."""
    return properties.described()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Pass over a test file that has nothing of what is asked for."""
    if not collection_path.match("test_*.py"):
        return None
    lanes = lanes_named(config.getoption("--lane"))
    return not may_have(collection_path, lanes, config.getoption("--gate")) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take the lanes asked for, long ones first, and leave out what needs an engine where none
    answers."""
    if config.getoption("--gate"):
        _take(config, items, is_in_gate)
        if (marked := sum(lane_of(item) in NEEDING for item in items)) > GATE_MAX:
            raise pytest.UsageError(f"{marked} cases are marked `gate`, at most {GATE_MAX}")
    config.stash[COLLECTED] = Counter(map(lane_of, items))
    if lanes := lanes_named(config.getoption("--lane")):
        _take(config, items, lambda item: lane_of(item) in lanes)
    longest_first(items)
    needing = [item for item in items if item.get_closest_marker("engine")]
    config.stash[HOST] = (
        answering_host(os.environ) if needing and MISSING not in os.environ else None
    )
    if not needing or config.stash[HOST] is not None:
        return
    if os.environ.get(REQUIRE) == "1":
        raise pytest.UsageError(f"{REQUIRE}=1, but {no_engine_reason()}")
    for item in needing:
        item.add_marker(pytest.mark.skip(reason=f"{LEFT_OUT}{no_engine_reason()}"))


def _take(
    config: pytest.Config, items: list[pytest.Item], wanted: Callable[[pytest.Item], bool]
) -> None:
    """Leave the wanted ones, and report the others as deselected."""
    dropped = [item for item in items if not wanted(item)]
    items[:] = [item for item in items if wanted(item)]
    config.hook.pytest_deselected(items=dropped)


def longest_first(items: list[pytest.Item]) -> None:
    """Sort files that the kept table knows to be long to the front: no worker begins one as its
    last. A file's cases stay together and in their order."""
    known: dict[str, list[float]] = (
        json.loads(DURATIONS.read_text(encoding="utf-8")) if DURATIONS.is_file() else {}
    )
    took_s: dict[Path, float] = {}
    for item in items:
        took_s[item.path] = took_s.get(item.path, 0.0) + known.get(item.nodeid, [0.0])[0]
    items.sort(key=lambda item: -took_s[item.path])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how much was not tested."""
    skipped = terminalreporter.stats.get("skipped", [])
    left_out = sum(LEFT_OUT in str(report.longrepr) for report in skipped)
    if left_out:
        terminalreporter.write_line(f"LEFT OUT: {left_out} engine tests: {no_engine_reason()}")


@pytest.fixture(autouse=True)
def _unit_lane_stays_clean(request: pytest.FixtureRequest) -> Iterator[None]:
    """A case of the unit lane starts no process, and is pure."""
    if lane_of(request.node) != UNIT:
        yield
        return
    with without_processes(), purity.pure(request):
        yield


@pytest.fixture(scope="session")
def docker_host(request: pytest.FixtureRequest) -> str:
    """Host of the Docker Engine under test; only for tests marked `engine`."""
    host = request.config.stash[HOST]
    assert host is not None, "a test that uses an engine must be marked with pytest.mark.engine"
    return host


@pytest.fixture(scope="session")
def docker_client(docker_host: str) -> Iterator[docker.APIClient]:
    """A client of that engine, for the tests' own looks and acts."""
    with closing(connect(docker_host, timeout_s=120)) as client:
        yield client


def group_for(instance: str) -> str:
    """Parent control group for an instance's containers, inside the private engine's own."""
    return f"{os.environ.get(CGROUP_PARENT, '')}/dlsched-{instance}"


@pytest.fixture(scope="session")
def instance(docker_client: docker.APIClient) -> Iterator[str]:
    """A random `dlsched.instance`; its containers, and only those, are removed at the end."""
    name = f"test-{secrets.token_hex(4)}"
    yield name
    label = {"label": f"{INSTANCE_LABEL}={name}"}
    for container in docker_client.containers(all=True, filters=label):
        with suppress(APIError):
            docker_client.remove_container(container["Id"], force=True, v=True)
    for mount in cgroup_mounts():
        with suppress(OSError):
            Path(f"{mount}{group_for(name)}").rmdir()


@pytest.fixture(scope="session")
def cgroup_parent(instance: str) -> str:
    """A control group for this session's containers alone, removed at the session's end."""
    return group_for(instance)


@contextmanager
def host_network(how: int) -> Iterator[None]:
    """The host's network interfaces, which all workers share: LOCK_SH or LOCK_EX of fcntl."""
    BUILD.mkdir(exist_ok=True)
    with (BUILD / "host-network.lock").open("w") as lock:
        fcntl.flock(lock, how)
        yield


@pytest.fixture
def changes_host_network() -> Iterator[None]:
    """For a case whose engine makes bridges: beside others, not beside one that compares."""
    with host_network(fcntl.LOCK_SH):
        yield


@pytest.fixture
def host_network_alone() -> Iterator[None]:
    """For a case that compares the host's interfaces before and after."""
    with host_network(fcntl.LOCK_EX):
        yield


@pytest.fixture(scope="session")
def base_image(docker_host: str) -> str:
    """Name of the base image (Debian with Python 3.11), which the engine has."""
    ensure_base(docker_host)
    return BASE


@pytest.fixture
def own_engine(
    docker_host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Engine]:
    """An engine that nobody else uses, with the base image, at DOCKER_HOST."""
    if os.geteuid() != 0:
        pytest.skip("a private engine needs root")
    with private_engine(tmp_path / "engines") as engine:
        ensure_base(engine.host)
        monkeypatch.setenv("DOCKER_HOST", engine.host)
        yield engine


def dockerd_of(engine: Engine) -> psutil.Process:
    """The engine's process."""
    socket = engine.host.removeprefix("unix://")
    # Others may end meanwhile: of those it knows neither name nor words.
    return next(
        process
        for process in psutil.process_iter(["name", "cmdline"])
        if process.info["name"] == "dockerd"
        and any(socket in word for word in process.info["cmdline"] or ())
    )


@pytest.fixture(scope="session")
def inference_image(docker_host: str) -> str:
    """Name of the inference example's image, which the engine has."""
    ensure_all(docker_host, ["inference"])
    return "dlsched-examples/inference:latest"


@pytest.fixture(scope="session")
def training_image(docker_host: str) -> str:
    """Name of the training example's image, which the engine has."""
    ensure_all(docker_host, ["training"])
    return "dlsched-examples/training:latest"
