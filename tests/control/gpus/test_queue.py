"""The queue's GPUs: nobody starves, what is kept stays kept, and estimates say what they know."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.control.gpus.placement import Holder, PlacementOptions
from dlsched.control.gpus.queue import GpuQueue
from dlsched.model.forecast import Forecast, ForecastKind
from dlsched.model.spec import LatencyTarget
from dlsched.model.state import GpuView
from tests.doubles import gpu_fact, gpu_node, gpu_spec

TWO = gpu_node(gpu_fact(0), gpu_fact(1))
BIG, SMALL = gpu_spec("big", 2), gpu_spec("small", share=0.2)


def held(name: str, *gpus: str, share: float = 0.5) -> Holder:
    return Holder(gpu_spec(name, share=share), gpus)


def ends(**in_s: float | None):
    """When each holder may end."""

    def outlook(job: str) -> Forecast:
        kind = ForecastKind.UNKNOWN if in_s.get(job) is None else ForecastKind.EXPECTED
        return Forecast(kind, "finish", in_s.get(job), why=f"{job} is told")

    return outlook


def turns(queue: GpuQueue, *specs):
    return {spec.name: queue.admit(spec) for spec in specs}


def test_the_first_that_waits_keeps_its_gpus_from_those_behind_it():
    three = gpu_node(*map(gpu_fact, range(3)))
    queue = GpuQueue(three, [held("a", "GPU-0"), held("b", "GPU-1")], outlook=ends(a=60, b=90))
    found = turns(queue, BIG, SMALL, gpu_spec("wide", share=0.9))
    assert found["big"].kept == ("GPU-2", "GPU-0")
    assert found["small"].gpus == ("GPU-1",)
    assert found["wide"].reason.startswith(
        "needs 0.90 of a GPU's time, at most 0.30 is left on any of 1; GPUs 0, 2: kept for big"
    )


def test_of_two_that_wait_for_the_same_gpus_only_the_first_keeps():
    queue = GpuQueue(TWO, [held("a", "GPU-0"), held("b", "GPU-1")])
    found = turns(queue, gpu_spec("first"), gpu_spec("second"))
    assert len(found["first"].kept) == 1
    assert found["second"].kept == ()


def test_where_nothing_tells_when_the_gpu_with_the_fewest_jobs_is_kept():
    queue = GpuQueue(TWO, [held("a", "GPU-0"), held("b", "GPU-0"), held("c", "GPU-1")])
    assert queue.admit(gpu_spec("alone")).kept == ("GPU-1",)


def serves(name: str, *gpus: str) -> Holder:
    return Holder(gpu_spec(name, share=0.5, target=LatencyTarget(0.1)), gpus)


def test_a_gpu_that_a_service_holds_is_kept_last_for_it_may_never_end():
    holders = [serves("api", "GPU-0"), held("b", "GPU-1", share=0.2), held("c", "GPU-1", share=0.2)]
    alone, small = gpu_spec("alone"), gpu_spec("small", share=0.2)
    found = turns(GpuQueue(TWO, holders), alone, small)
    assert (found["alone"].kept, found["small"].gpus) == (("GPU-1",), ("GPU-0",))
    before = GpuQueue(TWO, holders, kept={"alone": ("GPU-0",)})
    assert before.admit(alone).kept == ("GPU-1",)
    fits = gpu_spec("fits", share=0.5)
    beside = [serves("api", "GPU-0"), held("b", "GPU-0", share=0.5), held("c", "GPU-1", share=1.0)]
    assert GpuQueue(TWO, beside, outlook=ends(b=60)).admit(fits).kept == ("GPU-0",)


def test_who_waits_for_a_service_to_be_stopped_keeps_nobody_from_keeping():
    node = gpu_node(gpu_fact(0, model="NVIDIA A100"), gpu_fact(1))
    holders = [serves("api", "GPU-0"), held("b", "GPU-1")]
    found = turns(GpuQueue(node, holders), gpu_spec("first", model="A100"), gpu_spec("second"))
    assert (found["first"].kept, found["second"].kept) == (("GPU-0",), ("GPU-1",))
    services = [serves("api", "GPU-0"), serves("web", "GPU-1")]
    found = turns(GpuQueue(TWO, services), gpu_spec("first"), gpu_spec("second"))
    assert (found["first"].kept, found["second"].kept) == (("GPU-0",), ())


def test_one_behind_it_is_told_when_the_kept_gpu_frees_as_well():
    queue = GpuQueue(gpu_node(gpu_fact(0)), [held("a", "GPU-0")], outlook=ends(a=60))
    found = turns(queue, gpu_spec("first"), gpu_spec("second"))
    assert (found["first"].wait_s, found["second"].wait_s) == (60, 60)


def test_one_that_waits_for_another_model_keeps_as_well():
    node = gpu_node(gpu_fact(0), gpu_fact(1, model="NVIDIA A100"))
    queue = GpuQueue(node, [held("a", "GPU-0"), held("b", "GPU-1")])
    found = turns(queue, gpu_spec("t4", model="T4"), gpu_spec("a100", model="A100"))
    assert (found["t4"].kept, found["a100"].kept) == (("GPU-0",), ("GPU-1",))


def test_what_was_kept_before_is_kept_on_whatever_frees_sooner_now():
    holders = [held("a", "GPU-0"), held("b", "GPU-1")]
    alone = gpu_spec("alone")
    queue = GpuQueue(TWO, holders, outlook=ends(a=60, b=90), kept={"alone": ("GPU-1",)})
    assert queue.admit(alone).kept == ("GPU-1",)
    assert GpuQueue(TWO, holders, outlook=ends(a=60, b=90)).admit(alone).kept == ("GPU-0",)


def test_nothing_is_kept_for_one_that_waits_for_a_gpu_in_trouble():
    node = gpu_node(gpu_fact(0), gpu_fact(1, trouble="fell off the bus"))
    found = turns(GpuQueue(node), BIG, SMALL)
    assert found["big"].kept == ()
    assert (
        found["big"].reason == "needs 2 GPUs alone, 1 of 1 free; GPU 1: fell off the bus; "
        "when the job starts is unknown"
    )
    assert found["small"].gpus == ("GPU-0",)


@pytest.mark.parametrize(("in_s", "told"), [
    (0.0, "1 min"), (61.0, "2 min"), (3599.0, "1 h"), (3700.0, "1 h 10 min"), (1e5, "1 d 4 h"),
])  # fmt: skip
def test_an_estimate_is_rounded_up_and_says_what_it_rests_on(in_s, told):
    queue = GpuQueue(gpu_node(gpu_fact(0)), [held("a", "GPU-0")], outlook=ends(a=in_s))
    turn = queue.admit(gpu_spec("alone"))
    assert turn.reason.endswith(f"; the job starts in about {told} at the earliest: a is told")
    assert turn.wait_s == in_s


def test_of_an_interval_the_wait_is_up_to_its_beginning():
    outlook = Forecast(ForecastKind.EXPECTED, "finish", 1400.0, 1300.0, 1900.0, why="a is told")
    one = gpu_node(gpu_fact(0))
    queue = GpuQueue(one, [held("a", "GPU-0")], outlook=lambda _: outlook, now_s=1000.0)
    turn = queue.admit(gpu_spec("alone"))
    assert turn.wait_s == 300.0
    assert turn.reason.endswith("; the job starts in about 5 min at the earliest: a is told")


def test_the_wait_is_for_the_last_holder_that_has_to_go():
    holders = [held("a", "GPU-0", share=0.3), held("b", "GPU-0", share=0.3), held("c", "GPU-1")]
    queue = GpuQueue(TWO, holders, outlook=ends(a=600, b=60, c=None))
    assert queue.admit(gpu_spec("shares", share=0.6)).wait_s == 60
    queue = GpuQueue(TWO, holders, outlook=ends(a=600, b=60, c=None))
    assert queue.admit(gpu_spec("alone")).wait_s == 600
    queue = GpuQueue(TWO, holders, outlook=ends(a=600, b=60, c=None))
    assert queue.admit(BIG).reason.endswith("when the job starts is unknown: c is told")


def test_far_back_in_the_queue_there_is_no_estimate():
    queue = GpuQueue(TWO, [held("a", "GPU-0"), held("b", "GPU-1")], outlook=ends(a=1, b=2))
    found = turns(queue, *(gpu_spec(f"j{index}") for index in range(17)))
    assert "at the earliest" in found["j15"].reason
    assert found["j16"].reason.endswith(
        "; the job is too far back in the queue to say when it starts"
    )


@pytest.mark.parametrize(("spec", "reason"), [
    (gpu_spec("a", 3), "3 GPUs, the node has 2: 1 NVIDIA T4 16 GiB, 1 NVIDIA A100 80 GiB"),
    (gpu_spec("a", model="H100"),
     "1 GPU of model H100, the node has 2: 1 NVIDIA T4 16 GiB, 1 NVIDIA A100 80 GiB"),
    (gpu_spec("a", 2, share=0.1, gib=40),
     "2 GPUs with 40 GiB each, the node has 2: 1 NVIDIA T4 16 GiB, 1 NVIDIA A100 80 GiB"),
])  # fmt: skip
def test_what_no_gpu_could_take_never_starts_and_is_told_what_exists(spec, reason):
    node = gpu_node(gpu_fact(0), gpu_fact(1, 80, model="NVIDIA A100"))
    assert GpuQueue(node).never(spec) == f"can never start: the job asks for {reason}"


def test_a_gpu_in_trouble_exists_and_a_reserved_one_does_not():
    lost = gpu_node(gpu_fact(0, trouble="lost"))
    assert GpuQueue(lost).never(gpu_spec("a")) is None
    reserved = gpu_node(GpuView(gpu_fact(0), reserved=True))
    assert GpuQueue(reserved).never(gpu_spec("a")) == (
        "can never start: the job asks for 1 GPU, the node has no GPUs for jobs"
    )


def test_where_gpus_cannot_be_seen_nobody_is_told_never():
    blind = gpu_node()
    blind = type(blind)(1.0, 1.0, 1, gpu_trouble="driver and library differ")
    queue = GpuQueue(blind)
    assert queue.never(gpu_spec("a")) is None
    waits = "the job waits for GPUs, which cannot be observed: driver and library differ"
    assert queue.admit(gpu_spec("a")).reason == waits
    some = replace(gpu_node(gpu_fact(0)), gpu_trouble="one does not answer")
    queue = GpuQueue(some)
    assert queue.never(gpu_spec("a", 2)) is None
    assert (
        "not all GPUs can be observed: one does not answer" in queue.admit(gpu_spec("a", 2)).reason
    )


# ------------------------------------------------------------------------------- properties

asks = st.tuples(st.integers(1, 3), st.sampled_from((0.1, 0.3, 0.5, 1.0)))
streams = st.lists(st.tuples(st.integers(0, 3), asks), min_size=1, max_size=6)


@settings(deadline=None)
@given(
    st.integers(3, 4),
    st.lists(st.tuples(asks, st.integers(1, 6)), max_size=6),
    asks,
    streams,
    st.integers(1, 5),
    st.sampled_from(("auto", "pack", "spread")),
)
def test_a_job_starts_once_what_held_its_gpus_has_ended_however_many_come_after_it(
    devices, before, big, stream, stays, prefer
):
    """Small jobs come in every round, for ever, and stay as long as the longest of all."""
    node = gpu_node(*map(gpu_fact, range(devices)))
    options = PlacementOptions(prefer=prefer)
    held: dict[str, tuple[Holder, int]] = {}
    waiting = [(gpu_spec(f"before-{n}", *ask), lasts) for n, (ask, lasts) in enumerate(before)]
    waiting.append((gpu_spec("big", *big), 10**6))
    # All that came before has its turn first; each of these needs at most one longest stay.
    enough = (len(waiting) + 1) * (max(6, stays) + 1)
    kept: dict[str, tuple[str, ...]] = {}
    for now in range(enough):
        held = {name: (one, end) for name, (one, end) in held.items() if end > now}
        for n, (many, ask) in enumerate(stream):
            waiting += [(gpu_spec(f"s{now}-{n}-{m}", *ask), stays) for m in range(many)]
        queue = GpuQueue(node, [one for one, _ in held.values()], options, kept)
        found = {spec.name: queue.admit(spec) for spec, _ in waiting}
        kept = {name: turn.kept for name, turn in found.items() if turn.kept}
        for spec, lasts in waiting:
            if found[spec.name].reason is None:
                held[spec.name] = (Holder(spec, found[spec.name].gpus), now + lasts)
        waiting = [one for one in waiting if found[one[0].name].reason is not None]
        waiting = waiting[:40]
        if "big" in held:
            return
    raise AssertionError(f"big waits after {enough} rounds")
