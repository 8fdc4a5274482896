"""Limits as the kernel's files have them, on trees of both versions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dlsched.runtime.cgroup.group_limits import GroupLimits, LimitFiles
from tests.runtime.docker.fake_host import CONTAINER, PID, V1, V2, FakeHost


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
    found = LimitFiles(PID, CONTAINER, host.proc)
    assert not found.writable


def test_a_kernel_without_a_burst(host: FakeHost) -> None:
    (host.cpu / ("cpu.max.burst" if host.v2 else "cpu.cfs_burst_us")).unlink()
    found = LimitFiles(PID, CONTAINER, host.proc)
    assert (found.burst_file, found.burst_writable) == (None, False)
    assert found.read().burst_us is None
    with pytest.raises(OSError, match="knows no burst"):
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
    with pytest.raises(OSError, match="not understood"):
        LimitFiles(PID, CONTAINER, host.proc)


def test_a_read_only_mount_is_noticed(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert not LimitFiles(PID, CONTAINER, host.proc).burst_writable
