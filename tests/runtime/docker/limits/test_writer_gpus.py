"""Containers with GPUs: no update takes them away, and limits hold and come back all the same.

On trees of both cgroup versions; on a real engine it is shown by `tests/daemon/test_gpus.py`.
"""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from dlsched.model.facts import GpuAccess
from dlsched.model.spec import Limits
from dlsched.runtime.cgroup.group_limits import LimitFiles
from dlsched.runtime.docker.engine import Body
from dlsched.runtime.docker.gpus.canary import Canary, GpuContainer, Probe, ProbeFailed, Waits
from dlsched.runtime.docker.limits.outcome import Own, Untouchable
from dlsched.runtime.docker.limits.writer import LimitWriter
from dlsched.runtime.originals import Original, Originals
from tests.runtime.docker.fake_host import CONTAINER, FakeHost, newer_weight, older_weight

KERNELS: dict[str, dict[str, Any]] = {
    "v1": {},
    "v2 older": {"v2": True, "weigh": older_weight},
    "v2 newer": {"v2": True, "weigh": newer_weight},
}
WAYS: dict[GpuAccess, dict[str, Any]] = {
    GpuAccess.LEGACY: {"DeviceRequests": [{"Driver": "nvidia", "Count": -1}]},
    GpuAccess.CDI: {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=0"]}]},
    GpuAccess.NODES: {"Devices": [{"PathOnHost": "/dev/nvidia0"}]},
}
NODE = "/dev/nvidia0"


class Bench:
    """A LimitWriter on a fake host with one container with GPUs, and a probe of its nodes."""

    def __init__(self, root: Path, access: GpuAccess, **host: Any) -> None:
        self.root = root
        self.host = FakeHost(root, **host)
        self.host.words.update(WAYS[access])
        self.taken = False
        self.sees = True
        self.reopen()

    def reopen(self) -> None:
        """Another agent, with the same records."""
        self.originals = Originals(self.root / "state")
        self.canary = Canary(self._look, self.root / "state")
        engine: Any = self.host
        self.hands = LimitWriter(
            engine,
            self.originals,
            self.root / "state",
            lambda: "now",
            self.host.proc,
            canary=self.canary,
        )

    def loses_at_update(self) -> None:
        """The engine's next update takes the GPUs away."""
        real = self.host.update

        def update(container: str, body: Body) -> None:
            real(container, body)
            self.taken = True

        self.host.update = update  # type: ignore[method-assign]

    def set(self, cores: float | None, shares: int | None = 1024, **more: Any) -> None:
        self.hands.set(CONTAINER, Limits(cores), shares, **more)

    @property
    def record(self) -> Original:
        found = self.originals.of(CONTAINER)
        assert found is not None
        return found

    def has(self, cores: float | None, shares: int) -> bool:
        files, host = self.host.files(), self.host
        quota = -1 if cores is None else round(cores * 100_000)
        if host.v2:
            ceiling = "max" if quota < 0 else str(quota)
            return (files["cpu.max"], files["cpu.weight"]) == (
                f"{ceiling} 100000",
                str(host.weigh(shares)),
            )
        return (files["cpu.cfs_quota_us"], files["cpu.shares"]) == (str(quota), str(shares))

    def _look(self, _: GpuContainer) -> Probe:
        if not self.sees:
            raise ProbeFailed("none of its device nodes can be seen from here")
        nodes = frozenset({NODE})
        return Probe(frozenset(), nodes) if self.taken else Probe(nodes, frozenset())


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest) -> dict[str, Any]:
    return KERNELS[request.param]


@pytest.fixture
def legacy(tmp_path: Path, kernel: dict[str, Any]) -> Bench:
    return Bench(tmp_path, GpuAccess.LEGACY, **kernel)


@pytest.fixture
def nodes(tmp_path: Path, kernel: dict[str, Any]) -> Bench:
    return Bench(tmp_path, GpuAccess.NODES, **kernel)


# ------------------------------------------------------------------------- the legacy mode


