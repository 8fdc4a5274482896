"""Which GPUs a job gets: the best fit, nobody over what there is, and a reason with the numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.control.gpus.placement import (
    Holder,
    PlacementOptions,
    is_alone,
    kinds_text,
    memory_on,
    place,
    rooms,
    taken,
)
from dlsched.model.facts import ComputeMode
from dlsched.model.spec import LatencyTarget
from dlsched.model.state import GpuHolder, GpuView, HolderKind
from tests.doubles import gpu_fact, gpu_node, gpu_spec

AUTO = PlacementOptions()
GIB = 2**30


def placed(spec, node, *holders, options=AUTO):
    left = rooms(node, [Holder(held, gpus) for held, *gpus in holders], options)
    return place(spec, left, options)


def gpus(spec, node, *holders, options=AUTO):
    return placed(spec, node, *holders, options=options).gpus


FOUR = gpu_node(*map(gpu_fact, range(4)))
NOTEBOOK = GpuHolder(
    HolderKind.FOREIGN, "c" * 64, "notebook", memory_bytes=6 * GIB, computes=False,
    idle_over_s=3600.0,
)  # fmt: skip
PROCESS = GpuHolder(
    HolderKind.FOREIGN, pid=7, uid=1000, user="ada", memory_bytes=GIB, computes=True
)
HALF, THIRD = gpu_spec("half", share=0.5), gpu_spec("third", share=0.3)
SERVICE = gpu_spec("service", share=0.2, target=LatencyTarget(0.05))


def test_training_fills_a_gpu_before_the_next_one_is_used():
    assert gpus(THIRD, FOUR, (HALF, "GPU-2")) == ("GPU-2",)
    large_in_use = gpu_node(gpu_fact(0, 8), gpu_fact(1, 80))
    assert gpus(THIRD, large_in_use, (gpu_spec("a", share=0.1), "GPU-1")) == ("GPU-1",)


def test_services_are_spread_over_the_emptiest():
    assert gpus(SERVICE, FOUR, (HALF, "GPU-0"), (THIRD, "GPU-1")) == ("GPU-2",)


@pytest.mark.parametrize(("prefer", "spec", "chosen"), [
    ("spread", THIRD, "GPU-0"), ("pack", SERVICE, "GPU-2"),
])  # fmt: skip
def test_a_setting_spreads_or_packs_all(prefer, spec, chosen):
    options = PlacementOptions(prefer=prefer)
    assert gpus(spec, FOUR, (HALF, "GPU-2"), options=options) == (chosen,)


def test_among_gpus_in_use_the_one_with_the_least_left_is_taken():
    fuller = gpu_spec("fuller", share=0.7)
    assert gpus(THIRD, FOUR, (HALF, "GPU-1"), (fuller, "GPU-3")) == ("GPU-3",)


def test_a_large_gpu_is_left_for_who_needs_it():
    node = gpu_node(gpu_fact(0, 80), gpu_fact(1, 16), gpu_fact(2, 40))
    assert gpus(gpu_spec("small"), node) == ("GPU-1",)
    assert gpus(gpu_spec("middle", gib=30), node) == ("GPU-2",)
    assert gpus(gpu_spec("shared", share=0.1, gib=20), node) == ("GPU-2",)


def test_several_gpus_are_distinct_and_of_one_model():
    node = gpu_node(
        gpu_fact(0),
        gpu_fact(1, model="NVIDIA A10"),
        gpu_fact(2, model="NVIDIA A10"),
        gpu_fact(3, 8),
    )
    assert gpus(gpu_spec("two", 2, gib=10), node) == ("GPU-1", "GPU-2")
    assert set(gpus(gpu_spec("three", 3, gib=10), node)) == {"GPU-0", "GPU-1", "GPU-2"}


def test_several_gpus_are_near_each_other_where_that_is_known():
    node = gpu_node(*(gpu_fact(index, numa_node=index % 2) for index in range(4)))
    assert gpus(gpu_spec("two", 2), node, (HALF, "GPU-0")) == ("GPU-1", "GPU-3")


def test_only_the_model_asked_for_will_do_whatever_the_case():
    node = gpu_node(gpu_fact(0), gpu_fact(1, model="NVIDIA A100-SXM4"))
    assert gpus(gpu_spec("a", model="a100"), node) == ("GPU-1",)


def test_a_job_alone_does_not_share_and_nobody_joins_it():
    one = gpu_node(gpu_fact(0))
    alone = gpu_spec("alone")
    assert placed(alone, one, (THIRD, "GPU-0")).reason == "needs 1 GPU alone, 0 of 1 free"
    assert placed(THIRD, one, (alone, "GPU-0")).reason == (
        "needs 0.30 of a GPU's time, at most 0.00 is left on any of 1"
    )


def test_shares_may_add_up_to_all_of_a_gpu_in_decimal_fractions():
    one = gpu_node(gpu_fact(0))
    tenths = [gpu_spec(f"j{index}", share=0.1) for index in range(10)]
    assert gpus(tenths[9], one, *((spec, "GPU-0") for spec in tenths[:9])) == ("GPU-0",)


def test_without_memory_asked_a_sharing_job_is_promised_its_part():
    assert memory_on(HALF, 16 * GIB) == 8 * GIB
    assert memory_on(gpu_spec("a"), 16 * GIB) == 16 * GIB
    assert memory_on(gpu_spec("a", share=0.5, gib=2), 16 * GIB) == 2 * GIB


@pytest.mark.parametrize(("spec", "holder", "reason"), [
    (gpu_spec("a", share=0.5), gpu_spec("h", share=0.7),
     "needs 0.50 of a GPU's time, at most 0.30 is left on any of 1"),
    (gpu_spec("a", share=0.1, gib=12), gpu_spec("h", share=0.2, gib=6),
     "needs 12 GiB on a GPU, at most 10 GiB is left on the 1 of 1 with time left"),
    (gpu_spec("a", 2, share=0.1), gpu_spec("h", share=0.2, gib=6),
     "needs 0.10 of the time of 2 GPUs, free on 1 of 1"),
    (gpu_spec("a", share=0.5), gpu_spec("h", share=0.2, gib=12),
     "needs 0.50 of the memory of a GPU, at most 4 GiB is left on the 1 of 1 with time left"),
    (gpu_spec("a", model="A100"), gpu_spec("h"), "needs 1 GPU alone, 0 of 0 A100 free"),
])  # fmt: skip
def test_what_does_not_fit_is_told_with_the_numbers(spec, holder, reason):
    assert placed(spec, gpu_node(gpu_fact(0)), (holder, "GPU-0")).reason == reason


@pytest.mark.parametrize(("gpu", "why"), [
    (GpuView(gpu_fact(0), reserved=True), "GPU 0: reserved"),
    (GpuView(gpu_fact(0, trouble="fell off the bus")), "GPU 0: fell off the bus"),
    (GpuView(gpu_fact(0), foreign_processes=1), "GPU 0: used by 1 foreign process"),
    (GpuView(gpu_fact(0), foreign_processes=2, holders=(NOTEBOOK, PROCESS)),
     ("GPU 0: used by container notebook (6 GiB, has held the GPU unused for over 1 h), "
      "process 7 of ada (1 GiB)")),
    (GpuView(gpu_fact(0), foreign_processes=5, holders=(PROCESS,) * 5),
     f"GPU 0: used by {', '.join(['process 7 of ada (1 GiB)'] * 3)} and 2 more"),
    (GpuView(gpu_fact(0, compute_mode=ComputeMode.PROHIBITED)),
     "GPU 0: the GPU's compute mode is prohibited, so no program may use it"),
])  # fmt: skip
def test_a_closed_gpu_is_nobodys_and_the_reason_says_why(gpu, why):
    found = placed(HALF, gpu_node(gpu))
    assert found.reason == f"needs 0.50 of a GPU's time, at most 0.00 is left on any of 0; {why}"


def test_of_many_closed_gpus_a_few_are_told():
    node = gpu_node(*(gpu_fact(index, trouble="lost") for index in range(9)))
    assert placed(HALF, node).reason.endswith("; GPUs 0, 1, 2 and 6 more: lost")


def test_instances_are_told_by_how_many_there_are_of_which_gpu():
    parts = [replace(gpu_fact(0, trouble="lost"), uuid=f"MIG-{n}", part_of="GPU-0") for n in "ab"]
    one = replace(gpu_fact(1, trouble="lost"), uuid="MIG-c", part_of="GPU-1")
    found = placed(HALF, gpu_node(*parts, one, gpu_fact(2, trouble="lost")))
    assert found.reason.endswith("; GPU 2 and 2 instances of GPU 0 and 1 instance of GPU 1: lost")


def test_a_waiting_job_is_shown_the_foreign_holder_of_its_memory():
    used = GpuView(
        gpu_fact(0), foreign_processes=2, foreign_memory_bytes=7 * GIB, holders=(NOTEBOOK, PROCESS)
    )
    share = PlacementOptions(foreign="share")
    assert placed(gpu_spec("a", share=0.1, gib=11), gpu_node(used), options=share).reason == (
        "needs 11 GiB on a GPU, at most 9 GiB is left on the 1 of 1 with time left;"
        " GPU 0: held by container notebook (6 GiB, has held the GPU unused for over 1 h),"
        " process 7 of ada (1 GiB)"
    )


def test_a_waiting_job_is_shown_the_idle_job_in_its_place():
    idle = GpuHolder(
        HolderKind.OWN, "c" * 64, job="h", memory_bytes=GIB, computes=False, idle_over_s=1800.0
    )
    busy = replace(idle, computes=True, idle_over_s=None)
    for holder, text in (
        (idle, "; GPU 0: held by job h (1 GiB, has held the GPU unused for over 30 min)"),
        (busy, ""),
    ):
        node = gpu_node(GpuView(gpu_fact(0), holders=(holder,)))
        reason = placed(gpu_spec("a"), node, (gpu_spec("h"), "GPU-0")).reason
        assert reason == f"needs 1 GPU alone, 0 of 1 free{text}"


def test_foreign_users_keep_their_memory_where_gpus_are_shared_with_them():
    node = gpu_node(GpuView(gpu_fact(0), foreign_processes=1, foreign_memory_bytes=6 * GIB))
    share = PlacementOptions(foreign="share")
    assert gpus(gpu_spec("a", share=0.1, gib=10), node, options=share) == ("GPU-0",)
    assert placed(gpu_spec("a", share=0.1, gib=11), node, options=share).reason == (
        "needs 11 GiB on a GPU, at most 10 GiB is left on the 1 of 1 with time left"
    )


def test_a_part_of_the_memory_is_the_part_that_the_job_is_told_of_whoever_else_is_there():
    node = gpu_node(GpuView(gpu_fact(0), foreign_processes=1, foreign_memory_bytes=6 * GIB))
    share = PlacementOptions(foreign="share")
    assert gpus(HALF, node, options=share) == ("GPU-0",)
    assert placed(gpu_spec("b", share=0.5), node, (HALF, "GPU-0"), options=share).reason == (
        "needs 0.50 of the memory of a GPU, at most 2 GiB is left on the 1 of 1 with time left"
    )


def test_an_exclusive_gpu_takes_one_job_and_none_beside_a_foreign_process():
    exclusive = gpu_fact(0, compute_mode=ComputeMode.EXCLUSIVE)
    assert gpus(HALF, gpu_node(exclusive)) == ("GPU-0",)
    assert gpus(HALF, gpu_node(exclusive), (THIRD, "GPU-0")) is None
    used = gpu_node(GpuView(exclusive, foreign_processes=1))
    assert gpus(HALF, used, options=PlacementOptions(foreign="share")) is None


def test_the_instances_of_a_divided_gpu_are_gpus_of_their_own():
    whole = gpu_fact(0, 80)
    parts = (replace(gpu_fact(0, 10), uuid=f"MIG-{n}", part_of="GPU-0") for n in range(2))
    node = gpu_node(whole, *parts)
    alone = gpu_spec("alone")
    assert gpus(alone, node) == ("MIG-0",)
    assert gpus(alone, node, (HALF, "MIG-0")) == ("MIG-1",)
    assert gpus(gpu_spec("large", gib=40), node) is None


def test_a_gpu_that_is_no_longer_there_is_held_by_nobody():
    assert gpus(gpu_spec("a"), gpu_node(gpu_fact(0)), (HALF, "GPU-9")) == ("GPU-0",)


# ------------------------------------------------------------------------------- properties

facts = st.builds(
    gpu_fact,
    st.integers(0, 99),
    st.sampled_from((8, 16, 80)),
    model=st.sampled_from(("NVIDIA T4", "NVIDIA A100", "NVIDIA H100")),
    compute_mode=st.sampled_from((ComputeMode.DEFAULT, *ComputeMode)),
    numa_node=st.sampled_from((None, 0, 1)),
    trouble=st.sampled_from((None, None, None, "lost")),
)
nodes = st.lists(
    st.builds(
        GpuView,
        facts,
        reserved=st.sampled_from((False, False, True)),
        foreign_processes=st.sampled_from((0, 0, 1)),
        foreign_memory_bytes=st.sampled_from((0, 2 * GIB)),
    ),
    max_size=6,
    unique_by=lambda view: view.uuid,
).map(lambda views: gpu_node(*views))
asks = st.tuples(
    st.integers(1, 3),
    st.sampled_from((0.05, 0.1, 0.3, 1 / 3, 0.5, 0.7, 1.0)),
    st.sampled_from((None, None, 1, 6, 20)),
    st.sampled_from((None, None, "a100")),
    st.booleans(),
)
specs = st.lists(asks, max_size=12).map(
    lambda many: [
        gpu_spec(
            f"j{index}",
            count,
            share,
            gib=gib,
            model=model,
            target=LatencyTarget(0.1) if serves else None,
        )
        for index, (count, share, gib, model, serves) in enumerate(many)
    ]
)
options_of = st.builds(
    PlacementOptions,
    prefer=st.sampled_from(("auto", "pack", "spread")),
    foreign=st.sampled_from(("avoid", "share")),
)


def fill(node, jobs, options, left=None):
    left = rooms(node, [], options) if left is None else left
    on = {}
    for spec in jobs:
        found = place(spec, left, options)
        assert (found.gpus is None) is (found.reason is not None)
        if found.gpus is not None:
            on[spec.name] = found.gpus
            left = taken(left, spec, found.gpus)
    return on, left


@settings(deadline=None)
@given(nodes, specs, options_of)
def test_no_gpu_is_promised_beyond_what_it_has(node, jobs, options):
    on, _ = fill(node, jobs, options)
    by_name = {spec.name: spec for spec in jobs}
    for name, uuids in on.items():
        assert len(set(uuids)) == len(uuids) == by_name[name].container.gpus
    for view in node.gpus:
        here = [by_name[name] for name in on if view.uuid in on[name]]
        foreign_bytes = view.foreign_memory_bytes
        assert sum(spec.bounds.floor_share for spec in here) <= 1 + 1e-6
        asked = [spec.container.gpu_memory_bytes for spec in here]
        free_bytes = view.fact.memory_bytes - foreign_bytes
        held_bytes = sum(
            memory_on(spec, view.fact.memory_bytes)
            for spec, own in zip(here, asked, strict=True)
            if own is not None or not is_alone(spec)
        )
        assert held_bytes <= free_bytes or not here
        if any(is_alone(spec) for spec in here):
            assert len(here) == 1
        if view.fact.compute_mode is ComputeMode.EXCLUSIVE:
            assert len(here) <= 1
        closed = (
            view.reserved or view.fact.trouble or (view.fact.compute_mode is ComputeMode.PROHIBITED)
        )
        avoided = view.foreign_processes and options.foreign == "avoid"
        assert not (here and (closed or avoided))


def test_gpus_are_counted_by_kind_and_of_many_kinds_the_first_are_told():
    kinds = [("NVIDIA A100", 80 << 30), ("Tesla T4", 15 << 30), ("NVIDIA A100", 80 << 30)]
    assert kinds_text(kinds) == "2 NVIDIA A100 80 GiB, 1 Tesla T4 15 GiB"
    many = [(f"model {number}", 1 << 30) for number in range(6)]
    assert kinds_text(many).endswith("1 model 3 1 GiB, ...")
    assert kinds_text([]) == ""
