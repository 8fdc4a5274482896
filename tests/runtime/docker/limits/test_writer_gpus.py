"""Containers with GPUs: no update takes them away, and limits hold and come back all the same.

On trees of both cgroup versions; on a real engine it is shown by `tests/daemon/test_gpus.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from dlsched.model.facts import GpuAccess
from dlsched.model.spec import Limits
from dlsched.runtime.cgroup.group_limits import LimitFiles
from dlsched.runtime.docker.engine import Body
from dlsched.runtime.docker.gpus.canary import Canary, GpuContainer, Probe
from dlsched.runtime.docker.limits.writer import PastEngine
from dlsched.runtime.machine.outcomes import Own, Untouchable
from tests.runtime.docker.fake_host import CONTAINER, PID, FakeHost, newer_weight, older_weight
from tests.runtime.docker.limits.bench import KERNELS, NODE, OWN, Bench


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


def test_one_without_a_limit_is_given_back_where_its_gpus_cannot_be_checked(
    nodes: Bench,
) -> None:
    host = nodes.host.run()
    nodes.sees = False
    files = host.files()
    nodes.set(0.5, 512)
    assert nodes.give_back() is None
    assert (host.files(), host.updates) == (files, [])


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
    assert (
        legacy.canary.lost(CONTAINER, host.pid)
        == "the container may not open /dev/nvidia0 any more"
    )
    host.pid = 0
    assert legacy.canary.lost(CONTAINER, host.pid) is None


def test_container_with_an_unwritable_group_is_left_as_it_is(legacy: Bench) -> None:
    files = legacy.host.files()
    why = (
        "the container's control group cannot be written, and the container got its GPUs by the "
        "legacy hook"
    )
    with patch.object(LimitFiles, "writable", new=False):
        assert why in (legacy.hands.refusal(CONTAINER) or "")
        for own in (None, OWN):
            with pytest.raises(
                Untouchable,
                match="control group cannot be written, and the container got its GPUs",
            ):
                legacy.set(0.5, own=own)
    assert (legacy.host.files(), legacy.host.updates) == (files, [])


def test_own_job_goes_back_to_the_ceiling_that_the_engine_knows(legacy: Bench) -> None:
    legacy.host.run(CpuQuota=150_000, CpuPeriod=100_000)
    legacy.set(0.1, 300, burst_cores=0.03, own=Own("job", 1.5))
    legacy.reopen()
    assert (legacy.give_back(), legacy.host.updates) == (None, [])
    weight = "100" if legacy.host.v2 else "1024"
    assert (legacy.quota, legacy.weight) == ("150000", weight)


def test_a_ceiling_that_the_engine_was_not_told_is_a_failure_until_it_is(legacy: Bench) -> None:
    host = legacy.host.run(CpuQuota=150_000, CpuPeriod=100_000)
    legacy.set(0.1, 300, own=Own("job", 1.0))
    assert (legacy.give_back() or "").startswith("the engine will give the container 1.5 cores")
    assert host.updates == []
    host.stop()  # to one that does not run the engine can say anything
    assert legacy.give_back() is None
    assert host.words["CpuQuota"] == 100_000


def test_a_ceiling_of_many_digits_is_as_it_was_told(legacy: Bench) -> None:
    legacy.host.run(CpuQuota=33_333, CpuPeriod=100_000)
    legacy.set(0.1, 300, own=Own("job", 1 / 3))
    assert legacy.give_back() is None


# ------------------------------------------------------------------------- the canary


@pytest.mark.parametrize(
    ("access", "node", "by_file"),
    [(GpuAccess.NODES, NODE, False), (GpuAccess.LEGACY, "/dev/nvidiactl", True)],
)
def test_gpus_decide_whether_the_engine_is_asked(
    tmp_path: Path, access: GpuAccess, node: str, by_file: bool
) -> None:
    found = Bench(tmp_path, access).hands._read(CONTAINER)
    assert found.held is not None and found.held.nodes == (node,)
    assert (found.access, found.by_file) == (access, by_file)


def test_where_updates_are_harmless_the_engine_is_asked(nodes: Bench) -> None:
    files = nodes.host.run(CpuQuota=30_000).files()
    nodes.set(0.5, 300)
    assert nodes.has(0.5, 300)
    assert len(nodes.host.updates) == 1
    nodes.reopen()
    assert nodes.give_back() is None
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
    assert "took the container's GPU away" in (bench.canary.lost(CONTAINER, host.pid) or "")
    bench.set(0.6, 300)
    bench.set(0.7, 400)
    assert bench.has(0.7, 400)
    assert len(host.updates) == 1


def test_after_a_loss_an_unwritable_group_is_not_touched(nodes: Bench) -> None:
    nodes.loses_at_update()
    with patch.object(LimitFiles, "writable", new=False):
        for cores in (0.5, 0.6, 0.7):
            with pytest.raises(Untouchable, match="a CPU update took the container's GPU away"):
                nodes.set(cores, 300)
    assert len(nodes.host.updates) == 1


def test_what_was_told_the_engine_before_the_loss_is_a_failure_until_it_is_taken_back(
    nodes: Bench,
) -> None:
    host = nodes.host.run(CpuQuota=30_000)
    files = host.files()
    nodes.loses_at_update()
    nodes.set(0.5, 300)
    assert "the engine will give the container 0.5 cores" in (nodes.give_back() or "")
    assert host.files() == files  # the kernel has it
    host.stop()
    assert nodes.give_back() is None
    assert host.words["CpuQuota"] == 30_000


def test_where_nobody_can_look_it_is_changed_past_the_engine(nodes: Bench) -> None:
    files = nodes.host.run(CpuQuota=30_000).files()
    nodes.sees = False
    nodes.set(0.5, 300)
    assert nodes.has(0.5, 300)
    assert nodes.give_back() is None
    assert (nodes.host.files(), nodes.host.updates) == (files, [])


def test_one_that_does_not_run_has_no_gpus_to_lose(nodes: Bench) -> None:
    nodes.host.run(CpuQuota=30_000)
    nodes.hands.remember(CONTAINER, Own("job", 0.5))
    nodes.host.stop()
    nodes.sees = False
    assert nodes.give_back() is None
    assert len(nodes.host.updates) == 1


@pytest.mark.parametrize("access", [GpuAccess.LEGACY, GpuAccess.NODES])
def test_container_about_to_save_itself_is_no_canary(
    tmp_path: Path, kernel: dict[str, Any], access: GpuAccess
) -> None:
    bench = Bench(tmp_path, access, **kernel)
    bench.host.run(CpuQuota=30_000, CpuPeriod=100_000)
    bench.loses_at_update()
    bench.hands.lift(CONTAINER, Limits(1.5))
    assert (bench.quota, bench.host.updates) == ("150000", [])
    bench.set(0.5, None, own=OWN)
    updates = 1 if access is GpuAccess.NODES else 0
    assert len(bench.host.updates) == updates, "wanted again, it is changed as any other"


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
    assert nodes.canary.lost(CONTAINER, host.pid) == f"the container may not open {NODE} any more"


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


def test_job_is_told_its_share_until_all_is_given_back(nodes: Bench) -> None:
    nodes.host.run(CpuQuota=50_000, CpuPeriod=100_000)
    own = Own("job", 0.5)
    nodes.hands.set(CONTAINER, Limits(0.4, 0.3), 1024, own=own)
    assert nodes.allotment.gpu_share == 0.3
    nodes.hands.update_allotment(own, Limits(0.4, 0.7))
    assert (nodes.allotment.cpu_cores, nodes.allotment.gpu_share) == (0.4, 0.7)
    nodes.hands.update_allotment(Own("job", 0.5, mps_threads_percent=80), Limits(0.4, 0.4))
    assert nodes.allotment.gpu_share == 0.5
    assert len(nodes.host.updates) == 1
    nodes.give_back()
    assert (nodes.allotment.cpu_cores, nodes.allotment.gpu_share) == (0.5, None)


# ------------------------------------------------------------------------- written by file

UPDATE = {"CpuQuota": 25_000, "CpuShares": 512}


def held(pid: int = PID) -> GpuContainer:
    return GpuContainer(CONTAINER, "one", pid, GpuAccess.LEGACY, ("/dev/nvidia0",))


class PastBench:
    """Files that are written past the engine, and how often its GPUs are probed."""

    def __init__(self, root: Path, *, v2: bool, newer: bool = False) -> None:
        self.probes = 0
        self.host = FakeHost(root, v2=v2)
        self.files = LimitFiles(PID, CONTAINER, self.host.proc)
        self.past = PastEngine(Canary(self._probe), lambda: newer)

    def _probe(self, _: GpuContainer) -> Probe:
        self.probes += 1
        return Probe(frozenset({"/dev/nvidia0"}), frozenset())


@pytest.mark.parametrize("newer", [False, True])
def test_weights_are_on_the_engines_scale(tmp_path: Path, newer: bool) -> None:
    bench = PastBench(tmp_path, v2=True, newer=newer)
    assert not bench.past.has(bench.files, bench.files.read(), UPDATE)
    bench.past.write(held(), bench.files, UPDATE, "why")
    seen = bench.files.read()
    assert (seen.quota_us, seen.weight) == (25_000, (newer_weight if newer else older_weight)(512))
    assert bench.past.has(bench.files, seen, UPDATE)
    assert not bench.past.has(bench.files, seen, {**UPDATE, "CpuShares": 2048})
    assert bench.past.has(bench.files, seen, {"CpuQuota": 25_000})


@pytest.mark.parametrize("v2", [False, True])
def test_a_probe_is_taken_at_first_and_where_somebody_wrote_over_it(
    tmp_path: Path, v2: bool
) -> None:
    bench = PastBench(tmp_path, v2=v2)
    for quota in (25_000, 50_000, -1):
        bench.past.write(held(), bench.files, {**UPDATE, "CpuQuota": quota}, "why")
    assert bench.probes == 1, "its GPUs may have been taken before this agent began"
    bench.files.write_ceiling(77_000, 100_000)
    bench.past.write(held(pid=PID + 1), bench.files, UPDATE, "why")  # a new start has nothing of it
    assert bench.probes == 1
    bench.files.write_ceiling(77_000, 100_000)
    bench.past.write(held(pid=PID + 1), bench.files, UPDATE, "why")
    assert bench.probes == 2
    bench.past.forget(CONTAINER)
    bench.past.write(held(pid=PID + 1), bench.files, UPDATE, "why")
    assert bench.probes == 3


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    bench = PastBench(tmp_path, v2=False)
    with pytest.raises(Untouchable, match="control group cannot be written"):
        bench.past.write(held(), None, UPDATE, "why")
    (bench.host.cpu / "cpu.shares").unlink()
    with pytest.raises(Untouchable, match="control group cannot be written"):
        bench.past.write(held(), bench.files, UPDATE, "why")
    assert bench.files.read().quota_us == -1
