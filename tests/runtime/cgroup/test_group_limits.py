"""Limits as the kernel's files have them, on trees of both versions."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.runtime.cgroup.cpu_units import (
    OLDER_DEFAULT_SHARES,
    bounded_shares,
    bounded_weight,
    nano_cpus,
    quota_cores,
    quota_us,
    search_shares,
    weight_of,
    weights_of,
)
from dlsched.runtime.cgroup.group_limits import GroupLimits, LimitFiles
from tests.runtime.docker.fake_host import (
    CONTAINER,
    PID,
    V1,
    V2,
    FakeHost,
    newer_weight,
    older_weight,
)


@pytest.fixture(params=[False, True], ids=["v1", "v2"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path, v2=request.param).run(CpuQuota=37_000, CpuShares=512, Memory=1 << 26)


def test_everything_is_read_word_for_word(host: FakeHost) -> None:
    found = LimitFiles(PID, CONTAINER, host.proc)
    assert found.v2 == host.v2
    limits = found.read()
    assert limits.files == host.files()
    assert limits.files.keys() == (V2 if host.v2 else V1).keys()
    assert (limits.quota_us, limits.period_us, limits.burst_us) == (37_000, 100_000, 0)
    assert (limits.shares, limits.weight) == ((None, 20) if host.v2 else (512, None))
    assert limits.memory_bytes == 1 << 26


def test_no_limit_reads_alike_on_both(tmp_path: Path) -> None:
    for v2 in (False, True):
        limits = LimitFiles(PID, CONTAINER, FakeHost(tmp_path / str(v2), v2=v2).proc).read()
        assert (limits.quota_us, limits.period_us, limits.memory_bytes) == (-1, 100_000, None)


def test_what_cannot_be_read_is_left_out_and_nonsense_is_none(host: FakeHost) -> None:
    (host.cpu / ("cpu.weight" if host.v2 else "cpu.shares")).unlink()
    host.write("cpu.max" if host.v2 else "cpu.cfs_quota_us", "nonsense nonsense")
    limits = LimitFiles(PID, CONTAINER, host.proc).read()
    assert (limits.shares, limits.weight, limits.quota_us) == (None, None, None)
    assert GroupLimits({}).quota_us is None
    assert GroupLimits({}).burst_us is None


def test_a_burst_is_written_and_read(host: FakeHost) -> None:
    found = LimitFiles(PID, CONTAINER, host.proc)
    assert found.burst_writable
    found.write_burst(11_100)
    assert found.read().burst_us == 11_100


def test_ceiling_and_weight_are_written_and_read(host: FakeHost) -> None:
    found = LimitFiles(PID, CONTAINER, host.proc)
    assert found.writable
    for quota, period in ((25_000, 100_000), (-1, 100_000), (25_000, 50_000)):
        found.write_ceiling(quota, period)
        found.write_weight(77)
        seen = found.read()
        assert (seen.quota_us, seen.period_us) == (quota, period)
        assert (seen.weight if host.v2 else seen.shares) == 77


def test_what_is_missing_cannot_be_written(host: FakeHost) -> None:
    for path in host.cpu.iterdir():
        path.unlink()
    assert not LimitFiles(PID, CONTAINER, host.proc).writable


def test_a_kernel_without_a_burst(host: FakeHost) -> None:
    (host.cpu / ("cpu.max.burst" if host.v2 else "cpu.cfs_burst_us")).unlink()
    found = LimitFiles(PID, CONTAINER, host.proc)
    assert (found.burst_file, found.burst_writable) == (None, False)
    assert found.read().burst_us is None
    with pytest.raises(OSError, match="has no CPU burst"):
        found.write_burst(0)


def test_files_hold_for_the_process_that_they_were_found_by(host: FakeHost) -> None:
    found = LimitFiles(PID, CONTAINER, host.proc)
    assert found.hold(PID)
    assert not found.hold(PID + 1)
    groups = host.proc / str(PID) / "cgroup"
    for moved in (groups.read_text().replace("/docker/", "/moved/"), "0::/docker/another\n"):
        groups.write_text(moved)
        assert not found.hold(PID)
    groups.unlink()
    assert not found.hold(PID)


def test_a_process_that_is_gone_or_anothers_is_an_error(host: FakeHost) -> None:
    with pytest.raises(OSError):
        LimitFiles(1, CONTAINER, host.proc)
    with pytest.raises(ProcessLookupError):
        LimitFiles(PID, "b" * 64, host.proc)
    (host.proc / str(PID) / "cgroup").write_text("nonsense\n")
    with pytest.raises(OSError, match="unknown format"):
        LimitFiles(PID, CONTAINER, host.proc)


def test_a_read_only_mount_is_noticed(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert not LimitFiles(PID, CONTAINER, host.proc).burst_writable


@pytest.mark.parametrize(
    ("cores", "quota"),
    [
        (1.0, 100_000),
        (0.37777, 37_777),
        (0.374, 37_400),
        (0.01, 1_000),
        (0.001, 1_000),
        (0.0, 1_000),
        (64.0, 6_400_000),
        (None, -1),
    ],
)
def test_a_quota_is_at_least_what_the_engine_takes(cores: float | None, quota: int) -> None:
    assert quota_us(cores) == quota


@pytest.mark.parametrize(
    ("quota", "period", "cores"),
    [
        (37_000, 100_000, 0.37),
        (5_000, 10_000, 0.5),
        (-1, 100_000, None),
        (0, 0, None),
        (None, 100_000, None),
        (1_000, None, None),
    ],
)
def test_no_quota_means_no_limit(
    quota: int | None, period: int | None, cores: float | None
) -> None:
    assert quota_cores(quota, period) == cores


@given(st.floats(0.01, 512))
def test_what_is_read_back_is_what_was_written(cores: float) -> None:
    back = quota_cores(quota_us(cores), 100_000)
    assert abs(back - cores) <= 0.5e-5 + 1e-9
    assert quota_us(back) == quota_us(cores)


def test_weights_stay_within_what_the_kernel_takes() -> None:
    assert [bounded_shares(value) for value in (0, 1024.4, 1e9)] == [2, 1024, 262_144]
    assert [bounded_weight(value) for value in (0, 99.6, 1e9)] == [1, 100, 10_000]


@pytest.mark.parametrize(
    ("cores", "nano"),
    [
        (0.37, 370_000_000),
        (0.001, 10_000_000),
        (2.0, 2 * 10**9),
        (64.0, 2 * 10**9),
        (None, 2 * 10**9),
    ],
)
def test_nano_cpus_stay_within_what_the_engine_takes(cores: float | None, nano: int) -> None:
    assert nano_cpus(cores, host_cores=2) == nano


@given(st.integers(2, 262_144))
def test_the_weight_of_shares_is_that_of_one_of_the_two_conversions(shares: int) -> None:
    assert {older_weight(shares), newer_weight(shares)} <= weights_of(shares)
    assert len(weights_of(shares)) <= 3


@given(st.integers(2, 262_144))
def test_a_weight_past_the_engine_is_the_one_that_it_would_make(shares: int) -> None:
    assert weight_of(shares, newer=False) == older_weight(shares)
    assert weight_of(shares, newer=True) == newer_weight(shares)
    assert weight_of(1, newer=True) == 1


def test_the_default_weight_is_known_in_both_conversions() -> None:
    assert weights_of(0) == {100}
    assert older_weight(1024) == 39 and newer_weight(1024) == 100
    assert older_weight(OLDER_DEFAULT_SHARES) == 100


@pytest.mark.parametrize("weigh", [older_weight, newer_weight])
@given(weight=st.integers(1, 10_000))
def test_any_weight_is_found_by_trying(weigh: Callable[[int], int], weight: int) -> None:
    tried: list[int] = []

    def give(shares: int) -> int:
        tried.append(shares)
        return weigh(shares)

    search_shares(0, weight, give)
    assert weigh(tried[-1]) == weight
    assert len(tried) <= 21


def test_the_shares_that_it_had_are_tried_first_and_an_unreadable_weight_ends_the_search() -> None:
    tried: list[int] = []
    search_shares(512, 20, lambda shares: tried.append(shares) or older_weight(shares))
    assert tried == [512]
    tried.clear()
    search_shares(0, 100, tried.append)
    assert len(tried) == 3
