"""What containers use of their GPUs: summed by process, in the mean over GPUs, never guessed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.estimate.gpu_use import GpuUse, gpu_uses
from dlsched.model.facts import GpuFact, GpuProcess
from tests.doubles import gpu_fact, running

GIB = 1 << 30


def gpu(index: int, *processes: GpuProcess, busy: float | None = 0.5) -> GpuFact:
    return replace(gpu_fact(index), busy_ratio=busy, processes=processes)


ONE = gpu(0, GpuProcess(1, "id-a", GIB, 0.2), GpuProcess(2, "id-a", GIB, 0.1))
TWO = gpu(1, GpuProcess(3, "id-a", GIB, 0.5), GpuProcess(4, "id-b", 2 * GIB, 0.4))
A = running("a", gpus=(ONE.uuid, TWO.uuid))
B = running("b", gpus=(TWO.uuid,))


def test_processes_add_up_and_gpus_are_averaged() -> None:
    uses = gpu_uses((ONE, TWO), (A, B, running("c")))
    assert uses.keys() == {"id-a", "id-b"}
    assert uses["id-a"].busy_ratio == pytest.approx((0.3 + 0.5) / 2)
    assert uses["id-a"].memory_bytes == 3 * GIB
    assert uses["id-b"] == GpuUse(0.4, 2 * GIB)


def test_without_a_process_it_uses_nothing() -> None:
    assert gpu_uses((gpu(0), TWO), (running("d", gpus=(ONE.uuid,)),))["id-d"] == GpuUse(0.0, 0)


def test_what_cannot_be_read_is_not_taken_for_nothing() -> None:
    instance = gpu(0, GpuProcess(1, "id-a", GIB, None), busy=None)
    assert gpu_uses((instance, TWO), (A,))["id-a"] == GpuUse(None, 2 * GIB)
    unread = gpu(0, GpuProcess(1, "id-a", None, None))
    assert gpu_uses((unread, TWO), (A,))["id-a"] == GpuUse(None, None)


def test_a_gpu_that_is_gone_says_nothing() -> None:
    assert gpu_uses((TWO,), (A,))["id-a"] == GpuUse()
    assert gpu_uses((replace(ONE, trouble="fell off the bus"), TWO), (A,))["id-a"] == GpuUse()


def test_more_than_all_of_a_gpu_is_all_of_it() -> None:
    mad = gpu(0, GpuProcess(1, "id-b", GIB, 0.8), GpuProcess(2, "id-b", GIB, 0.7))
    assert gpu_uses((mad,), (running("b", gpus=(mad.uuid,)),))["id-b"].busy_ratio == 1.0
