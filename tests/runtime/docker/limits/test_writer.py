"""Limits that come back: every dialect, both cgroup versions, and what is never touched."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.model.errors import EngineUnavailable
from dlsched.model.spec import Limits
from dlsched.runtime import originals as originals_module
from dlsched.runtime.allotment import IN_FOLDER
from dlsched.runtime.cgroup.exclusive import ExclusiveClaims
from dlsched.runtime.cgroup.group_limits import LimitFiles
from dlsched.runtime.docker.engine import EngineRefused
from dlsched.runtime.docker.limits.writer import LimitWriter
from dlsched.runtime.machine.outcomes import NotGivenBack, Own, Untouchable
from dlsched.store import records
from tests.properties import examples
from tests.runtime.docker.fake_host import CONTAINER, PID, FakeHost, full_disk
from tests.runtime.docker.limits.bench import KERNELS, OWN, Bench, unwritable
from tests.runtime.docker.making import instance_of

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
CHANGES = (
    (0.25, 512, None),
    (0.01, 2, None),
    (1.9, 4000, 0.5),
    (0.6, 100, 0.18),
    (None, 1024, None),
    (0.1, 1024, 0.03),
)
EQUAL = {("CpuQuota", 0): -1}


def change(bench: Bench) -> None:
    for cores, shares, burst in CHANGES:
        bench.set(cores, shares, burst_cores=burst)


@pytest.fixture(params=KERNELS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return Bench(tmp_path, **KERNELS[request.param])


@pytest.mark.parametrize("made", MADE)
def test_what_it_was_made_with_comes_back_word_for_word(bench: Bench, made: str) -> None:
    host = bench.host.run(**MADE[made])
    files, words = host.files(), dict(host.words)
    assert bench.hands.refusal(CONTAINER) is None
    change(bench)
    assert host.files() != files
    bench.reopen()
    back = bench.hands.give_back(bench.record)
    assert back.failure is None, back
    assert host.files() == files
    assert bench.record.given_back
    for name, before in words.items():
        if name != "CpuShares":
            assert host.words[name] in (before, EQUAL.get((name, before))), name


@pytest.mark.parametrize("limited", [False, True], ids=["at once", "limited afterwards"])
def test_limit_that_the_owner_gives_it_meanwhile_stays(bench: Bench, limited: bool) -> None:
    host = bench.host.run(CpuShares=77)
    host.write(bench.burst_file, "20000")
    weight = bench.weight
    bench.set(None, 512)
    host.update(CONTAINER, {"NanoCpus": 1_500_000_000})
    if limited:
        bench.set(0.25, 512)
        bench.reopen()
        bench.set(0.4, 100)
    assert bench.give_back() is None
    assert (bench.quota, bench.weight, bench.burst) == ("150000", weight, "20000")
    host.restart()
    assert bench.quota == "150000"


@pytest.mark.parametrize("shares", [0, 512])
@pytest.mark.parametrize("booted", KERNELS)
def test_limits_come_back_where_the_host_was_booted_with_another_cgroup_version(
    tmp_path: Path, booted: str, shares: int
) -> None:
    kernel = KERNELS[booted]
    bench = Bench(tmp_path, v2=not kernel.get("v2", False))
    made = {"CpuQuota": 30_000, "CpuPeriod": 50_000, "CpuShares": shares}
    bench.host.run(**made)
    bench.host.write(bench.burst_file, "20000")
    bench.set(0.25, 100)
    words = dict(bench.host.words)
    bench.host = FakeHost(tmp_path / "booted", **kernel)
    bench.host.words = words
    bench.host.restart()
    bench.reopen()
    assert bench.give_back() is None
    assert bench.host.files() == FakeHost(tmp_path / "made", **kernel).run(**made).files()


@pytest.mark.parametrize("lost", ["memory", "burst"])
def test_limits_come_back_where_the_kernel_lacks_one_after_a_boot(bench: Bench, lost: str) -> None:
    swap = "memory.swap.max" if bench.host.v2 else "memory.memsw.limit_in_bytes"
    bench.host.run()
    bench.set(0.25, 512)
    path = bench.host.memory / swap if lost == "memory" else bench.host.cpu / bench.burst_file
    path.unlink()
    bench.reopen()
    assert bench.give_back() is None
    assert bench.quota == "-1"


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
    host.write(bench.burst_file, str(int(quota * burst_ratio)))
    files = host.files()
    change(bench)
    assert bench.give_back() is None
    assert host.files() == files


def test_a_burst_written_by_hand_is_kept_as_far_as_the_quota_allows_and_comes_back(
    bench: Bench,
) -> None:
    host = bench.host.run(CpuQuota=50_000)
    host.write(bench.burst_file, "20000")
    for cores, left in ((0.1, "10000"), (0.4, "20000"), (None, "20000"), (0.05, "5000")):
        bench.set(cores)
        assert bench.burst == left
    assert bench.give_back() is None
    assert bench.burst == "20000"


def test_a_burst_is_set_again_after_a_restart_and_given_back(bench: Bench) -> None:
    host = bench.host.run()
    bench.set(0.5, burst_cores=0.15)
    assert bench.burst == "15000"
    host.restart()
    assert bench.burst == "0"
    updates = len(host.updates)
    bench.set(0.5, burst_cores=0.15)
    assert bench.burst == "15000"
    assert len(host.updates) == updates  # the engine has the rest already
    assert bench.give_back() is None
    assert bench.burst == "0"


@pytest.mark.parametrize(
    ("what", "problem"),
    [
        ("burst", "burst: Read-only file system: /"),
        ("idle", "idle class: Read-only file system: cpu.idle"),
    ],
)
def test_what_the_kernel_refuses_stops_nothing_else(bench: Bench, what: str, problem: str) -> None:
    with unwritable(f"write_{what}"):
        bench.set(0.5, 6, burst_cores=0.15, idle=True, own=OWN)
        assert (bench.quota, bench.host.words["CpuShares"]) == ("50000", 6)
        assert getattr(bench.hands, f"{what}_problem").startswith(problem)
        assert bench.give_back() is None
    bench.set(0.5, 6, burst_cores=0.15, idle=True, own=OWN)
    assert (bench.hands.burst_problem, bench.hands.idle_problem) == (None, None)


@pytest.mark.parametrize("what", ["burst", "idle"])
def test_an_older_kernel_lacks_burst_or_idle_class(bench: Bench, what: str) -> None:
    file = bench.burst_file if what == "burst" else "cpu.idle"
    (bench.host.cpu / file).unlink()
    bench.set(0.5, 6, burst_cores=0.15, idle=True, own=OWN)
    assert (bench.hands.burst_problem, bench.hands.idle_problem) == (None, None)
    assert file not in bench.host.files()
    assert bench.give_back() is None


def test_own_container_enters_and_leaves_the_idle_class(bench: Bench) -> None:
    host = bench.host
    bench.set(None, 6, idle=True, own=OWN)
    assert (host.files()["cpu.idle"], host.words["CpuShares"]) == ("1", 6)
    bench.set(0.5, 6, idle=True, own=OWN)  # a ceiling is given on the way out and in
    assert (host.files()["cpu.idle"], bench.quota) == ("1", "50000")
    bench.set(0.5, 6, own=OWN)
    assert (host.files()["cpu.idle"], bench.allotment.cpu_cores) == ("0", 0.5)
    bench.set(0.01, 6, idle=True, own=OWN)
    # What it is held to now is not what it may fit its threads to for good.
    assert bench.allotment.cpu_cores == OWN.ceiling_cores
    bench.set(0.5, 6, own=OWN)
    # Out of that class it has the kernel's default weight, whatever was read in it.
    assert host.updates[-1] == {"CpuQuota": 50_000, "CpuShares": 6}


def test_container_in_the_idle_class_is_given_back(bench: Bench) -> None:
    bench.set(0.5, 6, idle=True, own=OWN)
    bench.reopen()
    assert bench.give_back() is None
    assert (bench.host.files()["cpu.idle"], bench.quota) == ("0", "100000")


@pytest.mark.parametrize(
    ("limits", "quota", "cores"), [(None, "50000", 1.0), (Limits(1.5), "150000", 1.5)]
)
def test_container_about_to_end_leaves_the_idle_class(
    bench: Bench, limits: Limits | None, quota: str, cores: float
) -> None:
    bench.set(0.5, 6, idle=True, own=OWN)
    bench.hands.lift(CONTAINER, limits)
    assert (bench.host.files()["cpu.idle"], bench.quota) == ("0", quota)
    assert bench.allotment.cpu_cores == cores


def test_container_about_to_end_is_lifted_without_its_allotment(bench: Bench) -> None:
    bench.set(0.5, own=OWN)
    shutil.rmtree(bench.root / "state" / IN_FOLDER)
    (bench.root / "state" / IN_FOLDER).write_text("no folder")
    bench.hands.lift(CONTAINER, Limits(1.5))
    assert bench.quota == "150000"


def test_ended_container_says_nothing_of_the_idle_class(bench: Bench) -> None:
    with unwritable("write_idle"), patch.object(LimitFiles, "hold", return_value=False):
        bench.set(0.5, 6, idle=True, own=OWN)
    assert bench.hands.idle_problem is None


def test_adopted_container_never_enters_the_idle_class(bench: Bench) -> None:
    bench.set(0.5, 6, idle=True)
    assert bench.host.files()["cpu.idle"] == "0"


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


def test_container_without_a_record_is_not_touched(bench: Bench) -> None:
    for own in (None, OWN):
        with full_disk(), pytest.raises(Untouchable, match="cannot be recorded: No space left"):
            bench.set(0.5, own=own)
    assert bench.host.updates == []
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


def _group_of_another(bench: Bench) -> None:
    groups = "1:cpu:/docker/another\n0::/docker/another\n"
    (bench.host.proc / str(PID) / "cgroup").write_text(groups)


def _both_dialects(bench: Bench) -> None:
    bench.host.words.update(NanoCpus=500_000_000, CpuQuota=-1)


V1_REFUSALS: list[tuple[Callable[[Bench], None], str]] = [
    (_by_hand("cpu.cfs_quota_us", "20000"), "quota without the engine: now 20000 of"),
    (_by_hand("cpu.cfs_period_us", "50000"), "the engine would give -1 of 100000 us"),
    (_by_hand("cpu.shares", "3"), "shares without the engine: now 3, the engine"),
    (_by_hand("memory.limit_in_bytes", "8192"), "memory limit without the engine"),
]
V2_REFUSALS: list[tuple[Callable[[Bench], None], str]] = [
    (_by_hand("cpu.max", "38000 100000"), "quota without the engine: now 38000 of"),
    (_by_hand("cpu.max", "max 50000"), "the engine would give -1 of 100000 us"),
    (_by_hand("cpu.weight", "50"), "weight without the engine: now 50, the engine"),
    (_by_hand("memory.max", "8192"), "memory limit without the engine: now 8192"),
]
ANY_REFUSALS: list[tuple[Callable[[Bench], None], str]] = [
    (_both_dialects, "both --cpus and --cpu-quota"),
    (_by_hand("cpu.idle", "1"), "cpu.idle without the engine"),
    (_group_away, "the container's control group cannot be read"),
    (_group_of_another, "the container's control group cannot be read"),
    (lambda bench: bench.host.stop(), "the container does not run"),
    (_broken_record, "the record of the container's original limits cannot be read: "),
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
    with pytest.raises(Untouchable, match="limits not changed: "):
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
    assert "quota without the engine" in (bench.hands.refusal(CONTAINER) or "")


def test_a_burst_that_could_not_be_lowered_is_a_refusal(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.host.run(CpuQuota=50_000)
    bench.host.write(bench.burst_file, "20000")
    monkeypatch.setattr(LimitFiles, "burst_writable", property(lambda _: False))
    assert "has a CPU burst" in (bench.hands.refusal(CONTAINER) or "")


# ---------------------------------------------------------------------- own jobs


def test_own_job_goes_back_to_its_present_ceiling(bench: Bench) -> None:
    bench.host.run(CpuQuota=10_000, CpuPeriod=100_000, CpuShares=99)
    bench.set(0.1, 300, burst_cores=0.03, own=Own("job", 0.5))
    bench.set(0.2, 300, own=Own("job", 1.5))
    bench.reopen()
    back = bench.hands.give_back(bench.record)
    assert (back.failure, back.job, back.adopted) == (None, "job", False)
    weight = "100" if bench.host.v2 else "1024"
    assert (bench.quota, bench.weight, bench.burst) == ("150000", weight, "0")
    assert bench.allotment.cpu_cores == 1.5


def test_an_own_job_without_a_ceiling_has_no_limit_afterwards(bench: Bench) -> None:
    bench.host.run(CpuQuota=10_000, CpuPeriod=100_000)
    bench.set(0.1, own=Own("job"))
    assert bench.hands.give_back(bench.record).now.startswith("no CPU limit (period 100000 us)")


def test_record_is_written_only_where_it_changes(bench: Bench) -> None:
    with patch.object(records, "write_whole", wraps=records.write_whole) as written:
        for ceiling in (0.5, 0.5, 1.0, 1.0):
            bench.set(0.1, own=Own("job", ceiling))
        assert written.call_count == 2
        bench.give_back()
        bench.set(0.1, own=Own("job", 1.0))
    assert written.call_count == 4
    assert not bench.record.given_back


# ---------------------------------------------------------------------- giving back


def test_one_that_ended_is_given_back_for_its_next_start(bench: Bench) -> None:
    host = bench.host.run(CpuQuota=30_000)
    files = host.files()
    change(bench)
    host.stop()
    back = bench.hands.give_back(bench.record)
    assert (back.failure, back.now) == (None, "0.3 cores")
    host.pid = 4242
    host.restart()
    assert host.files() == files


def test_one_that_ends_in_the_middle_is_given_back_all_the_same(bench: Bench) -> None:
    host = bench.host.run(CpuQuota=30_000)
    bench.set(0.1)

    real = host.update

    def dies(container: str, body: dict[str, Any]) -> None:
        host.update = real  # type: ignore[method-assign]
        host.stop()
        raise EngineRefused(500, "no such process")

    host.update = dies  # type: ignore[method-assign]
    assert bench.give_back() is None
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
    assert bench.give_back() is None


def test_other_limits_than_the_original_are_a_failure(bench: Bench) -> None:
    bench.host.run(CpuQuota=30_000)
    bench.set(0.1)
    real = bench.host._to_kernel

    def meddle() -> None:
        real()
        name = "cpu.max" if bench.host.v2 else "cpu.cfs_quota_us"
        bench.host.write(name, bench.host.files()[name].replace("30000", "29000"))

    bench.host._to_kernel = meddle  # type: ignore[method-assign]
    failure = bench.give_back() or ""
    assert "is 29000" in failure and "must be 30000" in failure
    assert not bench.record.given_back


def test_a_memory_limit_that_its_owner_changed_meanwhile_is_no_failure(bench: Bench) -> None:
    host = bench.host.run(Memory=1 << 20)
    bench.set(0.1)
    host._set({"Memory": 2 << 20})
    assert bench.give_back() is None
    host._set({"Memory": 1 << 20})
    bench.set(0.1)
    host.write("memory.max" if host.v2 else "memory.limit_in_bytes", "4096")
    assert "must be 1048576" in (bench.give_back() or "")


def test_full_disk_lets_it_be_given_back_again_later(bench: Bench) -> None:
    bench.host.run(CpuQuota=30_000)
    bench.set(0.1)
    with full_disk():
        assert bench.give_back() is None
    assert bench.quota == "30000"
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


def test_another_engine_does_not_make_a_record_forgotten(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = bench.host.info()
    monkeypatch.setattr(bench.host, "info", lambda: {**info, "ID": "first"})
    bench.set(0.2)
    assert bench.record.engine == "first"
    bench.host.gone = True
    monkeypatch.setattr(bench.host, "info", lambda: {**info, "ID": "second"})
    bench.reopen()
    failure = bench.give_back() or ""
    assert "another engine has it" in failure
    assert f"originals/{CONTAINER}.json" in failure
    with pytest.raises(NotGivenBack, match="another engine has it"):
        bench.hands.forget_if_gone(CONTAINER)
    monkeypatch.setattr(bench.host, "info", lambda: {**info, "ID": "first"})
    assert bench.hands.give_back(bench.record).now == "gone"
    assert bench.originals.of(CONTAINER) is None


def test_a_dry_run_neither_claims_nor_heeds_claims(tmp_path: Path) -> None:
    host = FakeHost(tmp_path).claimable()
    hands = LimitWriter(instance_of(host, tmp_path / "state", proc=host.proc))
    with closing(ExclusiveClaims(host.proc)) as other:
        assert hands.claims.take(CONTAINER)
        assert other.take(CONTAINER)
        assert hands.refusal(CONTAINER) is None
