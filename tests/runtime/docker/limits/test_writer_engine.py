"""The same on a real engine: all cgroup files byte for byte, `inspect` up to its equivalents."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import docker
import pytest

from dlsched.model.spec import Limits
from dlsched.runtime.cgroup.cpu_units import weights_of
from dlsched.runtime.cgroup.read import group_folders
from dlsched.runtime.docker.engine import Engine, EngineRefused
from dlsched.runtime.docker.limits.writer import LimitWriter
from dlsched.runtime.machine.outcomes import Own, Untouchable
from dlsched.runtime.originals import Originals
from tests.runtime.docker.making import instance_of
from tests.waiting import until
from tools.base_image import BASE

pytestmark = pytest.mark.engine

MADE: dict[str, dict[str, Any]] = {
    "no limit": {},
    "quota": {"CpuQuota": 30_000},
    "period": {"CpuQuota": 30_000, "CpuPeriod": 50_000},
    "period alone": {"CpuPeriod": 50_000},
    "cpus": {"NanoCpus": 370_000_000},
    "cpus and shares": {"NanoCpus": 1_500_000_000, "CpuShares": 77},
    "shares": {"CpuShares": 512},
    "memory": {"Memory": 100_000_001, "MemorySwap": 200_000_000},
    "all": {
        "CpuQuota": 123_000,
        "CpuShares": 2048,
        "Memory": 1 << 26,
        "RestartPolicy": {"Name": "on-failure", "MaximumRetryCount": 3},
    },
}
BOTH_DIALECTS = ("period", "cpus and shares")
CHANGES = (
    (0.25, 512, None),
    (0.01, 2, None),
    (1.5, 4000, 0.45),
    (None, 1024, None),
    (0.1, 9, 0.03),
)
COUNTS = ("stat", "usage", "procs", "tasks", "pressure", "events", "failcnt", "peak", "current")
EQUIVALENT = {("CpuQuota", 0): {-1}, ("CpuShares", 0): {1024, 2598}}


class Theirs:
    """A container that somebody else made."""

    def __init__(
        self,
        client: docker.APIClient,
        words: Mapping[str, Any],
        command: Sequence[str] = ("sleep", "600"),
    ) -> None:
        self.client = client
        config = {
            "Image": BASE,
            "Cmd": list(command),
            "HostConfig": {"NetworkMode": "none", **words},
        }
        name = f"theirs-{secrets.token_hex(4)}"
        made = client.create_container_from_config(config, name)  # type: ignore[no-untyped-call]
        self.id = str(made["Id"])
        client.start(self.id)

    @property
    def state(self) -> dict[str, Any]:
        return dict(self.client.inspect_container(self.id)["State"])

    def host_config(self) -> dict[str, Any]:
        return dict(self.client.inspect_container(self.id)["HostConfig"])

    def folders(self) -> list[Path]:
        found = group_folders(self.state["Pid"])
        return [
            found[one] for one in ("cpu", "memory", "") if one in found and _settles(found, one)
        ]

    def files(self) -> dict[str, str]:
        """Every file of its group that sets something."""
        files = {}
        for folder in self.folders():
            for path in sorted(folder.iterdir()):
                if path.is_file() and not any(word in path.name for word in COUNTS):
                    files[path.name] = _read(path)
        return {name: text for name, text in files.items() if not _counts(name)}

    def write_burst(self, burst_us: int) -> None:
        """By hand; the test is left out where the kernel knows none."""
        for folder in self.folders():
            for name in ("cpu.cfs_burst_us", "cpu.max.burst"):
                if (folder / name).exists():
                    (folder / name).write_text(str(burst_us))
                    return
        pytest.skip("this kernel has no CFS burst")


def _settles(found: Mapping[str, Path], controller: str) -> bool:
    """The version 2 mount of a hybrid host holds no limits."""
    return controller != "" or "cpu" not in found


def _counts(name: str) -> bool:
    return name in ("cpuacct.usage", "memory.usage_in_bytes") or "max_usage" in name


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:  # those that can only be written
        return str(error.errno)


Make = Callable[..., Theirs]


@pytest.fixture
def make(docker_client: docker.APIClient, base_image: str) -> Iterator[Make]:
    made: list[Theirs] = []

    def one(command: Sequence[str] = ("sleep", "600"), **words: Any) -> Theirs:
        made.append(Theirs(docker_client, words, command))
        return made[-1]

    yield one
    for theirs in made:
        docker_client.remove_container(theirs.id, force=True)


class Agent:
    """A LimitWriter as an agent has them; `reopen` is its restart."""

    def __init__(self, host: str, state_dir: Path) -> None:
        self.engine = Engine(host, 30)
        self.state_dir = state_dir
        self.open()

    def reopen(self) -> None:
        self.hands.claims.close()
        self.open()

    def close(self) -> None:
        self.hands.claims.close()
        self.engine.close()

    def open(self) -> None:
        self.originals = Originals(self.state_dir)
        self.hands = LimitWriter(instance_of(self.engine, self.state_dir, originals=self.originals))

    def change(self, theirs: Theirs) -> None:
        for cores, shares, burst in CHANGES:
            self.hands.set(theirs.id, Limits(cores), shares, burst_cores=burst)

    def give_back(self, theirs: Theirs) -> str | None:
        original = self.originals.of(theirs.id)
        assert original is not None
        return self.hands.give_back(original).failure


@pytest.fixture
def agent(docker_host: str, tmp_path: Path) -> Iterator[Agent]:
    with closing(Agent(docker_host, tmp_path)) as made:
        yield made


def assert_equivalent(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    for name, value in before.items():
        same = (value,)
        if isinstance(value, int):
            same = (value, *EQUIVALENT.get((name, value), ()))
        assert after[name] in same, name


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(one, marks=[pytest.mark.contract, pytest.mark.gate] * (one in BOTH_DIALECTS))
        for one in MADE
    ],
)
def test_every_file_is_as_it_was(agent: Agent, make: Make, made: str) -> None:
    theirs = make(**MADE[made])
    files, words = theirs.files(), theirs.host_config()
    assert agent.hands.refusal(theirs.id) is None
    agent.change(theirs)
    assert theirs.files() != files
    agent.reopen()
    agent.change(theirs)
    assert agent.give_back(theirs) is None
    assert theirs.files() == files
    assert_equivalent(words, theirs.host_config())
    assert theirs.state["Running"]


@pytest.mark.gate
def test_an_own_container_goes_through_the_idle_class(agent: Agent, make: Make) -> None:
    ours, own = make(), Own("ours", None)
    before = ours.files()
    if "cpu.idle" not in before:
        pytest.skip("this kernel has no idle class")
    for cores, quota in ((None, "-1"), (0.5, "50000")):
        agent.hands.set(ours.id, Limits(cores), 6, idle=True, own=own)
        files = ours.files()
        assert files["cpu.idle"] == "1\n"
        assert files.get("cpu.cfs_quota_us", files.get("cpu.max", "")).split()[0] in (quota, "max")
    agent.hands.set(ours.id, Limits(0.5), 700, own=own)
    files = ours.files()
    assert files["cpu.idle"] == "0\n"
    assert int(files.get("cpu.shares") or files["cpu.weight"]) in {700, *weights_of(700)}
    agent.hands.set(ours.id, Limits(0.5), 6, idle=True, own=own)
    agent.reopen()
    assert agent.give_back(ours) is None
    assert ours.files() == before


@pytest.mark.gate
def test_its_owner_can_change_it_afterwards_in_either_dialect(agent: Agent, make: Make) -> None:
    for words in ({"NanoCpus": 400_000_000}, {"CpuQuota": 40_000}):
        theirs = make()
        agent.change(theirs)
        assert agent.give_back(theirs) is None
        agent.engine.update(theirs.id, words)
        files = theirs.files()
        assert files.get("cpu.cfs_quota_us", files.get("cpu.max", "")).split()[0] == "40000"


def test_paused_stopped_and_started_again_in_between(agent: Agent, make: Make) -> None:
    theirs = make(CpuQuota=30_000, CpuShares=512)
    files = theirs.files()
    agent.change(theirs)
    theirs.client.pause(theirs.id)
    agent.hands.set(theirs.id, Limits(0.5), 300)
    theirs.client.unpause(theirs.id)
    theirs.client.restart(theirs.id, timeout=0)
    agent.hands.set(theirs.id, Limits(0.5), 300, burst_cores=0.1)
    theirs.client.stop(theirs.id, timeout=0)
    assert agent.give_back(theirs) is None
    theirs.client.start(theirs.id)
    assert theirs.files() == files


@pytest.mark.gate
def test_one_paused_is_given_back(agent: Agent, make: Make) -> None:
    theirs = make(NanoCpus=400_000_000)
    files = theirs.files()
    agent.change(theirs)
    theirs.client.pause(theirs.id)
    assert agent.give_back(theirs) is None
    assert theirs.files() == files
    theirs.client.unpause(theirs.id)


def test_one_that_restarts_all_the_time_is_given_back(agent: Agent, make: Make) -> None:
    theirs = make(command=("sleep", "0.3"), CpuQuota=30_000, RestartPolicy={"Name": "always"})
    words = theirs.host_config()

    def limited() -> bool:
        with suppress(Untouchable, EngineRefused):  # the container does not run, just now
            agent.hands.set(theirs.id, Limits(0.1), 300)
            return True
        return False

    for _ in range(4):
        until(limited, "it is limited")
        until(
            lambda: not theirs.state["Running"] or theirs.state["Restarting"],
            "their container has ended",
        )
        assert agent.give_back(theirs) is None
        assert_equivalent(words, theirs.host_config())


SWAP = {
    "twice, the engine's default": {"Memory": 1 << 27},
    "some": {"Memory": 1 << 27, "MemorySwap": (1 << 27) + (1 << 24)},
    "all": {"Memory": 1 << 27, "MemorySwap": -1},
}


@pytest.mark.contract
@pytest.mark.parametrize("swap", SWAP)
def test_memory_limit_that_was_raised_comes_back_byte_for_byte(
    make: Make, agent: Agent, swap: str
) -> None:
    theirs = make(**SWAP[swap])
    files, words = theirs.files(), theirs.host_config()
    for limit_bytes in (3 << 26, 1 << 28):
        agent.hands.set_memory(theirs.id, limit_bytes)
        agent.reopen()
    raised = theirs.host_config()
    assert raised["Memory"] == 1 << 28
    if words["MemorySwap"] != -1:
        assert raised["MemorySwap"] - raised["Memory"] == words["MemorySwap"] - words["Memory"]
    agent.change(theirs)
    agent.hands.set_memory(theirs.id, 3 << 26)
    assert agent.give_back(theirs) is None
    assert theirs.files() == files
    assert (theirs.host_config()["Memory"], theirs.host_config()["MemorySwap"]) == (
        words["Memory"],
        words["MemorySwap"],
    )
