"""Trainings under `adaptive`: who is served, what is believed of them, and what is told."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import pytest

from dlsched.control.ledger import tiers
from dlsched.control.ledger.tiers import TierProgress, advanced
from dlsched.model.facts import Sample, Usage
from dlsched.model.forecast import ForecastKind
from dlsched.model.spec import AccuracyTarget, Bounds, ContainerSpec, JobSpec, Limits
from dlsched.model.state import Diverged, JobState, JobView, NodeView, Progress, Snapshot
from dlsched.policies.adaptive.parameters import AdaptiveParameters
from dlsched.policies.adaptive.placed import Placed
from dlsched.policies.adaptive.trainings.divide import place
from dlsched.policies.adaptive.trainings.model import TrainingMemory
from dlsched.policies.adaptive.trainings.value import NO_TYPICAL_WORK, TypicalWork, marginal_value
from dlsched.store.policy_memory import load_memory, memory_text

RULE = AdaptiveParameters()
TARGET = AccuracyTarget("accuracy", 0.7, 0.8)
CORES, FLOOR = 8.0, Bounds().floor_cores


def curve(step: float) -> float:
    """0.7 at step 400, 0.8 at step 933, 0.9 in the limit."""
    return 0.9 - 0.8 / (1.0 + step * 3.0 / 400.0)


def training(
    name: str,
    steps: int = 300,
    *,
    step_core_s: float = 1.0,
    every: int = 50,
    told: int | None = 2000,
    value: Callable[[float], float] = curve,
    used: float | None = None,
    **changes: object,
) -> JobView:
    """A training that has made so many steps, evaluated on the way; told: how many it will take."""
    total = () if told is None else (("total_steps", float(told)),)
    samples = tuple(
        Sample(float(step) / 10, step, ((TARGET.metric, value(step)), *total))
        for step in range(every, steps + 1, every)
    )
    target = changes.pop("target", TARGET)
    assert isinstance(target, AccuracyTarget)
    progress = TierProgress("c", target)
    for sample in samples:
        progress = advanced(progress, sample, 3)
    weight = changes.pop("weight", 1.0)
    job = JobView(
        JobSpec(name, ContainerSpec(image="trainer"), target=target, weight=weight),  # type: ignore[arg-type]
        JobState.RUNNING,
        container_id=f"c-{name}",
        usage=Usage(cpu_cores=used, window_cores=used),
        progress=Progress(samples=samples, as_of_s=samples[-1].received_s if samples else None),
        attained_core_s=step_core_s * steps,
        started_at_s=0.0,
        starts=1,
        tiers=tiers.settled(progress).tiers,
    )
    return replace(job, **changes)  # type: ignore[arg-type]


def decided(
    jobs: Sequence[JobView],
    known: Iterable[TrainingMemory] = (),
    *,
    now_s: float = 100.0,
    rule: AdaptiveParameters = RULE,
    cores: float = CORES,
    others: Sequence[JobView] = (),
) -> Placed[TrainingMemory]:
    node = NodeView(cores, cores, 2**33)
    seen = tuple(sorted([*jobs, *others], key=lambda job: job.name))
    return place(jobs, Snapshot(1, now_s, node, seen), tuple(known), cores, rule)


def settled(jobs: Sequence[JobView], *times_s: float) -> Placed[TrainingMemory]:
    """The last decision of one at 100 s and at each of these times."""
    placed = decided(jobs)
    for now_s in times_s:
        placed = decided(jobs, placed.memory, now_s=now_s)
    return placed


def first(placed: Placed[TrainingMemory]) -> str:
    return max(placed.weights, key=placed.weights.__getitem__)


def test_the_cheapest_next_tier_is_served_first() -> None:
    jobs = [training("dear", step_core_s=4.0), training("cheap", step_core_s=1.0)]
    placed = decided(jobs)
    assert first(placed) == "cheap"
    assert placed.uses == {"cheap": pytest.approx(CORES - FLOOR), "dear": FLOOR}
    assert "core-s to reach 0.7" in placed.why["cheap"]
    assert "core-s to reach its end; it gets " in placed.why["cheap"]


def test_who_is_nearer_to_its_tier_goes_before_who_is_shorter_in_all() -> None:
    near = training("near", 380, every=20, told=3000)
    short = training("short", 250, told=1000)
    assert first(decided([near, short])) == "near"


def test_a_jobs_own_weight_multiplies_what_it_is_worth() -> None:
    jobs = [training("dear", step_core_s=4.0, weight=10.0), training("cheap")]
    assert first(decided(jobs)) == "dear"


def test_delivery_first_weighs_the_first_tier_more() -> None:
    # Nearly at its end against half way to its first tier.
    ending = training("ending", 1900, value=lambda step: 0.7 + step * 4e-5, told=1910)
    starting = training("starting", 250)
    assert first(decided([ending, starting])) == "ending"
    rule = AdaptiveParameters(deliver_weight=200.0)
    assert first(decided([ending, starting], rule=rule)) == "starting"


def test_by_wish_whoever_has_its_first_tier_behind_it_gives_way_to_who_has_not() -> None:
    ending = training("ending", 1900, value=lambda step: 0.7 + step * 4e-5, told=1910)
    rule = AdaptiveParameters(tiers_first=True)
    placed = decided([ending, training("starting", 250)], rule=rule)
    assert first(placed) == "starting"
    assert placed.weights["ending"] < 0.05 * placed.weights["starting"]


def test_all_that_the_first_cannot_use_goes_to_the_next() -> None:
    jobs = [training("a", used=2.0), training("b", step_core_s=2.0, used=6.0)]
    placed = settled(jobs, 101.0, 102.0, 103.0)
    assert placed.uses["a"] == pytest.approx(2.0)
    assert placed.uses["b"] == pytest.approx(CORES - 2.0)
    assert math.fsum(placed.uses.values()) <= CORES + 1e-9
    assert placed.limits == {"a": None, "b": None}, "weights divide: nothing idle is withheld"


def test_who_uses_more_than_was_known_is_believed_able_to() -> None:
    placed = decided([training("a", used=2.0)])
    placed = decided([training("a", used=2.0)], placed.memory, now_s=101.0)
    assert placed.memory[0].usable_cores == pytest.approx(2.0)
    placed = decided([training("a", used=5.0)], placed.memory, now_s=102.0)
    assert placed.memory[0].usable_cores == pytest.approx(6.25)


def test_waiting_for_others_is_not_taken_for_being_narrow() -> None:
    jobs = [training("a", used=8.0), training("b", step_core_s=2.0, used=0.01)]
    placed = settled(jobs, 101.0, 102.0)
    known = {one.name: one for one in placed.memory}
    assert known["b"].usable_cores is None


def test_what_the_last_in_the_order_uses_of_its_floor_is_not_all_that_it_can() -> None:
    jobs = [training("a", used=8.0), training("b", step_core_s=2.0, used=0.5 * FLOOR)]
    placed = settled(jobs, 101.0, 102.0)
    assert placed.uses["b"] == pytest.approx(FLOOR)
    known = {one.name: one for one in placed.memory}
    assert known["b"].usable_cores is None
    # Its turn comes, and it has all that there is to show what it can use.
    assert decided(jobs[1:], placed.memory, now_s=103.0).uses["b"] == pytest.approx(CORES)


def test_what_a_training_uses_while_it_starts_is_not_all_that_it_can() -> None:
    starting = training("a", 50, used=1.0, told=None)
    placed = decided([starting])
    placed = decided([starting], placed.memory, now_s=101.0)
    assert placed.memory[0].usable_cores is None
    placed = decided([training("a", 100, used=1.0, told=None)], placed.memory, now_s=102.0)
    assert placed.memory[0].usable_cores == pytest.approx(1.0)


def test_whoever_is_first_may_show_what_it_can_use() -> None:
    jobs = [training("a", used=2.0), training("b", step_core_s=2.0, used=6.0)]
    placed = settled(jobs, 101.0, 102.0)
    assert placed.uses["b"] > placed.uses["a"]
    assert placed.weights["a"] > 0.7 * math.fsum(placed.weights.values())


def test_who_is_worth_nearly_as_much_as_the_first_is_not_put_far_behind_it() -> None:
    def second(step_core_s: float) -> float:
        jobs = [training("a", used=6.0), training("b", step_core_s=step_core_s, used=6.0)]
        placed = settled(jobs, 101.0, 102.0)
        assert first(placed) == "a"
        return placed.weights["b"] / placed.weights["a"]

    assert second(1.1) > 4.0 * second(11.0)
    assert second(11.0) > 0.5 * second(110.0), "from some distance on it is as far as can be"


def test_a_floor_holds_beside_the_first() -> None:
    bounds = Bounds(floor_cores=2.0)
    last = training("last", step_core_s=100.0)
    last = replace(last, spec=replace(last.spec, bounds=bounds))
    placed = decided([training("a", used=8.0), last])
    whole = math.fsum(placed.weights.values())
    assert placed.weights["last"] / whole * CORES == pytest.approx(2.0)


def test_a_long_narrow_training_goes_first_or_it_would_end_too_late() -> None:
    long = training("long", 250, told=8000, used=1.0)
    jobs = [long, *(training(f"short-{n}", 300, told=800, used=8.0) for n in range(4))]
    for patience, cores in ((0.0, 1.0), (1.0, FLOOR)):
        rule = AdaptiveParameters(patience=patience)
        placed = decided([long], rule=rule)
        placed = decided([long], placed.memory, now_s=101.0, rule=rule)
        placed = decided(jobs, placed.memory, now_s=102.0, rule=rule)
        assert placed.uses["long"] == cores


def test_those_that_must_come_now_share_equally() -> None:
    """Each needs all of the node until its end by equal shares: whoever waited would be late."""
    jobs = [training("a", told=500, used=8.0), training("b", told=550, used=8.0)]
    placed = settled(jobs, 101.0)
    assert placed.weights["a"] == pytest.approx(placed.weights["b"])
    assert placed.uses["a"] == pytest.approx(placed.uses["b"]) == CORES / 2.0
    patient = AdaptiveParameters(patience=1.0)
    placed = decided(jobs, rule=patient)
    assert placed.weights["a"] > 10.0 * placed.weights["b"], "either may end later"


def test_a_pause_is_not_taken_for_being_narrow() -> None:
    def after(*used: float) -> float | None:
        placed = decided([training("a", used=7.5)])
        for now_s, cores in enumerate(used, start=101):
            placed = decided([training("a", used=cores)], placed.memory, now_s=float(now_s))
        return placed.memory[0].usable_cores

    assert after(0.0, 0.1, 0.0) is None, "of one whose parallelism is not known"
    assert after(2.0, *[0.1] * 20) == pytest.approx(2.0)
    assert (after(2.0, *[0.1] * 90) or 2.0) < 1.0, "what lasts is no pause"


def test_no_training_precedes_others_while_one_stalls_at_times() -> None:
    """Then it is not known when each would end by equal shares."""

    def jobs(a: float, b: float) -> list[JobView]:
        return [
            training("a", 300, used=a),
            training("b", 250, step_core_s=2.0, used=b, weight=2.0),
        ]

    before = settled(jobs(4.0, 4.0), 101.0, 102.0)
    assert first(before) == "a"
    waits = decided(jobs(4.0, 0.1), before.memory, now_s=106.0)
    assert waits.weights == before.weights, "it is the last in the order"
    stalled = decided(jobs(0.1, 4.0), before.memory, now_s=106.0)
    assert stalled.weights["b"] == pytest.approx(2.0 * stalled.weights["a"])
    assert "as an equal share, since a stalls at times" in stalled.why["b"]
    patient = AdaptiveParameters(patience=0.2)
    ordered = decided(jobs(0.1, 4.0), before.memory, now_s=106.0, rule=patient)
    assert ordered.weights == before.weights, "ends may be so much later"
    still = decided(jobs(4.0, 4.0), stalled.memory, now_s=200.0)
    assert still.weights["b"] == pytest.approx(2.0 * still.weights["a"])
    steady = decided(jobs(4.0, 4.0), still.memory, now_s=240.0)
    assert "equal share" not in steady.why["b"]


def test_no_training_precedes_others_until_a_new_one_was_watched() -> None:
    jobs = [training("a", 300), training("b", 250, step_core_s=2.0)]
    new = decided(jobs, now_s=19.0)
    assert new.weights["a"] == pytest.approx(new.weights["b"])
    assert "since a has just started" in new.why["a"]
    assert first(decided(jobs, new.memory, now_s=49.0)) == "a"


def test_order_and_weights_stay_between_turns() -> None:
    def jobs(used: float) -> list[JobView]:
        return [training("a", 300, used=used), training("b", 250, step_core_s=2.0, used=4.0)]

    before = settled(jobs(6.0), 101.0, 102.0)
    # Its loader pauses.
    stalled = decided(jobs(0.1), before.memory, now_s=103.0)
    assert stalled.weights == before.weights
    later = decided(jobs(0.1), stalled.memory, now_s=133.0)
    assert later.weights != before.weights
    joined = decided([*jobs(6.0), training("c")], before.memory, now_s=103.0)
    assert {one.turn_s for one in joined.memory} == {103.0}


def test_a_part_is_kept_for_those_of_whom_nothing_is_known() -> None:
    new = training("new", 0, told=None, attained_core_s=5000.0)
    known = [training("known", 300)]
    placed = decided([*known, new])
    assert placed.uses["new"] == pytest.approx(RULE.explore_ratio * CORES + FLOOR)
    assert "0 evaluations" in placed.why["new"]
    none = decided([*known, new], rule=AdaptiveParameters(explore_ratio=0.0))
    assert none.uses["new"] < CORES * RULE.explore_ratio


def test_a_newcomer_does_not_put_back_who_is_as_near_as_others_were() -> None:
    new = training("new", 0, told=None, attained_core_s=3.0)
    placed = decided([training("begun", 250, told=800), new])
    assert first(placed) == "begun"
    assert "384 core-s of work left to reach 0.7, if the job needs as much" in placed.why["new"]
    # Of whom it is not known either it is known at least that it began earlier.
    earlier = training("earlier", 0, told=None, attained_core_s=200.0)
    rule = AdaptiveParameters(explore_ratio=0.0)
    placed = decided([earlier, new, training("long", 250, step_core_s=9.0)], rule=rule)
    assert placed.weights["earlier"] > placed.weights["new"] > placed.weights["long"]


def test_a_newcomer_goes_before_who_has_further_to_go_than_others_had() -> None:
    jobs = [training("delivered", 450), training("long", 50, step_core_s=10.0)]
    placed = decided([*jobs, training("new", 0, told=None, attained_core_s=3.0)])
    assert first(placed) == "delivered", "its next tier is nearer"
    assert placed.weights["new"] > placed.weights["long"]


def test_what_is_usual_is_what_first_tiers_took_and_will_take() -> None:
    jobs = [training("delivered", 900), training("begun", 250, step_core_s=2.0)]
    jobs.append(training("new", 50, told=None))
    known = {one.name: one for one in decided(jobs).memory}
    reached = jobs[0].tiers.delivered
    assert reached.step == 500, "three evaluations tell"
    typical = TypicalWork.of(jobs, known, RULE)
    assert typical.beside("new") == pytest.approx(650.0, rel=0.05)
    assert typical.beside("begun") == pytest.approx(500.0), "the others, not itself"
    assert typical.beside("delivered") == pytest.approx(800.0, rel=0.05)
    assert TypicalWork.of(jobs[2:], known, RULE).beside("begun") is None
    assert TypicalWork.of(jobs[:1], known, RULE).beside("delivered") is None


def test_one_that_tells_nonsense_does_not_decide_what_is_usual() -> None:
    jobs = [training("a", 250), training("b", 260), training("liar", 250, told=10**12)]
    known = {one.name: one for one in decided(jobs).memory}
    assert TypicalWork.of(jobs, known, RULE).beside("new") < 750.0  # type: ignore[operator]


def test_where_the_fit_is_doubted_the_others_tell_how_far_it_is() -> None:
    early = training("early", 200, every=20)
    (known,) = decided([early]).memory
    near, far = TypicalWork({"other": 250.0}, 250.0), TypicalWork({"other": 1e6}, 1e6)
    alone, beside, behind = (
        marginal_value(early, known, 100.0, RULE, typical).index
        for typical in (NO_TYPICAL_WORK, near, far)
    )
    assert beside > 1.1 * alone
    assert behind == pytest.approx(alone), "no further than half the way to the end"


def test_while_it_starts_a_training_leaves_the_other_cores_to_the_next() -> None:
    jobs = [training("starting", 0, told=None, used=0.9), training("next", 1500)]
    patient = AdaptiveParameters(patience=1.0)
    placed = decided(jobs, rule=patient)
    assert first(placed) == "starting"
    assert placed.uses["starting"] == pytest.approx(1.0)
    assert placed.uses["next"] == pytest.approx(CORES - 1.0)
    two = decided([training("starting", 0, told=None, used=2.0), jobs[1]], rule=patient)
    assert two.uses["starting"] == pytest.approx(2.2)
    asked = replace(jobs[0], spec=replace(jobs[0].spec, bounds=Bounds(floor_cores=4.0)))
    assert decided([asked, jobs[1]], rule=patient).uses["starting"] == pytest.approx(4.0)


def test_a_training_that_tells_nothing_is_served_by_what_it_had() -> None:
    silent = [
        training("much", 0, told=None, attained_core_s=900.0, blind="no report"),
        training("little", 0, told=None, attained_core_s=100.0, blind="no report"),
    ]
    placed = decided(silent, now_s=500.0)
    assert first(placed) == "little"
    assert "nothing for long" in placed.why["much"]


def test_a_diverged_training_comes_behind_and_is_promised_nothing() -> None:
    near, far = training("near", 380, every=20, told=3000), training("far", 250, told=1000)
    assert first(decided([near, far])) == "near"
    gone = replace(near, diverged=Diverged("loss", "nan", 90.0, 385))
    placed = decided([gone, far])
    assert first(placed) == "far"
    assert "diverged (loss nan at step 385)" in placed.why["near"]
    forecasts = {one.tier: one for one in placed.outlooks["near"]}
    assert forecasts["deliver"].kind is ForecastKind.UNKNOWN
    assert forecasts["deliver"].why.startswith("the job diverged (loss nan at step 385), so")


def test_who_was_held_back_and_so_could_tell_nothing_is_not_silent() -> None:
    told = training("held", 300, step_core_s=0.5)
    known = decided([told, training("other", 300)]).memory
    # A new agent has not read a word of it yet.
    quiet = replace(told, blind="no report", progress=Progress())
    other = training("other", 300)
    held = decided([quiet, other], known, now_s=600.0)
    assert first(held) == "held"
    had = replace(quiet, attained_core_s=quiet.attained_core_s + 60.0)
    assert "nothing for long" in decided([had, other], known, now_s=600.0).why["held"]


def test_a_metric_that_stops_is_held_and_then_loses_its_place() -> None:
    stops = training("stops", 300, step_core_s=0.5)
    other = training("other", 300, step_core_s=1.0)
    placed = decided([stops, other])
    assert first(placed) == "stops"
    later = [replace(stops, attained_core_s=stops.attained_core_s + 5000.0), other]
    held = decided(later, placed.memory, now_s=100.0)
    assert first(held) == "stops"
    fresh = replace(other, progress=replace(other.progress, as_of_s=399.0))
    fallen = decided([later[0], fresh], held.memory, now_s=400.0)
    assert first(fallen) == "other"
    assert "nothing for long" in fallen.why["stops"]


def test_a_metric_that_is_some_evaluations_late_keeps_its_place() -> None:
    late, other = training("late", 300, step_core_s=0.5), training("other", 300)
    known = decided([late, other]).memory
    # It is evaluated each 25 core-s, and saves a checkpoint, or loads other data, meanwhile.
    late = replace(late, attained_core_s=late.attained_core_s + 5 * 25.0)
    other = replace(other, progress=replace(other.progress, as_of_s=399.0))
    assert first(decided([late, other], known, now_s=400.0)) == "late"


def test_a_tier_out_of_reach_no_longer_counts_and_is_told() -> None:
    flat = training("flat", 1900, value=lambda step: 0.75 - 0.5 * math.exp(-step / 200), every=25)
    placed = decided([flat])
    deliver, finish, end = placed.outlooks["flat"]
    assert deliver.kind is ForecastKind.MET
    assert finish.kind is ForecastKind.UNLIKELY
    assert finish.best == pytest.approx(0.75, abs=0.01)
    assert "levels off" in finish.why
    assert end.kind is ForecastKind.EXPECTED
    assert "to reach 0.8" not in placed.why["flat"]


@pytest.mark.parametrize(
    ("steps", "told", "kind"),
    [
        (1000, 2000, ForecastKind.UNLIKELY),
        (1900, 2000, ForecastKind.UNLIKELY),
        (2000, 2000, ForecastKind.IMPOSSIBLE),
        (2000, None, ForecastKind.UNLIKELY),
    ],
)
def test_a_flat_curve_rules_nothing_out_while_steps_are_left(
    steps: int, told: int | None, kind: ForecastKind
) -> None:
    # A drop of the learning rate may still lift it.
    flat = training(
        "flat", steps, told=told, value=lambda step: 0.75 - 0.5 * math.exp(-step / 200), every=25
    )
    assert decided([flat]).outlooks["flat"][1].kind is kind


@pytest.mark.parametrize(
    ("steps", "every", "told", "kind"),
    [
        (1000, 100, None, ForecastKind.UNKNOWN),
        (1000, 40, None, ForecastKind.UNLIKELY),
        (1000, 100, 2000, ForecastKind.UNLIKELY),  # it is known how much may still come
    ],
)
def test_few_evaluations_do_not_show_that_a_curve_levels_off(
    steps: int, every: int, told: int | None, kind: ForecastKind
) -> None:
    flat = training(
        "flat",
        steps,
        told=told,
        value=lambda step: 0.75 - 0.5 * math.exp(-step / 200),
        every=every,
    )
    placed = decided([flat])
    finish = placed.outlooks["flat"][1]
    assert finish.kind is kind
    if kind is ForecastKind.UNKNOWN:
        count = len(placed.memory[0].points)
        assert finish.why == (
            f"{count} evaluations reported, too few to say whether accuracy levels off short of 0.8"
        )
    else:
        assert finish.why.startswith("by the curve so far accuracy levels off at 0.7")
        assert ("with a chance of" in finish.why) is (told is not None)


@pytest.mark.parametrize("told", [2000, None])
def test_the_end_has_an_interval_with_a_width(told: int | None) -> None:
    first_s, later_s = 100.0, 200.0
    placed = decided([training("one", 400, told=told, every=20)], now_s=first_s)
    end = placed.outlooks["one"][2]
    if told is not None:  # its steps took one time so far: others may come
        in_s = end.at_s - first_s
        assert end.earliest_s == pytest.approx(first_s + 0.9 * in_s)
        assert end.latest_s == pytest.approx(first_s + 1.1 * in_s)
    slower = training("one", 800, told=told, every=20)
    slower = replace(slower, attained_core_s=slower.attained_core_s + 100.0)
    end = decided([slower], placed.memory, now_s=later_s).outlooks["one"][2]
    assert end.kind is ForecastKind.EXPECTED
    assert end.earliest_s is not None and end.at_s is not None and end.latest_s is not None
    assert later_s < end.earliest_s <= end.at_s <= end.latest_s
    assert end.latest_s - end.earliest_s > 0.01 * (end.at_s - later_s)


def test_a_curve_that_has_hardly_risen_promises_no_tier() -> None:
    # Where it is not known when it ends, any rise reaches any tier at some time.
    slow = training("slow", 2000, told=None, value=lambda step: 0.3 + 1e-5 * step)
    for tier in decided([slow]).outlooks["slow"][:2]:
        assert tier.kind in (ForecastKind.UNKNOWN, ForecastKind.UNLIKELY)


def test_a_training_that_goes_on_past_the_steps_that_it_told_has_not_ended() -> None:
    flat = training(
        "flat", 2000, told=500, value=lambda step: 0.75 - 0.5 * math.exp(-step / 200), every=25
    )
    placed = decided([flat])
    assert placed.memory[0].told_steps is None
    assert placed.outlooks["flat"][1].kind is ForecastKind.UNLIKELY


def test_a_late_take_off_keeps_its_part_while_it_is_flat() -> None:
    late = training("late", 1600, value=lambda step: 0.1 + 1e-3 * math.sin(step), every=40)
    others = [training("near", 380, every=20, told=3000), training("past", 1000)]
    placed = decided([late, *others])
    assert "to reach 0.7" in placed.why["late"]
    assert "to reach 0.8" in placed.why["late"]


def test_a_curve_that_begins_beyond_its_tiers_is_placed_without_its_steps_told() -> None:
    tuned = training("tuned", 300, told=None, value=lambda step: 0.9 - 1e-3 * math.exp(-step / 200))
    assert decided([tuned]).uses["tuned"] > FLOOR


def test_a_curve_that_rests_early_is_not_called_impossible() -> None:
    rests = training("rests", 600, value=lambda step: 0.75 - 0.5 * math.exp(-step / 60), every=25)
    finish = decided([rests]).outlooks["rests"][1]
    assert finish.kind is ForecastKind.UNKNOWN
    assert finish.best == pytest.approx(0.75, abs=0.01)
    assert "a chance of" in finish.why


def test_who_hovers_at_a_tier_is_not_for_ever_as_good_as_there() -> None:
    def hovers(step: float) -> float:
        return curve(step) if step < 400 else 0.7 + 0.003 * (-1) ** (step // 50)

    job = training("hovers", 900, value=hovers)
    assert job.tiers.delivered is None
    (known,) = decided([job]).memory
    left_core_s = marginal_value(job, known, 100.0, RULE).tiers_core_s[0]
    assert left_core_s > 150.0


def test_a_tier_that_was_reached_no_longer_counts() -> None:
    placed = decided([training("there", 700)])
    assert "to reach 0.7" not in placed.why["there"]
    assert "to reach 0.8" in placed.why["there"]


def test_when_a_tier_is_reached_is_told_with_its_interval() -> None:
    alone = training("alone", 600, used=2.0)
    placed = settled([alone], 101.0, 102.0, 110.0)
    finish = placed.outlooks["alone"][1]
    assert finish.kind is ForecastKind.EXPECTED
    assert finish.at_s == pytest.approx(110.0 + 333.0 / 2.0, rel=0.1)
    assert finish.earliest_s < finish.at_s < finish.latest_s


def test_who_waits_is_told_a_later_time() -> None:
    two = [training("a", 600), training("b", 600, step_core_s=1.5)]
    both, alone = decided(two), decided(two[1:])
    at_s = [placed.outlooks["b"][1].at_s or 0.0 for placed in (both, alone)]
    assert at_s[0] > at_s[1] + 10.0


def test_too_few_evaluations_tell_no_time() -> None:
    kinds = {one.kind for one in decided([training("new", 100, told=None)]).outlooks["new"]}
    assert kinds == {ForecastKind.UNKNOWN}


def test_a_deadline_at_risk_is_told_and_goes_first() -> None:
    due = AccuracyTarget("accuracy", 0.7, 0.8, deadline_s=200.0)
    hurried = training("hurried", 350, step_core_s=14.0, target=due)
    others = [training(f"other-{n}", 350) for n in range(4)]
    told = decided([hurried, *others])
    deliver = told.outlooks["hurried"][0]
    assert deliver.kind is ForecastKind.CROWDED
    assert deliver.lacks and deliver.lacks[0][0].startswith("other")
    assert deliver.needs_cores == pytest.approx(50.0 * 14.0 / 100.0, rel=0.05)
    assert first(told) != "hurried"
    later = decided([hurried, *others], told.memory, now_s=101.0)
    assert first(later) == "hurried"
    again = decided([hurried, *others], later.memory, now_s=107.0)
    assert again.outlooks["hurried"][0].kind is ForecastKind.EXPECTED
    assert first(again) == "hurried", "it stays there: else it would be late again"


def test_a_deadline_that_nothing_can_meet_moves_nobody() -> None:
    due = AccuracyTarget("accuracy", 0.7, 0.8, deadline_s=110.0)
    late = training("late", 350, step_core_s=40.0, target=due)
    other = training("other", 350)
    told = decided([late, other])
    assert told.outlooks["late"][0].kind is ForecastKind.UNLIKELY
    assert first(decided([late, other], told.memory, now_s=101.0)) == "other"


def test_a_step_that_goes_back_begins_anew_from_its_checkpoint() -> None:
    placed = decided([training("a", 600)])
    assert len(placed.memory[0].points) == 12
    back = training("a", 600)
    again = Sample(70.0, 350, ((TARGET.metric, 0.66), ("total_steps", 2000.0)))
    samples = (*back.progress.samples, again)
    back = replace(back, progress=Progress(samples=samples, as_of_s=70.0), starts=2)
    known = decided([back], placed.memory, now_s=101.0).memory[0]
    assert [step for step, _, _ in known.points] == [50, 100, 150, 200, 250, 300, 350]
    assert known.step == 350
    assert known.step_core_s == pytest.approx(1.0)


def test_what_a_step_takes_is_measured_after_the_start_up() -> None:
    early = training("a", 50, attained_core_s=30.0 + 50.0)
    late = training("a", 300, attained_core_s=30.0 + 300.0)
    placed = decided([early], now_s=5.0)
    placed = decided([late], placed.memory, now_s=31.0)
    assert placed.memory[0].step_core_s == pytest.approx(1.0)


def test_without_news_what_is_known_stays_the_same_object() -> None:
    job = training("a", 600)
    before = decided([job]).memory[0]
    after = decided([job], [before], now_s=101.0).memory[0]
    assert after is before


def test_only_so_many_curves_are_fitted_at_once_and_none_is_forgotten() -> None:
    jobs = [training(f"job-{n}", 300) for n in range(5)]
    rule = AdaptiveParameters(fits_most=2)
    known: tuple[TrainingMemory, ...] = ()
    fitted = []
    for at_s in (100.0, 101.0, 102.0):
        known = decided(jobs, known, now_s=at_s, rule=rule).memory
        fitted.append(sum(one.learnt is not None for one in known))
    assert fitted == [2, 4, 5]


def test_without_the_word_on_its_steps_the_end_is_taken_from_its_way_to_finish() -> None:
    rule = AdaptiveParameters(heeds_total_steps=False)
    end = decided([training("a", 600)], rule=rule).outlooks["a"][2]
    assert "estimated from its progress towards finish" in end.why
    assert end.at_s is not None
    assert end.at_s == pytest.approx(100.0 + (933 * 1.35 - 600) / CORES, rel=0.15)


def test_a_job_that_pauses_is_remembered_and_one_that_is_gone_is_not() -> None:
    known = decided([training("a"), training("b"), training("c")]).memory
    paused = replace(training("b"), state=JobState.PAUSED)
    after = decided([training("a")], known, now_s=101.0, others=[paused]).memory
    kept = {one.name: one.points for one in after}
    assert kept.keys() == {"a", "b", "c"}
    assert kept["b"]
    assert not kept["c"], "only how long it would go on if all had shared equally"
    later = decided([training("a")], after, now_s=10_000.0, others=[paused]).memory
    assert {one.name for one in later} == {"a", "b"}


def test_another_target_begins_anew() -> None:
    known = decided([training("a", 600)]).memory
    other = training("a", 600, target=AccuracyTarget("loss", 0.5, 0.1))
    assert decided([other], known, now_s=101.0).memory[0].points == ()


def test_what_is_remembered_is_small_and_loads_again() -> None:
    many = training("a", 4000, every=10, told=4000, value=lambda s: curve(s) + (s % 7) * 1e-7)
    memory = decided([many, training("b", 0, told=None)]).memory
    for one in memory:
        text = memory_text(one)
        assert len(text) < 4096
        loaded, trouble = load_memory(json.loads(text), TrainingMemory)
        assert (loaded, trouble) == (one, None)


def test_no_training_is_no_trouble() -> None:
    assert decided([]) == Placed()


def test_no_capacity_is_divided_without_error() -> None:
    placed = decided([training("a"), training("b", 0, told=None)], cores=0.0)
    assert all(weight > 0 for weight in placed.weights.values())
    assert math.fsum(placed.uses.values()) == 0.0


def test_a_ceiling_of_the_spec_stays() -> None:
    job = training("a")
    bounded = replace(job, spec=replace(job.spec, bounds=replace(job.spec.bounds, ceiling_cores=2)))
    assert decided([bounded], rule=RULE).limits == {"a": 2}
    assert decided([replace(bounded, actual=Limits(2.0))]).limits == {"a": 2}


def test_who_lies_that_it_is_nearly_there_is_not_first_for_ever() -> None:
    # Steps that take nothing, and that go back before they would end.
    liar = training("liar", 1999, step_core_s=1e-9)
    for attained_core_s, before in ((1.0, "liar"), (1e6, "honest")):
        jobs = [replace(liar, attained_core_s=attained_core_s), training("honest")]
        memory = TrainingMemory(
            "liar",
            "c-liar",
            ("accuracy", 0.7, 0.8),
            read_s=1e3,
            step=1999.0,
            told_steps=2000.0,
            step_core_s=1e-9,
            paced=True,
        )
        assert first(decided(jobs, [memory])) == before


def test_more_steps_than_anybody_makes_are_no_word() -> None:
    for told, heard in ((10**12, 1e12), (10**15, None)):
        (memory,) = decided([training("a", told=told)]).memory
        assert memory.told_steps == heard


def test_of_who_fell_silent_it_is_told_so() -> None:
    blind = replace(training("a"), blind="silent for 200 s")
    (outlook, *_) = decided([blind], now_s=1000.0).outlooks["a"]
    assert outlook.kind is ForecastKind.UNKNOWN
    assert "reported nothing for long" in outlook.why


def test_a_deadline_in_the_past_is_told_as_passed() -> None:
    late = training("a", target=replace(TARGET, deadline_s=50.0))
    deliver = decided([late], now_s=100.0).outlooks["a"][0]
    assert deliver.kind is ForecastKind.IMPOSSIBLE
    assert "the job's deadline has passed; even alone" in deliver.why
