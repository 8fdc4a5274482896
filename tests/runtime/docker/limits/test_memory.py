"""Memory limits: raised with swap in step, never below use, and given back word for word."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlsched.model.facts import GpuAccess
from dlsched.runtime.docker.engine import EngineRefused
from dlsched.runtime.machine.outcomes import Untouchable
from tests.runtime.docker.fake_host import CONTAINER, full_disk
from tests.runtime.docker.limits.bench import KERNELS, OWN, Bench, unwritable

MIB = 1 << 20
LIMITED = {"Memory": 64 * MIB, "MemorySwap": 80 * MIB}
SWAP = {
    "some swap": (80 * MIB, 144 * MIB),
    "no swap": (64 * MIB, 128 * MIB),
    "all swap, or none counted": (-1, -1),
}


@pytest.fixture(params=KERNELS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    made = Bench(tmp_path, **KERNELS[request.param])
    made.host.run(**LIMITED).hold(60 * MIB)
    return made


def raised(bench: Bench, mib: int, **more: object) -> None:
    bench.hands.set_memory(CONTAINER, mib * MIB, **more)  # type: ignore[arg-type]


def has(bench: Bench) -> tuple[int, int]:
    return bench.host.words["Memory"], bench.host.words["MemorySwap"]


def kernel_mib(bench: Bench) -> int:
    name = "memory.max" if bench.host.v2 else "memory.limit_in_bytes"
    return int(bench.host.files()[name]) // MIB


@pytest.mark.parametrize("swap", SWAP)
@pytest.mark.parametrize("kernel", KERNELS)
def test_swap_stays_in_step_and_both_come_back(tmp_path: Path, kernel: str, swap: str) -> None:
    bench, (made, then) = Bench(tmp_path, **KERNELS[kernel]), SWAP[swap]
    host = bench.host.run(Memory=64 * MIB, MemorySwap=made)
    host.hold(MIB)
    files, words = host.files(), dict(host.words)
    raised(bench, 96)
    raised(bench, 128)
    assert has(bench) == (128 * MIB, then)
    assert kernel_mib(bench) == 128
    bench.reopen()
    assert bench.give_back() is None
    assert (host.files(), has(bench)) == (files, (64 * MIB, made))
    assert {**host.words, "CpuQuota": 0, "CpuShares": 0} == words


def test_both_limits_of_one_container_come_back_whichever_was_first(bench: Bench) -> None:
    files = bench.host.files()
    raised(bench, 128)
    bench.set(0.25, 512)
    raised(bench, 96)
    bench.reopen()
    assert bench.give_back() is None
    assert bench.host.files() == files
    assert bench.record.given_back


def test_the_original_is_on_the_disk_before_the_first_write(bench: Bench) -> None:
    with full_disk(), pytest.raises(Untouchable, match="cannot be recorded"):
        raised(bench, 128)
    assert bench.host.updates == []
    bench.host.raises = [EngineRefused(500, "killed here")]
    with pytest.raises(EngineRefused):
        raised(bench, 128)
    bench.reopen()
    assert bench.record.memory is not None
    assert bench.record.memory.limits.memory_bytes == 64 * MIB
    assert bench.give_back() is None
    assert has(bench) == (64 * MIB, 80 * MIB)


def test_no_limit_is_lowered_below_what_is_held(bench: Bench) -> None:
    raised(bench, 128)
    bench.host.hold(100 * MIB, 20 * MIB)
    with pytest.raises(Untouchable, match=r"stays at 128 MiB .* holds 100 MiB, .* of 96 MiB"):
        raised(bench, 96)
    raised(bench, 110)
    assert kernel_mib(bench) == 110
    assert not bench.host.killed


def test_what_is_held_above_the_original_limit_keeps_the_limit_until_it_is_less(
    bench: Bench,
) -> None:
    raised(bench, 128)
    bench.set(0.25, 512)
    bench.host.hold(100 * MIB)
    bench.reopen()
    for _ in range(2):
        assert bench.give_back() == (
            "its memory limit stays at 128 MiB until the container uses less: it holds 100 MiB, "
            "too much for a limit of 64 MiB"
        )
        assert kernel_mib(bench) == 128
        assert bench.quota == "-1"
        assert not bench.record.given_back
    bench.host.hold(50 * MIB)
    assert bench.give_back() is None
    assert has(bench) == (64 * MIB, 80 * MIB)
    assert not bench.host.killed


def test_limit_that_the_owner_sets_meanwhile_is_what_comes_back(bench: Bench) -> None:
    raised(bench, 128)
    bench.host.update(CONTAINER, {"Memory": 160 * MIB, "MemorySwap": 160 * MIB})
    assert bench.give_back() is None
    assert has(bench) == (160 * MIB, 160 * MIB)


def test_after_the_owners_limit_a_raise_begins_from_that(bench: Bench) -> None:
    raised(bench, 128)
    bench.host.update(CONTAINER, {"Memory": 160 * MIB, "MemorySwap": 160 * MIB})
    raised(bench, 256)
    assert has(bench) == (256 * MIB, 256 * MIB)
    assert bench.give_back() is None
    assert has(bench) == (160 * MIB, 160 * MIB)


@pytest.mark.parametrize("last", [128 * MIB, 128 * MIB + 5], ids=["pages", "not whole pages"])
def test_failed_updates_lose_no_original(bench: Bench, last: int) -> None:
    bench.hands.set_memory(CONTAINER, last)
    for mib in (112, 120, 136):
        bench.host.raises = [EngineRefused(500, "busy")]
        with pytest.raises(EngineRefused):
            raised(bench, mib)
    bench.reopen()
    assert bench.record.memory is not None
    assert bench.record.memory.limits.memory_bytes == 64 * MIB
    assert bench.give_back() is None
    assert has(bench) == (64 * MIB, 80 * MIB)


def test_update_that_arrives_late_is_not_the_owners(bench: Bench) -> None:
    for mib in (96, 112, 128):  # each timed out, and the first is done after all
        bench.host.raises = [EngineRefused(500, "timeout")]
        with pytest.raises(EngineRefused):
            raised(bench, mib)
    bench.host.update(CONTAINER, {"Memory": 96 * MIB, "MemorySwap": 112 * MIB})
    assert bench.give_back() is None
    assert has(bench) == (64 * MIB, 80 * MIB)


def test_limit_that_the_owner_has_just_raised_is_not_lowered(bench: Bench) -> None:
    raised(bench, 96)
    bench.host.update(CONTAINER, {"Memory": 256 * MIB, "MemorySwap": 256 * MIB})
    with pytest.raises(Untouchable, match="owner has set"):
        raised(bench, 128)
    assert has(bench) == (256 * MIB, 256 * MIB)


def test_own_container_goes_back_to_its_limit_at_the_start(bench: Bench) -> None:
    raised(bench, 128, own=OWN)
    bench.set(0.25, 512, own=OWN)
    bench.host.hold(MIB)
    bench.reopen()
    assert bench.give_back() is None
    assert has(bench) == (64 * MIB, 80 * MIB)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({}, "shows no memory limit"),
        ({"Memory": 64 * MIB}, "without a limit of swap"),
    ],
)
def test_what_has_no_limit_gets_none(tmp_path: Path, words: dict[str, int], why: str) -> None:
    bench = Bench(tmp_path)
    bench.host.run(**words)
    with pytest.raises(Untouchable, match=why):
        raised(bench, 128)
    assert bench.host.updates == []


def test_limit_written_past_the_engine_is_not_ours_to_change(bench: Bench) -> None:
    bench.host.write("memory.max" if bench.host.v2 else "memory.limit_in_bytes", str(72 * MIB))
    with pytest.raises(Untouchable, match="without the engine"):
        raised(bench, 128)


@pytest.mark.parametrize("kernel", KERNELS)
def test_where_the_engine_must_not_be_asked_the_files_are_written_and_come_back(
    tmp_path: Path, kernel: str
) -> None:
    bench = Bench(tmp_path, GpuAccess.LEGACY, **KERNELS[kernel])
    host = bench.host.run(**LIMITED)
    host.hold(MIB)
    files = host.files()
    raised(bench, 128)
    assert kernel_mib(bench) == 128
    if not host.v2:
        assert int(host.files()["memory.memsw.limit_in_bytes"]) == 144 * MIB
    assert host.updates == []
    bench.reopen()
    assert bench.give_back() is None
    assert (host.files(), host.updates) == (files, [])


def test_files_that_cannot_be_written_are_one_line(tmp_path: Path) -> None:
    bench = Bench(tmp_path, GpuAccess.LEGACY)
    bench.host.run(**LIMITED).hold(MIB)
    with unwritable("write_memory"), pytest.raises(Untouchable, match="cannot be written: Read-"):
        raised(bench, 128)


def test_on_v1_without_swap_accounting_memory_alone_is_written(tmp_path: Path) -> None:
    bench = Bench(tmp_path, GpuAccess.LEGACY)
    bench.host.run(Memory=64 * MIB, MemorySwap=-1).hold(MIB)
    (bench.host.memory / "memory.memsw.limit_in_bytes").unlink()
    raised(bench, 128)
    assert kernel_mib(bench) == 128
    bench.reopen()
    assert bench.give_back() is None
    assert kernel_mib(bench) == 64
