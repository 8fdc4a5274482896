"""What is in force already: the kernel's word counts, since the engine's may be old."""

from __future__ import annotations

import pytest

from dlsched.runtime.cgroup.group_limits import GroupLimits
from dlsched.runtime.docker.limits.dialect import is_applied
from dlsched.runtime.originals import EngineLimits

UPDATE = {"CpuQuota": 50_000, "CpuPeriod": 100_000, "CpuShares": 1024}
TOLD = EngineLimits(0, 50_000, 100_000, 1024)


def v1(shares: int) -> GroupLimits:
    files = {"cpu.cfs_quota_us": "50000", "cpu.cfs_period_us": "100000", "cpu.shares": str(shares)}
    return GroupLimits(files)


def v2(weight: int) -> GroupLimits:
    return GroupLimits({"cpu.max": "50000 100000", "cpu.weight": str(weight)})


@pytest.mark.parametrize(("seen", "same"), [(v1(1024), True), (v1(653), False)])
def test_shares_that_only_the_engine_has_are_not_in_force(seen: GroupLimits, same: bool) -> None:
    assert is_applied(UPDATE, TOLD, seen) is same


@pytest.mark.parametrize(("weight", "same"), [(39, True), (100, True), (64, False)])
def test_a_weight_is_in_force_whichever_conversion_made_it(weight: int, same: bool) -> None:
    assert is_applied(UPDATE, TOLD, v2(weight)) is same


def test_where_no_shares_are_asked_for_any_will_do() -> None:
    ceiling = {"CpuQuota": 50_000, "CpuPeriod": 100_000}
    assert is_applied(ceiling, TOLD, v1(2))
