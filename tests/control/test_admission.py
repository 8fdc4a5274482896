"""The queue: in order, with reasons, and nobody starves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.control.admission import admit, rank_s
from dlsched.control.gpus.placement import Holder
from dlsched.control.gpus.queue import GpuQueue
from dlsched.model.spec import Bounds, ContainerSpec, OwnerCeilings
from dlsched.model.state import GpuView, NodeView
from tests.doubles import gpu_fact, gpu_spec, job_spec

NODE = NodeView(
    capacity_cores=2.0, cores=2.0, memory_bytes=1024 * 2**20, gpus=(GpuView(gpu_fact(0)),)
)


def sized(name: str, memory_mib: int = 0, floor_cores: float = 0.1):
    container = ContainerSpec(image="m", memory_bytes=memory_mib * 2**20 or None)
    return job_spec(name, container=container, bounds=Bounds(floor_cores))


def test_what_fits_is_admitted():
    verdicts = admit([sized("a", 400), sized("b", 400)], [sized("c", 200)], NODE, 8)
    assert all(verdict.admitted for verdict in verdicts.values())


def test_memory_that_is_promised_is_not_promised_twice():
    verdicts = admit([sized("a", 600), sized("b", 600)], [], NODE, 8)
    assert verdicts["a"].admitted
    assert (
        verdicts["b"].reason
        == "the job needs 600 MiB of memory, jobs of the node have 600 MiB of 1024 MiB"
    )


def test_limit_that_was_raised_is_promised_and_a_max_is_not():
    present, queue = [replace(sized("c", 200), memory_max_bytes=2**40)], [sized("a", 600)]
    assert admit(queue, present, NODE, 8)["a"].admitted
    verdicts = admit(queue, present, NODE, 8, promised_bytes={"c": 500 * 2**20})
    assert (
        verdicts["a"].reason
        == "the job needs 600 MiB of memory, jobs of the node have 500 MiB of 1024 MiB"
    )


def test_a_small_job_does_not_overtake_a_large_one_that_waits():
    verdicts = admit([sized("large", 900), sized("small", 10)], [sized("c", 500)], NODE, 8)
    assert not verdicts["large"].admitted
    assert verdicts["small"].reason == "waits behind large"


def test_a_job_that_never_fits_says_so_and_holds_back_nobody():
    verdicts = admit([sized("huge", 4096), sized("wide", 0, 3.0), sized("b")], [], NODE, 8)
    assert verdicts["huge"].reason == (
        "can never start: the job needs 4096 MiB of memory, jobs of the node have 0 MiB of 1024 MiB"
    )
    assert (
        verdicts["wide"].reason
        == "can never start: the job's floor is 3.00 cores, floors of the node take 0.00 of 2.00"
    )
    assert verdicts["b"].admitted


def test_floors_must_fit_beside_the_others():
    verdicts = admit([sized("a", 0, 0.8)], [sized("c", 0, 1.5)], NODE, 8)
    assert (
        verdicts["a"].reason
        == "the job's floor is 0.80 cores, floors of the node take 1.50 of 2.00"
    )


def test_floors_that_fill_the_node_all_fit_whatever_their_sum_is_rounded_to():
    node = replace(NODE, capacity_cores=0.6)
    verdicts = admit([sized("a", 0, 0.1), sized("b", 0, 0.2), sized("c", 0, 0.3)], [], node, 8)
    assert all(verdict.admitted for verdict in verdicts.values())


def test_floors_count_as_the_engine_keeps_them():
    node = replace(NODE, capacity_cores=4.5, grain_cores=0.01)
    jobs = [sized(name, 0, 1.125) for name in "abcd"]
    verdicts = admit(jobs, [], node, 8)
    assert verdicts["c"].admitted
    assert (
        verdicts["d"].reason
        == "the job's floor is 1.13 cores, floors of the node take 3.39 of 4.50"
    )


def test_max_jobs_counts_those_present():
    verdicts = admit([sized("a"), sized("b")], [sized("c")], NODE, 2)
    assert verdicts["a"].admitted
    assert verdicts["b"].reason == "the node has 2 jobs, at most 2 are allowed"


# ------------------------------------------------------------------------------- owners

ALICE, BOB = 1001, 1002


def ceilings(**more: object):
    bounds = OwnerCeilings(**{"jobs": 2, **more})  # type: ignore[arg-type]
    return lambda owner: bounds if owner in (ALICE, BOB) else None


def owned(name: str, owner: int | None, memory_mib: int = 0, floor: float = 0.1, gpus: int = 0):
    spec = sized(name, memory_mib, floor)
    return replace(spec, owner=owner, container=replace(spec.container, gpus=gpus))


@pytest.mark.parametrize(("third", "more", "reason"), [
    (owned("c", ALICE), {}, "uid 1001 has 2 jobs, at most 2 are allowed"),
    (owned("c", ALICE, 300), {"jobs": 9, "memory_bytes": 400 * 2**20},
     "the job needs 300 MiB of memory, jobs of uid 1001 have 200 MiB of 400 MiB"),
    (owned("c", ALICE, 0, 0.9), {"jobs": 9, "cpu_cores": 1.0},
     "the job's floor is 0.90 cores, floors of uid 1001 take 0.20 of 1.00"),
    (owned("c", ALICE, gpus=1), {"jobs": 9, "gpus": 0},
     "the job needs 1 GPUs, jobs of uid 1001 have 0 of 0"),
])  # fmt: skip
def test_an_owners_ceilings_make_a_job_wait_and_hold_back_nobody_else(third, more, reason):
    present = [owned("a", ALICE, 100), owned("b", ALICE, 100)]
    queue = [third, owned("d", ALICE), owned("e", BOB), owned("f", None)]
    verdicts = admit(queue, present, NODE, 8, ceilings(**more))
    assert verdicts["c"].reason == reason
    assert verdicts["d"].reason == "waits behind c"
    assert verdicts["e"].admitted
    assert verdicts["f"].admitted


def test_what_is_admitted_counts_for_its_owner_at_once():
    verdicts = admit([owned(name, ALICE) for name in "abc"], [], NODE, 8, ceilings())
    assert [verdicts[name].admitted for name in "abc"] == [True, True, False]


def test_a_users_job_that_waits_for_the_node_holds_back_its_owners_alone():
    queue = [owned("large", ALICE, 900), owned("a", ALICE), owned("b", BOB), owned("c", None)]
    verdicts = admit(queue, [sized("x", 500)], NODE, 8, ceilings())
    assert [name for name in verdicts if verdicts[name].admitted] == ["b", "c"]


def test_the_operators_job_that_waits_holds_back_everybody():
    queue = [sized("large", 900), owned("a", ALICE), sized("b")]
    verdicts = admit(queue, [sized("x", 500)], NODE, 8, ceilings())
    assert not any(verdict.admitted for verdict in verdicts.values())


# ------------------------------------------------------------------------------- weight and age


def test_twice_the_weight_is_worth_ten_minutes():
    assert rank_s(2.0, 599.0) < rank_s(1.0, 0.0) < rank_s(2.0, 601.0)


@pytest.mark.parametrize("weight", [1e-6, 0.1, 1.0])
def test_only_what_comes_soon_after_a_job_can_pass_it_whatever_the_weights(weight):
    passing = [at_s for at_s in range(0, 10**6, 600) if rank_s(1000.0, at_s) < rank_s(weight, 0.0)]
    assert max(passing) < 600 * 30


# ------------------------------------------------------------------------------- GPUs

ALONE = gpu_spec("alone")
HELD = GpuQueue(NODE, [Holder(gpu_spec("holder"), ("GPU-0",))])


def test_one_that_waits_for_gpus_alone_holds_back_none_that_needs_none():
    verdicts = admit([ALONE, sized("plain")], [], NODE, 8, gpus=HELD)
    assert (
        verdicts["alone"].reason
        == "needs 1 GPU alone, 0 of 1 free; when the job starts is unknown: holder reports nothing"
    )
    assert verdicts["alone"].kept == ("GPU-0",)
    assert verdicts["plain"].admitted


def test_one_that_waits_for_memory_takes_no_gpu():
    greedy = gpu_spec("greedy", container=replace(ALONE.container, memory_bytes=900 * 2**20))
    verdicts = admit([greedy, ALONE], [sized("x", 500)], NODE, 8)
    assert verdicts["greedy"].gpus == ()
    assert verdicts["alone"].reason == "waits behind greedy"
