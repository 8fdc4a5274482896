"""Limits that come back: every dialect, both cgroup versions, and what is never touched."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.model.errors import EngineUnavailable
from dlsched.model.spec import Limits
from dlsched.runtime import originals as originals_module
from dlsched.runtime.allotment import IN_FOLDER, job_dir, read_allotment
from dlsched.runtime.cgroup.exclusive import ExclusiveClaims
from dlsched.runtime.cgroup.group_limits import LimitFiles
from dlsched.runtime.docker.engine import EngineRefused
from dlsched.runtime.docker.limits.outcome import NotGivenBack, Own, Untouchable
from dlsched.runtime.docker.limits.writer import LimitWriter
from dlsched.runtime.originals import Original, Originals
from tests.properties import examples
from tests.runtime.docker.fake_host import CONTAINER, PID, FakeHost, newer_weight, older_weight

Make = Callable[..., "Bench"]

MADE: dict[str, dict[str, int]] = {
    "no limit": {},
    "quota": {"CpuQuota": 30_000},
    "period": {"CpuQuota": 30_000, "CpuPeriod": 50_000},
    "period alone": {"CpuPeriod": 50_000},
    "unlimited again": {"CpuQuota": -1, "CpuPeriod": 100_000},
    "cpus": {"NanoCpus": 370_000_000},
    "cpus and shares": {"NanoCpus": 1_500_000_000, "CpuShares": 77},
    "shares": {"CpuShares": 512},
    "least shares": {"CpuShares": 2},
    "memory": {"Memory": 100_000_001, "MemorySwap": 200_000_000},
}
KERNELS: dict[str, dict[str, Any]] = {
    "v1": {},
    "v2 older": {"v2": True, "weigh": older_weight},
    "v2 newer": {"v2": True, "weigh": newer_weight},
}
CHANGES = (
    (0.25, 512, None),
    (0.01, 2, None),
    (1.9, 4000, 0.5),
    (0.6, 100, 0.18),
    (None, 1024, None),
    (0.1, 1024, 0.03),
)
EQUAL = {("CpuQuota", 0): -1}


class Bench:
    """A LimitWriter on a fake host, with their records."""

    def __init__(self, root: Path, **host: Any) -> None:
        self.root = root
        self.host = FakeHost(root, **host)
        self.reopen()

    def reopen(self) -> None:
        """Another agent, with the same records."""
        self.originals = Originals(self.root / "state")
        engine: Any = self.host
        self.hands = LimitWriter(
            engine, self.originals, self.root / "state", lambda: "now", self.host.proc
        )

    def set(self, cores: float | None, shares: int | None = 1024, **more: Any) -> None:
        self.hands.set(CONTAINER, Limits(cores), shares, **more)

    @property
    def record(self) -> Original:
        found = self.originals.of(CONTAINER)
        assert found is not None
        return found

    def change(self) -> None:
        for cores, shares, burst in CHANGES:
            self.set(cores, shares, burst_cores=burst)


@pytest.fixture(params=KERNELS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return Bench(tmp_path, **KERNELS[request.param])


@pytest.mark.parametrize("made", MADE)
def test_what_it_was_made_with_comes_back_word_for_word(bench: Bench, made: str) -> None:
    host = bench.host.run(**MADE[made])
    files, words = host.files(), dict(host.words)
    assert bench.hands.refusal(CONTAINER) is None
    bench.change()
    assert host.files() != files
    bench.reopen()
    back = bench.hands.give_back(bench.record)
    assert back.failure is None, back
    assert host.files() == files
    assert bench.record.given_back
    for name, before in words.items():
        if name != "CpuShares":
            assert host.words[name] in (before, EQUAL.get((name, before))), name


@pytest.mark.parametrize("kernel", KERNELS)
@settings(max_examples=examples(40))
@given(
    quota=st.integers(1_000, 400_000),
    period=st.sampled_from([10_000, 50_000, 100_000, 1_000_000]),
    shares=st.integers(2, 262_144) | st.just(0),
    burst_ratio=st.floats(0, 1),
)
def test_any_quota_period_shares_and_burst_come_back(
    tmp_path_factory: pytest.TempPathFactory,
    kernel: str,
    quota: int,
    period: int,
    shares: int,
    burst_ratio: float,
) -> None:
    bench = Bench(tmp_path_factory.mktemp("host"), **KERNELS[kernel])
    host = bench.host.run(CpuQuota=quota, CpuPeriod=period, CpuShares=shares)
    burst = "cpu.max.burst" if host.v2 else "cpu.cfs_burst_us"
    host.write(burst, str(int(quota * burst_ratio)))
    files = host.files()
    bench.change()
    assert bench.hands.give_back(bench.record).failure is None
    assert host.files() == files


def test_a_burst_written_by_hand_is_kept_as_far_as_the_quota_allows_and_comes_back(
    bench: Bench,
) -> None:
    host = bench.host.run(CpuQuota=50_000)
    burst = "cpu.max.burst" if host.v2 else "cpu.cfs_burst_us"
    host.write(burst, "20000")
    for cores, left in ((0.1, "10000"), (0.4, "20000"), (None, "20000"), (0.05, "5000")):
        bench.set(cores)
        assert host.files()[burst] == left
    assert bench.hands.give_back(bench.record).failure is None
    assert host.files()[burst] == "20000"


def test_a_burst_is_set_again_after_a_restart_and_given_back(bench: Bench) -> None:
    host = bench.host.run()
    burst = "cpu.max.burst" if host.v2 else "cpu.cfs_burst_us"
    bench.set(0.5, burst_cores=0.15)
    assert host.files()[burst] == "15000"
    host.restart()
    assert host.files()[burst] == "0"
    updates = len(host.updates)
    bench.set(0.5, burst_cores=0.15)
    assert host.files()[burst] == "15000"
    assert len(host.updates) == updates  # the engine has the rest already
    assert bench.hands.give_back(bench.record).failure is None
    assert host.files()[burst] == "0"


def test_where_the_burst_cannot_be_written_everything_else_is_done_and_it_is_said(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: LimitFiles, burst_us: int) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    bench.host.run()
    monkeypatch.setattr(LimitFiles, "write_burst", refuse)
    bench.set(0.5, burst_cores=0.15)
    assert bench.host.words["CpuQuota"] == 50_000
    assert (bench.hands.burst_problem or "").startswith("burst: Read-only file system: /")
    assert bench.hands.give_back(bench.record).failure is None


def test_an_older_kernel_has_no_burst(bench: Bench) -> None:
    burst = "cpu.max.burst" if bench.host.v2 else "cpu.cfs_burst_us"
    (bench.host.cpu / burst).unlink()
    bench.set(0.5, burst_cores=0.15)
    assert bench.hands.burst_problem is None
    assert burst not in bench.host.files()
    assert bench.hands.give_back(bench.record).failure is None


OWN = Own("job", 1.0)


def test_an_own_container_goes_to_the_idle_class_and_comes_back(bench: Bench) -> None:
    host = bench.host.run()
    bench.set(None, 6, idle=True, own=OWN)
    assert (host.files()["cpu.idle"], host.words["CpuShares"]) == ("1", 6)
    bench.set(0.5, 6, idle=True, own=OWN)  # a ceiling is given on the way out and in
    assert (host.files()["cpu.idle"], host.words["CpuQuota"]) == ("1", 50_000)
    updates = len(host.updates)
    bench.set(0.5, 6, own=OWN)
    assert host.files()["cpu.idle"] == "0"
    allotment = job_dir(bench.root / "state", "job")
    assert read_allotment(allotment).cpu_cores == 0.5
    bench.set(0.01, 6, idle=True, own=OWN)
    # What it is held to now is not what it may fit its threads to for good.
    assert read_allotment(allotment).cpu_cores == OWN.ceiling_cores
    bench.set(0.5, 6, own=OWN)
    updates = len(host.updates) - 1
    # Out of that class it has the kernel's default weight, whatever was read in it.
    assert host.updates[updates:] == [{"CpuQuota": 50_000, "CpuShares": 6}]


def test_in_the_idle_class_it_is_given_back(bench: Bench) -> None:
    host = bench.host.run()
    bench.set(0.5, 6, idle=True, own=OWN)
    bench.reopen()
    back = bench.hands.give_back(bench.record)
    assert back.failure is None, back
    assert (host.files()["cpu.idle"], host.words["CpuQuota"]) == ("0", 100_000)


def test_one_that_is_about_to_end_leaves_the_idle_class(bench: Bench) -> None:
    host = bench.host.run()
    bench.set(0.5, 6, idle=True, own=OWN)
    bench.hands.lift(CONTAINER, None)
    assert (host.files()["cpu.idle"], host.words["CpuQuota"]) == ("0", 50_000)
    bench.set(0.5, 6, idle=True, own=OWN)
    bench.hands.lift(CONTAINER, Limits(None))
    assert (host.files()["cpu.idle"], host.words["CpuQuota"]) == ("0", -1)


def test_one_that_is_about_to_end_is_told_what_it_may_use_until_then(bench: Bench) -> None:
    bench.host.run()
    bench.set(0.5, own=OWN)
    allotment = job_dir(bench.root / "state", OWN.job)
    bench.hands.lift(CONTAINER, Limits(1.5))
    assert read_allotment(allotment).cpu_cores == 1.5
    bench.hands.lift(CONTAINER, None)
    assert read_allotment(allotment).cpu_cores == 1.5, "it keeps its limits"


def test_one_that_is_about_to_end_ends_though_it_cannot_be_told(bench: Bench) -> None:
    host = bench.host.run()
    bench.set(0.5, own=OWN)
    shutil.rmtree(bench.root / "state" / IN_FOLDER)
    (bench.root / "state" / IN_FOLDER).write_text("no folder")
    bench.hands.lift(CONTAINER, Limits(1.5))
    assert host.words["CpuQuota"] == 150_000


def test_one_that_ended_meanwhile_says_nothing_of_the_idle_class(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(self: LimitFiles, idle: bool) -> None:
        (bench.host.proc / str(PID) / "cgroup").unlink()
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    bench.host.run()
    monkeypatch.setattr(LimitFiles, "write_idle", gone)
    bench.set(0.5, 6, idle=True, own=OWN)
    assert bench.hands.idle_problem is None


def test_what_somebody_else_made_never_goes_to_the_idle_class(bench: Bench) -> None:
    bench.host.run()
    bench.set(0.5, 6, idle=True)
    assert bench.host.files()["cpu.idle"] == "0"


def test_what_its_owner_put_into_the_idle_class_is_not_touched(bench: Bench) -> None:
    bench.host.run(CpuShares=3)
    bench.host.write("cpu.idle", "1")
    assert "cpu.idle was written past the engine" in (bench.hands.refusal(CONTAINER) or "")


def test_where_the_idle_class_cannot_be_had_everything_else_is_done_and_it_is_said(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: LimitFiles, idle: bool) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    bench.host.run()
    monkeypatch.setattr(LimitFiles, "write_idle", refuse)
    bench.set(0.5, 6, idle=True, own=OWN)
    assert (bench.host.words["CpuQuota"], bench.host.words["CpuShares"]) == (50_000, 6)
    assert bench.hands.idle_problem == "idle class: Read-only file system: cpu.idle"
    monkeypatch.undo()
    bench.set(0.5, 6, idle=True, own=OWN)
    assert bench.hands.idle_problem is None


def test_an_older_kernel_has_no_idle_class(bench: Bench) -> None:
    (bench.host.cpu / "cpu.idle").unlink()
    bench.set(0.5, 6, idle=True, own=OWN)
    assert bench.hands.idle_problem is None
    assert "cpu.idle" not in bench.host.files()
    assert bench.hands.give_back(bench.record).failure is None


def test_a_container_with_cpus_is_spoken_to_in_its_dialect_and_never_above_the_host(
    bench: Bench,
) -> None:
    bench.host.run(NanoCpus=500_000_000)
    for cores, nano in ((0.25, 250_000_000), (64.0, 2 * 10**9), (None, 2 * 10**9), (0.001, 10**7)):
        bench.set(cores)
        assert bench.host.words["NanoCpus"] == nano
        assert bench.host.words["CpuQuota"] == 0


# ---------------------------------------------------------------------- before the first change


def test_the_record_is_on_the_disk_before_the_first_change(bench: Bench) -> None:
    host = bench.host.run(CpuQuota=30_000)
    files = host.files()
    host.raises.append(EngineUnavailable("killed here"))
    with pytest.raises(EngineUnavailable):
        bench.set(0.1)
    assert host.files() == files
    bench.reopen()
    assert bench.record.files == files
    assert bench.record.told.quota_us == 30_000
    assert (bench.record.adopted, bench.record.job, bench.record.cpu_cores) == (True, "theirs", 0.3)


def test_what_cannot_be_written_down_is_not_touched(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    bench.host.run()
    monkeypatch.setattr("dlsched.store.records.write_whole", full)
    for own in (None, Own("job", 1.0)):
        with pytest.raises(Untouchable, match="cannot be recorded: No space left on device"):
            bench.set(0.5, own=own)
    assert bench.host.updates == []
    monkeypatch.undo()
    bench.set(0.5)
    assert len(bench.host.updates) == 1


def test_the_first_record_is_kept_whatever_happens_until_it_was_given_back(bench: Bench) -> None:
    bench.host.run(CpuQuota=30_000)
    bench.set(0.1)
    first = bench.record
    bench.reopen()
    bench.set(0.2)
    assert bench.record == first
    bench.hands.give_back(bench.record)
    bench.host.update(CONTAINER, {"CpuQuota": 60_000})  # its owner, while it was free
    bench.set(0.1)
    assert bench.record.told.quota_us == 60_000
    assert not bench.record.given_back


def _by_hand(name: str, text: str) -> Callable[[Bench], None]:
    return lambda bench: bench.host.write(name, text)


def _broken_record(bench: Bench) -> None:
    bench.set(0.5)
    folder = bench.root / "state" / originals_module.FOLDER
    (folder / f"{CONTAINER}.json").write_text("{")
    bench.reopen()
    bench.host.updates.clear()


def _group_away(bench: Bench) -> None:
    for path in bench.host._paths():
        path.unlink()


def _both_dialects(bench: Bench) -> None:
    bench.host.words.update(NanoCpus=500_000_000, CpuQuota=-1)


V1_REFUSALS: list[tuple[Callable[[Bench], None], str]] = [
    (_by_hand("cpu.cfs_quota_us", "20000"), "quota was written past the engine: it is 20000 of"),
    (_by_hand("cpu.cfs_period_us", "50000"), "the engine would give -1 of 100000 us"),
    (_by_hand("cpu.shares", "3"), "shares was written past the engine: it is 3, the engine"),
    (_by_hand("memory.limit_in_bytes", "8192"), "memory limit was written past the engine"),
]
V2_REFUSALS: list[tuple[Callable[[Bench], None], str]] = [
    (_by_hand("cpu.max", "38000 100000"), "quota was written past the engine: it is 38000 of"),
    (_by_hand("cpu.max", "max 50000"), "the engine would give -1 of 100000 us"),
    (_by_hand("cpu.weight", "50"), "weight was written past the engine: it is 50, the engine"),
    (_by_hand("memory.max", "8192"), "memory limit was written past the engine: it is 8192"),
]
ANY_REFUSALS: list[tuple[Callable[[Bench], None], str]] = [
    (_both_dialects, "both --cpus and --cpu-quota"),
    (_group_away, "its control group cannot be read"),
    (lambda bench: bench.host.stop(), "it does not run"),
    (_broken_record, "the record of its original limits cannot be read: "),
]


@pytest.mark.parametrize(
    ("version", "spoil", "why"),
    [(2, *one) for one in V2_REFUSALS + ANY_REFUSALS]
    + [(1, *one) for one in V1_REFUSALS + ANY_REFUSALS],
)
def test_what_could_not_be_brought_back_is_never_touched(
    tmp_path: Path, version: int, spoil: Callable[[Bench], None], why: str
) -> None:
    bench = Bench(tmp_path, v2=version == 2)
    spoil(bench)
    assert why in (bench.hands.refusal(CONTAINER) or "")
    with pytest.raises(Untouchable, match="left as it is: "):
        bench.set(0.5)
    assert bench.host.updates == []


def test_what_was_changed_since_is_not_taken_for_a_change_past_the_engine(bench: Bench) -> None:
    bench.host.run()
    bench.set(0.5)
    # What one sees who asked the engine before that change, and the kernel after it.
    limited = {"cpu.max": "30000 100000", "cpu.cfs_quota_us": "30000"}
    (name,) = limited.keys() & bench.host.files().keys()
    bench.host.write(name, limited[name])
    assert bench.hands.refusal(CONTAINER) is None
    bench.hands.give_back(bench.record)
    assert bench.record.given_back
    bench.host.write(name, limited[name])
    assert "quota was written past the engine" in (bench.hands.refusal(CONTAINER) or "")


def test_a_burst_that_could_not_be_lowered_is_a_refusal(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.host.run(CpuQuota=50_000)
    bench.host.write("cpu.max.burst" if bench.host.v2 else "cpu.cfs_burst_us", "20000")
    monkeypatch.setattr(LimitFiles, "burst_writable", property(lambda _: False))
    assert "has a burst" in (bench.hands.refusal(CONTAINER) or "")


def test_a_process_of_another_container_is_not_taken_for_it(bench: Bench) -> None:
    (bench.host.proc / "4242" / "cgroup").write_text("1:cpu:/docker/another\n0::/docker/another\n")
    assert bench.hands.refusal(CONTAINER) == "its control group cannot be read"


# ---------------------------------------------------------------------- own jobs


def test_an_own_job_goes_to_its_ceiling_as_it_is_now(bench: Bench) -> None:
    host = bench.host.run(CpuQuota=10_000, CpuPeriod=100_000, CpuShares=99)
    bench.hands.remember(CONTAINER, Own("job", 0.5))
    bench.set(0.1, 300, burst_cores=0.03, own=Own("job", 0.5))
    bench.set(0.2, 300, own=Own("job", 1.5))
    assert bench.record.cpu_cores == 1.5
    bench.reopen()
    back = bench.hands.give_back(bench.record)
    assert (back.failure, back.job, back.adopted) == (None, "job", False)
    files = host.files()
    if host.v2:
        assert files["cpu.max"] == "150000 100000"
        assert (files["cpu.weight"], files["cpu.max.burst"]) == ("100", "0")
    else:
        assert (files["cpu.cfs_quota_us"], files["cpu.cfs_period_us"]) == ("150000", "100000")
        assert (files["cpu.shares"], files["cpu.cfs_burst_us"]) == ("1024", "0")
    allotment = bench.root / "state" / "in" / "job" / "allotment.json"
    assert json.loads(allotment.read_text())["cpu_cores"] == 1.5


def test_an_own_job_without_a_ceiling_has_no_limit_afterwards(bench: Bench) -> None:
    bench.host.run(CpuQuota=10_000, CpuPeriod=100_000)
    bench.set(0.1, own=Own("job"))
    assert bench.hands.give_back(bench.record).now.startswith("no CPU limit (period 100000 us)")


def test_a_record_is_written_only_where_it_changes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Path] = []
    from dlsched.store import records

    real = records.write_whole
    monkeypatch.setattr(
        records, "write_whole", lambda path, text: (written.append(path), real(path, text))
    )
    for ceiling in (0.5, 0.5, 1.0, 1.0):
        bench.set(0.1, own=Own("job", ceiling))
    assert len(written) == 2
    bench.hands.give_back(bench.record)
    bench.set(0.1, own=Own("job", 1.0))
    assert len(written) == 4
    assert not bench.record.given_back


# ---------------------------------------------------------------------- giving back


def test_one_that_ended_is_given_back_for_its_next_start(bench: Bench) -> None:
    host = bench.host.run(CpuQuota=30_000)
    files = host.files()
    bench.change()
    host.stop()
    back = bench.hands.give_back(bench.record)
    assert (back.failure, back.now) == (None, "0.3 cores")
    host.pid = 4242
    host.restart()
    assert host.files() == files


def test_one_that_ends_in_the_middle_is_given_back_all_the_same(bench: Bench) -> None:
    host = bench.host.run(CpuQuota=30_000)
    bench.set(0.1)

    class Dies(EngineRefused):
        def __init__(self) -> None:
            host.stop()
            super().__init__(500, "no such process")

    real = host.update

    def update(container: str, body: dict[str, Any]) -> None:
        host.update = real  # type: ignore[method-assign]
        raise Dies

    host.update = update  # type: ignore[method-assign]
    assert bench.hands.give_back(bench.record).failure is None
    assert host.words["CpuQuota"] == 30_000


def test_one_that_is_gone_has_its_record_forgotten(bench: Bench) -> None:
    bench.host.run()
    bench.set(0.1)
    bench.host.gone = True
    back = bench.hands.give_back(bench.record)
    assert (back.failure, back.now) == (None, "gone")
    assert bench.originals.of(CONTAINER) is None
    assert list((bench.root / "state" / "originals").iterdir()) == []


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (EngineUnavailable("no answer"), "no answer"),
        (EngineRefused(500, "runc did not terminate"), "runc did not terminate"),
    ],
)
def test_a_failure_is_told_with_what_it_has_and_is_tried_again(
    bench: Bench, error: Exception, told: str
) -> None:
    bench.host.run()
    bench.set(0.1)
    bench.host.raises.append(error)
    back = bench.hands.give_back(bench.record)
    assert back.failure == told
    assert back.now.startswith("0.1 cores (period 100000 us)")
    assert not bench.record.given_back
    assert bench.hands.give_back(bench.record).failure is None


def test_what_reads_back_otherwise_is_a_failure(bench: Bench) -> None:
    bench.host.run(CpuQuota=30_000)
    bench.set(0.1)
    real = bench.host._to_kernel

    def meddle() -> None:
        real()
        name = "cpu.max" if bench.host.v2 else "cpu.cfs_quota_us"
        bench.host.write(name, bench.host.files()[name].replace("30000", "29000"))

    bench.host._to_kernel = meddle  # type: ignore[method-assign]
    failure = bench.hands.give_back(bench.record).failure
    assert failure is not None
    assert "is 29000" in failure and "must be 30000" in failure
    assert not bench.record.given_back


def test_a_memory_limit_that_its_owner_changed_meanwhile_is_no_failure(bench: Bench) -> None:
    host = bench.host.run(Memory=1 << 20)
    bench.set(0.1)
    host._set({"Memory": 2 << 20})
    assert bench.hands.give_back(bench.record).failure is None
    host._set({"Memory": 1 << 20})
    bench.set(0.1)
    host.write("memory.max" if host.v2 else "memory.limit_in_bytes", "4096")
    assert "must be 1048576" in (bench.hands.give_back(bench.record).failure or "")


def test_with_a_full_disk_it_is_given_back_once_more_later(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    host = bench.host.run(CpuQuota=30_000)
    files = host.files()
    bench.set(0.1)
    monkeypatch.setattr("dlsched.store.records.write_whole", full)
    assert bench.hands.give_back(bench.record).failure is None
    assert host.files() == files
    assert not bench.record.given_back


def test_a_lost_record_is_told_until_its_container_is_gone(bench: Bench) -> None:
    _broken_record(bench)
    back = bench.hands.give_up(CONTAINER)
    assert back is not None and back.failure is not None
    assert f"{CONTAINER}.json.broken" in back.failure
    assert back.now.startswith("0.5 cores")
    bench.host.gone = True
    assert bench.hands.give_up(CONTAINER) is None
    assert bench.originals.all_lost() == ()


def test_a_record_is_not_forgotten_on_the_word_of_another_engine(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = bench
    one.host.run(CpuQuota=30_000)
    info = one.host.info
    monkeypatch.setattr(one.host, "info", lambda: {**info(), "ID": "first"})
    one.set(0.2)
    assert one.record.engine == "first"
    one.host.gone = True
    monkeypatch.setattr(one.host, "info", lambda: {**info(), "ID": "second"})
    one.reopen()
    failure = one.hands.give_back(one.record).failure or ""
    assert "is not the one that has it" in failure
    assert f"originals/{CONTAINER}.json" in failure
    with pytest.raises(NotGivenBack, match="is not the one that has it"):
        one.hands.forget_if_gone(CONTAINER)
    assert one.record.told.quota_us == 30_000
    monkeypatch.setattr(one.host, "info", lambda: {**info(), "ID": "first"})
    assert one.hands.give_back(one.record).now == "gone"
    assert one.originals.of(CONTAINER) is None


def test_a_dry_run_neither_claims_nor_heeds_claims(tmp_path: Path) -> None:
    host = FakeHost(tmp_path).claimable()
    engine: Any = host
    originals = Originals(tmp_path / "state", read_only=True)
    hands = LimitWriter(engine, originals, tmp_path / "state", lambda: "now", host.proc)
    with closing(ExclusiveClaims(host.proc)) as other:
        assert hands.claims.take(CONTAINER)
        assert other.take(CONTAINER)
        assert hands.refusal(CONTAINER) is None