@pytest.mark.parametrize(
    "made",
    [
        {},
        {"CpuQuota": 30_000},
        {"CpuQuota": 30_000, "CpuPeriod": 50_000},
        {"NanoCpus": 370_000_000},
        {"NanoCpus": 370_000_000, "CpuShares": 77},
        {"CpuShares": 512},
    ],
)
def test_limits_are_set_and_brought_back_without_the_engine(
    legacy: Bench, made: dict[str, int]
) -> None:
    host = legacy.host.run(**made)
    files, words = host.files(), dict(host.words)
    assert legacy.hands.refusal(CONTAINER) is None
    for cores, shares, burst in ((0.25, 512, None), (0.01, 2, None), (1.9, 4000, 0.5)):
        legacy.set(cores, shares, burst_cores=burst)
        assert legacy.has(cores, shares)
    legacy.reopen()
    legacy.set(None, 1024)
    assert legacy.has(2.0 if "NanoCpus" in made else None, 1024)  # all that --cpus can say
    back = legacy.hands.give_back(legacy.record)
    assert back.failure is None
    assert host.files() == files
    assert (host.words, host.updates) == (words, [])
    assert legacy.record.given_back


def test_what_was_lost_is_written_again(legacy: Bench) -> None:
    host = legacy.host.run(CpuQuota=30_000)
    legacy.set(0.5, 300)
    host.restart()
    assert not legacy.has(0.5, 300)
    legacy.set(0.5, 300)
    assert legacy.has(0.5, 300)
    assert host.updates == []


def test_who_wrote_the_group_anew_may_have_taken_the_gpus(legacy: Bench) -> None:
    host = legacy.host.run()
    files = host.files()
    legacy.set(0.5, 300)
    legacy.set(0.4, 300)
    assert legacy.canary.lost(CONTAINER, host.pid) is None
    legacy.taken = True  # as `systemctl daemon-reload` does
    for name, text in files.items():
        host.write(name, text)
    legacy.set(0.4, 300)
    assert legacy.has(0.4, 300)
    assert legacy.canary.lost(CONTAINER, host.pid) == "it may not open /dev/nvidia0 any more"
    host.pid = 0
    assert legacy.canary.lost(CONTAINER, host.pid) is None


def test_the_burst_is_lowered_before_the_ceiling(legacy: Bench) -> None:
    legacy.host.run()
    legacy.set(0.5, burst_cores=0.4)
    legacy.set(0.1, burst_cores=0.05)
    assert legacy.host.files()["cpu.max.burst" if legacy.host.v2 else "cpu.cfs_burst_us"] == "5000"


