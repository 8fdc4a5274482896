"""Every policy asked once for cores and once for each shared GPU, and not at all without one."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from dlsched.control.decider import NamedPolicy
from dlsched.control.guards import refuse_nonsense
from dlsched.estimate.latency.law import LatencyModel
from dlsched.estimate.response import STEP_DOWN, Level, Phase, Response
from dlsched.estimate.tuning import MARGIN
from dlsched.model.decision import Decision, PolicyTraits
from dlsched.model.errors import PolicyError
from dlsched.model.facts import Usage
from dlsched.model.forecast import Forecast, ForecastKind
from dlsched.model.spec import Bounds, Limits
from dlsched.model.state import GpuView, JobView, NodeView, Progress, Snapshot
from dlsched.policies.adaptive.policy import AdaptiveMemory
from dlsched.policies.adaptive.services.model import ServiceMemory
from dlsched.policies.gpu_node import (
    MEASURED_EVERY_S,
    CpuTrials,
    Part,
    PerDevice,
    PerDeviceMemory,
    per_device,
    places,
)
from dlsched.policies.registry import load
from dlsched.store.policy_memory import memory_size_check, memory_text, recalled
from tests.doubles import gpu_fact, sketch, view

ZERO, ONE = gpu_fact(0), gpu_fact(1)


@dataclass(frozen=True)
class Noted:
    """What `Scripted` remembers: how often it was asked about this thing."""

    asked: int


class Scripted:
    """Answers what a test wrote, by what is divided: `cpu`, or a GPU by its number of jobs."""

    Parameters: ClassVar[None] = None
    Memory: ClassVar[type[Noted]] = Noted
    traits: ClassVar[PolicyTraits] = PolicyTraits(reserves=True)

    def __init__(self, answer: Callable[[Snapshot], Decision]) -> None:
        self.answer = answer
        self.seen: list[Snapshot] = []

    def decide(self, snapshot: Snapshot, memory: object) -> Decision:
        self.seen.append(snapshot)
        asked = memory.asked if isinstance(memory, Noted) else 0
        return replace(self.answer(snapshot), memory=Noted(asked + 1))


class AsItIs(Scripted):
    traits: ClassVar[PolicyTraits] = PolicyTraits(divides_gpus=False)


def sharer(name: str, share: float | None = 0.4, *gpus: str) -> JobView:
    job = view(name)
    return replace(
        job,
        spec=replace(job.spec, bounds=Bounds(0.1, None, 0.1, 1.0)),
        gpus=gpus or (ZERO.uuid,),
        desired=Limits(1.0, share),
        actual=Limits(1.0, share),
        usage=Usage(cpu_cores=1.0, window_cores=1.0, gpu_ratio=share, gpu_window_ratio=share),
        started_at_s=0.0,
    )


def node(*jobs: JobView, now_s: float = 100.0, wakes: tuple[str, ...] = ()) -> Snapshot:
    gpus = (GpuView(ZERO), GpuView(ONE))
    return Snapshot(1, now_s, NodeView(4.0, 4.0, 2**33, gpus=gpus), jobs, wakes=wakes)


def is_gpu(snapshot: Snapshot) -> bool:
    return snapshot.node.cores == 1.0


def even(snapshot: Snapshot) -> Decision:
    """Equal parts of whatever is divided."""
    part = snapshot.node.capacity_cores / max(1, len(snapshot.running))
    return Decision(
        limits={job.name: Limits(part) for job in snapshot.running},
        why={job.name: f"even: {snapshot.resource.amount(part)}" for job in snapshot.running},
        next_s=30.0 if is_gpu(snapshot) else 2.0,
    )


# ------------------------------------------------------------------ without a GPU


def test_without_a_gpu_the_policy_sees_the_very_same_snapshot() -> None:
    policy, seen = Scripted(even), node(view("a"))
    assert PerDevice(policy).decide(seen, None).memory == Noted(1)
    assert policy.seen[0] is seen


def test_a_policy_that_opts_out_is_asked_once_as_it_is() -> None:
    policy, seen = AsItIs(even), node(sharer("a"), sharer("b"))
    assert per_device(policy) is policy
    decision = policy.decide(seen, None)
    assert policy.seen == [seen]
    assert decision == replace(even(seen), memory=Noted(1))


# ------------------------------------------------------------------ with shared GPUs


def test_it_is_asked_for_cores_and_for_each_gpu_that_jobs_share() -> None:
    policy = Scripted(even)
    seen = node(sharer("a"), sharer("b"), sharer("c", 0.5, ONE.uuid), view("d"))
    decision = PerDevice(policy).decide(seen, None)
    assert [[job.name for job in one.jobs] for one in policy.seen] == [
        ["a", "b", "c", "d"],
        ["a", "b"],
        ["c"],
    ]
    assert decision.limits == {
        "a": Limits(1.0, 0.5),
        "b": Limits(1.0, 0.5),
        "c": Limits(1.0, 1.0),
        "d": Limits(1.0, None),
    }
    assert decision.why["a"] == "even: 1.000 cores; 0.500 of GPU 0's time"
    assert decision.why["d"] == "even: 1.000 cores"
    assert decision.next_s == 2.0


def test_a_job_on_several_gpus_gets_the_least_of_its_shares() -> None:
    both = sharer("x", 0.3, ZERO.uuid, ONE.uuid)
    seen = node(sharer("a"), sharer("b"), both)
    decision = PerDevice(Scripted(even)).decide(seen, None)
    assert decision.limits["x"].gpu_share == pytest.approx(1 / 3)
    assert decision.why["x"].endswith("0.333 of GPU 0's time; 1.000 of GPU 1's time")


def test_each_part_is_asked_when_it_is_due_and_keeps_its_word_until_then() -> None:
    policy = Scripted(even)
    wrapped, jobs = PerDevice(policy), (sharer("a"), sharer("b"))
    first = wrapped.decide(node(*jobs), None)
    later = wrapped.decide(node(*jobs, now_s=102.0), first.memory)
    assert [is_gpu(one) for one in policy.seen] == [False, True, False]
    assert later.limits["a"] == Limits(2.0, 0.4)  # as desired: nothing was decided of it
    assert later.why["a"] == "even: 2.000 cores; 0.500 of GPU 0's time"
    assert (later.memory.cores.memory, later.memory.gpus[0].memory) == (Noted(2), Noted(1))
    due = wrapped.decide(node(*jobs, now_s=130.0), later.memory)
    assert due.memory is not None
    assert [is_gpu(one) for one in policy.seen] == [False, True, False, False, True]
    wrapped.decide(node(*jobs, now_s=130.5, wakes=("b: left",)), due.memory)
    assert len(policy.seen) == 7


def test_weights_and_what_can_be_expected_are_of_cores_and_hold_until_it_is_asked_again() -> None:
    met = (Forecast(ForecastKind.MET, "latency"),)

    def told(snapshot: Snapshot) -> Decision:
        of_gpu = {"a": 9.0} if is_gpu(snapshot) else {"a": 2.0, "b": 1.0}
        lazy = replace(even(snapshot), next_s=60.0)
        return replace(lazy, weights=of_gpu, outlooks={"b": met})

    wrapped = PerDevice(Scripted(told))
    first = wrapped.decide(node(sharer("a"), sharer("b")), None)
    assert (first.weights, first.outlooks) == ({"a": 2.0, "b": 1.0}, {"b": met})
    later = wrapped.decide(node(sharer("a"), now_s=102.0), first.memory)
    assert (later.weights, later.outlooks) == ({"a": 2.0}, {})


def test_no_latency_is_expected_of_a_job_that_shares_a_gpu() -> None:
    def decided(snapshot: Snapshot) -> Decision:
        return replace(even(snapshot), expected_s={job.name: 0.04 for job in snapshot.running})

    decision = PerDevice(Scripted(decided)).decide(node(sharer("a"), view("b")), None)
    assert decision.expected_s == {"b": 0.04}


def test_it_looks_again_before_the_policy_wants_to_be_asked() -> None:
    lazy = Scripted(lambda snapshot: replace(even(snapshot), next_s=600.0))
    wrapped = PerDevice(lazy)
    decision = wrapped.decide(node(sharer("a")), None)
    assert decision.next_s == MEASURED_EVERY_S
    again = wrapped.decide(node(sharer("a"), now_s=105.0), decision.memory)
    assert len(lazy.seen) == 2
    assert again.limits == {}
    assert again.why == decision.why


def test_the_memory_of_before_there_were_gpus_goes_on_and_comes_back() -> None:
    policy = Scripted(even)
    wrapped = PerDevice(policy)
    alone = wrapped.decide(node(view("a")), None)
    shared = wrapped.decide(node(view("a"), sharer("b")), alone.memory)
    assert shared.memory.cores.memory == Noted(2)
    assert wrapped.decide(node(view("a")), shared.memory).memory == Noted(3)


def test_a_paused_job_keeps_what_is_remembered_of_its_gpu() -> None:
    wrapped = PerDevice(Scripted(even))
    first = wrapped.decide(node(sharer("a")), None)
    paused = replace(sharer("a"), state=type(sharer("a").state).PAUSED)
    then = wrapped.decide(node(paused, now_s=140.0), first.memory)
    assert then.memory.gpus[0].memory == Noted(2)
    assert then.limits == {}


def test_a_gpu_in_trouble_is_not_decided_about_and_not_forgotten() -> None:
    policy = Scripted(even)
    wrapped, seen = PerDevice(policy), node(sharer("a"))
    first = wrapped.decide(seen, None)
    lost = GpuView(replace(ZERO, trouble="fell off the bus"))
    broken = replace(seen, now_s=200.0, node=replace(seen.node, gpus=(lost,)))
    then = wrapped.decide(broken, first.memory)
    assert then.limits["a"].gpu_share == 0.4
    assert then.memory.gpus == first.memory.gpus


@pytest.mark.parametrize("wrong", [math.nan, -0.5, math.inf])
def test_nonsense_about_a_gpu_comes_through_to_be_refused(wrong: float) -> None:
    def mad(snapshot: Snapshot) -> Decision:
        share = wrong if is_gpu(snapshot) and len(snapshot.jobs) == 1 else 0.5
        return Decision({job.name: Limits(share) for job in snapshot.running})

    both = sharer("x", 0.3, ZERO.uuid, ONE.uuid)
    decision = PerDevice(Scripted(mad)).decide(node(sharer("a"), both), None)
    with pytest.raises(PolicyError, match="decided gpu_share"):
        refuse_nonsense(decision, {"a", "x"})


# ------------------------------------------------------------------ CPU that is of no use


HELD = Response(
    "a", "id-a", Level(0.5, 10.0, 0.01, 100, 10.0), Level(1.0, 9.9, 0.01, 100, 10.0),
    flat=2, phase=Phase.HELD, until_s=1e9, share=0.4,
)  # fmt: skip


def remembered(*responses: Response) -> PerDeviceMemory[Noted]:
    gpu = Part(ZERO.uuid, Noted(1), 1e9)
    return PerDeviceMemory(Part("", Noted(1), 1e9), (gpu,), CpuTrials(responses))


def test_what_it_cannot_use_is_the_policys_to_give_to_others() -> None:
    seen = node(sharer("a"), view("b"), wakes=("b: arrived",))
    decision = load("fair").decide(seen, replace(remembered(HELD), gpus=()))
    assert decision.limits["a"].cpu_cores == pytest.approx(0.525)
    assert decision.limits["b"].cpu_cores == pytest.approx(4 - 0.525 * MARGIN)
    assert decision.why["a"] == (
        "its share by weight (1 of 2 in all) is 0.578 cores; at most 0.525 cores: with more than "
        "0.50 cores the job was not faster (0.50 -> 1.00 cores: 100 ms -> 101 ms); "
        "its share by weight (1 of 1 in all) is 1.000 of GPU 0's time"
    )


def test_a_policy_that_heeds_no_ceiling_is_held_to_it_all_the_same() -> None:
    greedy = Scripted(lambda snapshot: Decision({job.name: Limits() for job in snapshot.running}))
    seen = node(sharer("a"), view("b"), wakes=("b: arrived",))
    decision = PerDevice(greedy).decide(seen, remembered(HELD))
    assert decision.limits == {"a": Limits(0.525, None), "b": Limits(None, None)}


def test_no_latency_is_expected_under_a_ceiling_that_a_trial_has_cut() -> None:
    def decided(snapshot: Snapshot) -> Decision:
        whole = {job.name: Limits() for job in snapshot.running}
        return Decision(whole, expected_s=dict.fromkeys(whole, 0.04))

    alone = sharer("a", None)
    alone = replace(alone, spec=replace(alone.spec, bounds=Bounds()))
    held = replace(HELD, share=None)
    seen = node(alone, view("b"), wakes=("b: arrived",))
    decision = PerDevice(Scripted(decided)).decide(seen, remembered(held))
    assert decision.limits["a"].cpu_cores == pytest.approx(0.525)
    assert decision.expected_s == {"b": 0.04}


def test_a_ceiling_that_changed_asks_at_once() -> None:
    policy = Scripted(even)
    over = replace(HELD, until_s=50.0, tried=Phase.FEWER)
    slow = sharer("a")  # nothing measured: the trial that was due begins only with a measure
    PerDevice(policy).decide(node(slow, now_s=100.0), remembered(over))
    assert policy.seen == []
    ended = replace(HELD, phase=Phase.MORE, until_s=50.0)
    PerDevice(policy).decide(node(slow, now_s=100.0), remembered(ended))
    assert [is_gpu(one) for one in policy.seen] == [False]
    assert policy.seen[0].jobs[0].spec.bounds.ceiling_cores == pytest.approx(0.525 * MARGIN)


@pytest.mark.parametrize(
    ("used", "foreign", "cores"), [(0.5, 3.4, 0.5), (1.0, 3.0, 1.0), (0.5, 1.0, 1.0)]
)
def test_on_a_full_host_speed_is_of_the_cores_that_it_had(
    used: float, foreign: float, cores: float
) -> None:
    job = replace(
        sharer("a"),
        progress=Progress(window=sketch(*[0.1] * 50)),
        usage=Usage(cpu_cores=used, window_cores=used),
        changed_at_s=20.0,
    )
    seen = node(job)
    seen = replace(seen, node=replace(seen.node, foreign_cores=foreign))
    memory = PerDevice(Scripted(even)).decide(seen, None).memory
    assert [one.least.cores for one in memory.trials.responses] == [cores]


def test_what_is_measured_in_a_trial_is_not_judged() -> None:
    policy = Scripted(even)
    job = replace(sharer("a"), progress=Progress(window=sketch(0.1), recent=sketch(0.1)))
    first = replace(HELD, flat=0, phase=Phase.FEWER)
    seen = node(job, wakes=("b: arrived",))
    decision = PerDevice(policy).decide(seen, remembered(first))
    assert [one.jobs[0].progress for one in policy.seen] == [Progress(), Progress()]
    assert policy.seen[0].jobs[0].spec.bounds.ceiling_cores is None
    assert decision.limits["a"].cpu_cores == pytest.approx(0.5 / STEP_DOWN)


def test_a_ceiling_never_goes_below_the_floor() -> None:
    policy = Scripted(even)
    job = sharer("a")
    tight = replace(job, spec=replace(job.spec, bounds=Bounds(0.8, 2.0, 0.1, 1.0)))
    PerDevice(policy).decide(node(tight, wakes=("a: its bounds changed",)), remembered(HELD))
    assert policy.seen[0].jobs[0].spec.bounds.ceiling_cores == 0.8


# ------------------------------------------------------------------ memory


def all_policies() -> list[str]:
    return ["fair", "dqoes", "dqoes-published", "flowcon", "tradl", "my_policy:SlowestFirst"]


@pytest.mark.parametrize("name", all_policies())
def test_memory_survives_the_journal_for_every_policy(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend("examples")
    named = NamedPolicy(name, load(name))
    seen = node(sharer("a"), sharer("b"), sharer("x", 0.3, ZERO.uuid, ONE.uuid))
    decision = named.policy.decide(seen, None)
    memory = decision.memory
    assert isinstance(memory, PerDeviceMemory)
    memory = replace(memory, trials=CpuTrials((HELD,), (("a", 1.0),)))
    plain = json.loads(memory_text(memory))
    assert recalled(named.policy, plain) == (memory, None)
    memory_size_check(memory, places(seen))
    assert decision.limits.keys() == decision.why.keys() == {"a", "b", "x"}
    assert all("GPU 0" in why for why in decision.why.values())


def test_a_policy_that_no_longer_divides_gpus_has_its_own_memory_back() -> None:
    raw = Scripted(even)
    memory = per_device(raw).decide(node(sharer("a"), sharer("b")), None).memory
    plain = json.loads(memory_text(memory))
    assert recalled(raw, plain) == (memory.cores.memory, None)


def test_memory_without_gpus_is_recalled_as_ever_and_nonsense_is_told() -> None:
    named = NamedPolicy("scripted", Scripted(even))
    assert recalled(named.policy, {"asked": 3}) == (Noted(3), None)
    assert recalled(named.policy, None) == (None, None)
    wrapped = {"cores": {"device": ""}, "trials": {"responses": [{"name": 1}]}}
    memory, trouble = recalled(named.policy, {**wrapped, "form": "per device"})
    assert (memory, trouble) == (None, "trials.responses.0.name: Input should be a valid string")


def test_fields_that_came_since_lose_no_memory() -> None:
    model = LatencyModel(work_core_s=0.01, requests=40.0)
    service = ServiceMemory("web", 0.05, None, 9.0, 1.5, model=model)
    kept = PerDeviceMemory(Part("", AdaptiveMemory((service,), capacity_cores=4.0)))
    plain = json.loads(memory_text(kept))
    before = plain["cores"]["memory"]
    del before["services"][0]["urgency"], before["hold"]
    assert recalled(per_device(load("adaptive")), plain) == (kept, None)


def test_places_count_a_job_once_and_once_more_for_each_gpu_that_it_shares() -> None:
    whole = replace(view("w"), gpus=(ONE.uuid,))
    assert places(node(sharer("a"), sharer("x", 0.3, ZERO.uuid, ONE.uuid), whole)) == 6
