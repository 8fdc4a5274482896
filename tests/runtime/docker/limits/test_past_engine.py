"""Limits written past the engine: what they are, and whether somebody wrote over them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlsched.model.facts import GpuAccess
from dlsched.runtime.cgroup.group_limits import LimitFiles
from dlsched.runtime.docker.gpus.canary import Canary, GpuContainer, Probe
from dlsched.runtime.docker.limits.past_engine import PastEngine, Unwritable
from tests.runtime.docker.fake_host import CONTAINER, PID, FakeHost, newer_weight, older_weight

UPDATE = {"CpuQuota": 25_000, "CpuShares": 512}


def held(pid: int = PID) -> GpuContainer:
    return GpuContainer(CONTAINER, "one", pid, GpuAccess.LEGACY, ("/dev/nvidia0",))


class Bench:
    def __init__(self, root: Path, *, v2: bool, newer: bool = False) -> None:
        self.looks = 0
        self.host = FakeHost(root, v2=v2)
        self.files = LimitFiles(PID, CONTAINER, self.host.proc)
        self.past = PastEngine(Canary(self._look), lambda: newer)

    def _look(self, _: GpuContainer) -> Probe:
        self.looks += 1
        return Probe(frozenset({"/dev/nvidia0"}), frozenset())


@pytest.mark.parametrize("newer", [False, True])
def test_weights_are_on_the_engines_scale(tmp_path: Path, newer: bool) -> None:
    bench = Bench(tmp_path, v2=True, newer=newer)
    assert not bench.past.has(bench.files, bench.files.read(), UPDATE)
    bench.past.write(held(), bench.files, UPDATE)
    seen = bench.files.read()
    assert (seen.quota_us, seen.weight) == (25_000, (newer_weight if newer else older_weight)(512))
    assert bench.past.has(bench.files, seen, UPDATE)
    assert not bench.past.has(bench.files, seen, {**UPDATE, "CpuShares": 2048})
    assert bench.past.has(bench.files, seen, {"CpuQuota": 25_000})


@pytest.mark.parametrize("v2", [False, True])
def test_a_look_is_taken_at_first_and_where_somebody_wrote_over_it(
    tmp_path: Path, v2: bool
) -> None:
    bench = Bench(tmp_path, v2=v2)
    for quota in (25_000, 50_000, -1):
        bench.past.write(held(), bench.files, {**UPDATE, "CpuQuota": quota})
    assert bench.looks == 1, "its GPUs may have been taken before this agent began"
    bench.files.write_ceiling(77_000, 100_000)
    bench.past.write(held(pid=PID + 1), bench.files, UPDATE)  # a new start has nothing of it
    assert bench.looks == 1
    bench.files.write_ceiling(77_000, 100_000)
    bench.past.write(held(pid=PID + 1), bench.files, UPDATE)
    assert bench.looks == 2
    bench.past.forget(CONTAINER)
    bench.past.write(held(pid=PID + 1), bench.files, UPDATE)
    assert bench.looks == 3


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    bench = Bench(tmp_path, v2=False)
    with pytest.raises(Unwritable, match="control group cannot be written"):
        bench.past.write(held(), None, UPDATE)
    (bench.host.cpu / "cpu.shares").unlink()
    with pytest.raises(Unwritable, match="control group cannot be written"):
        bench.past.write(held(), bench.files, UPDATE)
    assert bench.files.read().quota_us == -1