def test_where_its_group_cannot_be_written_it_is_left_as_it_is(
    legacy: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = legacy.host.run()
    files = host.files()
    monkeypatch.setattr(LimitFiles, "writable", property(lambda _: False))
    why = "its control group cannot be written, and its GPUs came by the legacy hook"
    assert why in (legacy.hands.refusal(CONTAINER) or "")
    for own in (None, Own("job", 1.0)):
        with pytest.raises(Untouchable, match="control group cannot be written, and its GPUs"):
            legacy.set(0.5, own=own)
    assert (host.files(), host.updates) == (files, [])


def test_the_record_is_on_the_disk_before_the_first_write(
    legacy: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    host = legacy.host.run(CpuQuota=30_000)
    files = host.files()
    monkeypatch.setattr(LimitFiles, "write_ceiling", killed)
    with pytest.raises(Untouchable, match="Input/output error"):
        legacy.set(0.1)
    monkeypatch.undo()
    legacy.reopen()
    assert legacy.record.files == files
    assert not legacy.record.given_back


def test_an_own_job_goes_to_its_ceiling_which_is_all_that_the_engine_knows(legacy: Bench) -> None:
    host = legacy.host.run(CpuQuota=150_000, CpuPeriod=100_000)
    own = Own("job", 1.5)
    legacy.set(0.1, 300, burst_cores=0.03, own=own)
    legacy.reopen()
    back = legacy.hands.give_back(legacy.record)
    assert (back.failure, host.updates) == (None, [])
    files = host.files()
    if host.v2:
        assert (files["cpu.max"], files["cpu.weight"]) == ("150000 100000", "100")
    else:
        assert (files["cpu.cfs_quota_us"], files["cpu.shares"]) == ("150000", "1024")
    host.restart()
    assert host.files()["cpu.max" if host.v2 else "cpu.cfs_quota_us"].startswith("150000")


def test_a_ceiling_that_the_engine_was_not_told_is_a_failure_until_it_is(legacy: Bench) -> None:
    host = legacy.host.run(CpuQuota=150_000, CpuPeriod=100_000)
    legacy.set(0.1, 300, own=Own("job", 1.0))
    failure = legacy.hands.give_back(legacy.record).failure
    assert failure is not None and failure.startswith("for its next start the engine has 1.5 cores")
    assert host.updates == []
    host.stop()  # to one that does not run the engine can say anything
    assert legacy.hands.give_back(legacy.record).failure is None
    assert host.words["CpuQuota"] == 100_000


def test_a_ceiling_of_many_digits_is_as_it_was_told(legacy: Bench) -> None:
    legacy.host.run(CpuQuota=33_333, CpuPeriod=100_000)
    legacy.set(0.1, 300, own=Own("job", 1 / 3))
    assert legacy.hands.give_back(legacy.record).failure is None


def test_the_last_limit_before_its_end_is_given_past_the_engine(legacy: Bench) -> None:
    legacy.host.run(CpuQuota=10_000, CpuPeriod=100_000)
    legacy.hands.lift(CONTAINER, Limits(None))
    assert legacy.host.files()["cpu.max" if legacy.host.v2 else "cpu.cfs_quota_us"].split()[0] in (
        "max",
        "-1",
    )
    assert legacy.host.updates == []


# ------------------------------------------------------------------------- the canary


def test_where_updates_are_harmless_the_engine_is_asked(nodes: Bench) -> None:
    files = nodes.host.run(CpuQuota=30_000).files()
    nodes.set(0.5, 300)
    assert nodes.has(0.5, 300)
    assert len(nodes.host.updates) == 1
    nodes.reopen()
    assert nodes.hands.give_back(nodes.record).failure is None
    assert nodes.host.files() == files


@pytest.mark.parametrize("access", [GpuAccess.NODES, GpuAccess.CDI])
def test_after_a_loss_limits_are_set_past_the_engine(
    tmp_path: Path, kernel: dict[str, Any], access: GpuAccess
) -> None:
    bench = Bench(tmp_path, access, **kernel)
    host = bench.host.run(CpuQuota=30_000)
    bench.loses_at_update()
    bench.set(0.5, 300)
    assert bench.canary.alarm is not None
    assert "took its GPU away" in (bench.canary.lost(CONTAINER, host.pid) or "")
    bench.set(0.6, 300)
    bench.set(0.7, 400)
    assert bench.has(0.7, 400)
    assert len(host.updates) == 1


def test_after_a_loss_nothing_else_is_touched_where_its_group_cannot_be_written(
    nodes: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LimitFiles, "writable", property(lambda _: False))
    nodes.host.run(CpuQuota=30_000)
    nodes.loses_at_update()
    for cores in (0.5, 0.6, 0.7):
        with pytest.raises(Untouchable, match="a CPU update took its GPU away"):
            nodes.set(cores, 300)
    assert len(nodes.host.updates) == 1


def test_what_was_told_the_engine_before_the_loss_is_a_failure_until_it_is_taken_back(
    nodes: Bench,
) -> None:
    host = nodes.host.run(CpuQuota=30_000)
    files = host.files()
    nodes.loses_at_update()
    nodes.set(0.5, 300)
    failure = nodes.hands.give_back(nodes.record).failure
    assert failure is not None and "for its next start the engine has 0.5 cores" in failure
    assert host.files() == files  # the kernel has it
    host.stop()
    assert nodes.hands.give_back(nodes.record).failure is None
    assert host.words["CpuQuota"] == 30_000


def test_where_nobody_can_look_it_is_changed_past_the_engine(nodes: Bench) -> None:
    files = nodes.host.run(CpuQuota=30_000).files()
    nodes.sees = False
    nodes.set(0.5, 300)
    assert nodes.has(0.5, 300)
    assert nodes.hands.give_back(nodes.record).failure is None
    assert (nodes.host.files(), nodes.host.updates) == (files, [])


def test_one_that_does_not_run_has_no_gpus_to_lose(nodes: Bench) -> None:
    nodes.host.run(CpuQuota=30_000)
    nodes.hands.remember(CONTAINER, Own("job", 0.5))
    nodes.host.stop()
    nodes.sees = False
    assert nodes.hands.give_back(nodes.record).failure is None
    assert len(nodes.host.updates) == 1


def test_another_waits_and_is_not_taken_for_refused(
    nodes: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.host.run()

    def busy(*_: object, wait: bool = False) -> None:
        assert not wait
        raise Waits("waits for the canary")

    monkeypatch.setattr(nodes.canary, "update", busy)
    with pytest.raises(Waits):
        nodes.set(0.5)


def test_one_that_is_about_to_save_itself_is_no_canary(nodes: Bench) -> None:
    host = nodes.host.run(CpuQuota=30_000, CpuPeriod=100_000)
    nodes.loses_at_update()
    nodes.hands.lift(CONTAINER, Limits(1.5))
    ceiling = host.files()["cpu.max" if host.v2 else "cpu.cfs_quota_us"]
    assert (ceiling.partition(" ")[0], host.updates, nodes.taken) == ("150000", [], False)
    nodes.hands.set(CONTAINER, Limits(0.5), None, own=Own("job", 1.0))
    assert len(host.updates) == 1, "wanted again, it is changed as any other"


def test_a_loss_before_this_agent_is_noticed_and_the_alarm_kept(nodes: Bench) -> None:
    host = nodes.host.run(CpuQuota=30_000)
    nodes.loses_at_update()
    nodes.set(0.5, 300)
    assert len(host.updates) == 1
    nodes.reopen()  # the agent was killed, and another one began, or a release
    assert nodes.canary.lost(CONTAINER, host.pid) is None
    nodes.set(0.25, 200)
    assert nodes.has(0.25, 200)
    assert len(host.updates) == 1, "the other containers' GPUs are safe from it"
    assert nodes.canary.lost(CONTAINER, host.pid) == f"it may not open {NODE} any more"


def test_one_that_is_started_in_the_middle_is_looked_at(legacy: Bench) -> None:
    host, pid = legacy.host.run(CpuQuota=30_000), legacy.host.pid
    legacy.set(0.5, 300)
    host.stop()
    real = host.update

    def update(container: str, body: Body) -> None:
        host.pid = pid
        host.restart()
        real(container, body)
        legacy.taken = True

    host.update = update  # type: ignore[method-assign]
    legacy.hands.give_back(legacy.record)
    assert legacy.canary.lost(CONTAINER, pid) is not None


# ------------------------------------------------------------------------- the job is told


def test_a_job_is_told_its_share_with_its_ceiling_and_none_when_all_is_given_back(
    nodes: Bench,
) -> None:
    nodes.host.run(CpuQuota=50_000, CpuPeriod=100_000)
    own = Own("job", 0.5)
    place = nodes.root / "state/in/job/allotment.json"
    nodes.hands.set(CONTAINER, Limits(0.4, 0.3), 1024, own=own)
    assert json.loads(place.read_text())["gpu_share"] == 0.3
    nodes.hands.update_allotment(own, Limits(0.4, 0.7))
    told = json.loads(place.read_text())
    assert (told["cpu_cores"], told["gpu_share"]) == (0.4, 0.7)
    nodes.hands.update_allotment(Own("job", 0.5, mps_threads_percent=80), Limits(0.4, 0.4))
    assert json.loads(place.read_text())["gpu_share"] == 0.5
    assert len(nodes.host.updates) == 1
    nodes.hands.give_back(nodes.record)
    told = json.loads(place.read_text())
    assert (told["cpu_cores"], told["gpu_share"]) == (0.5, None)
