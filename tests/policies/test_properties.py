"""What holds for every policy that is shipped, whatever the node looks like."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.model.facts import Sample
from dlsched.model.spec import AccuracyTarget, Bounds
from dlsched.model.state import JobView, Progress, Reached, Snapshot, Tiers
from dlsched.policies.registry import load
from tests.policies.plant import job, snapshot
from tests.properties import examples

POLICIES: tuple[tuple[str, dict[str, object]], ...] = (
    ("none", {}),
    ("fair", {}),
    ("dqoes", {}),
    ("dqoes-published", {}),
    ("flowcon", {}),
    ("tradl", {"weights": "growth"}),
    ("tradl", {"weights": "closest"}),
)
REACHED = Reached(5.0, 0.9)
maybe_cores = st.none() | st.floats(0, 4)
finite = st.floats(allow_nan=False, allow_infinity=False)
tiers = st.builds(
    AccuracyTarget,
    st.sampled_from(["loss", "accuracy"]),
    st.floats(-1e15, 1e15),
    st.floats(-1e15, 1e15),
)
# At 10 s, where all snapshots stand, these fill both windows of any policy, and more.
samples = st.lists(
    st.builds(
        Sample,
        st.floats(-100, 10),
        st.none() | st.integers(0, 3),
        st.lists(
            st.tuples(st.sampled_from(["loss", "accuracy"]), st.floats(0, 1) | finite), max_size=2
        ).map(tuple),
    ),
    max_size=8,
).map(lambda drawn: tuple(sorted(drawn, key=lambda sample: sample.received_s)))


@st.composite
def views(draw: st.DrawFn) -> JobView:
    floor = draw(st.floats(0, 0.2))
    view = job(
        draw(st.text("abcdef", min_size=1, max_size=3)),
        draw(st.none() | st.floats(1e-4, 100)),
        draw(st.lists(st.floats(0, 1000), max_size=6)) * draw(st.integers(1, 20)),
        cores=draw(maybe_cores),
        used=draw(maybe_cores),
        throttled=draw(st.none() | st.floats(0, 1)),
        quantile=draw(st.none() | st.sampled_from([0.5, 0.95, 0.999])),
        oldest_s=draw(st.floats(0, 1e4)),
        changed_at_s=draw(st.none() | st.floats(0, 10)),
        bounds=Bounds(floor, draw(st.none() | st.floats(0.2, 8))),
        weight=draw(st.floats(0.01, 100)),
    )
    if draw(st.booleans()):
        return view
    return replace(
        view,
        spec=replace(view.spec, target=draw(st.none() | tiers)),
        progress=Progress(samples=draw(samples)),
        started_at_s=draw(st.none() | st.floats(-100, 10)),
        tiers=draw(st.sampled_from((Tiers(), Tiers(REACHED), Tiers(REACHED, REACHED)))),
    )


nodes = st.builds(
    lambda jobs, capacity, foreign: snapshot(*jobs, capacity=capacity, foreign=foreign),
    st.lists(views(), max_size=6, unique_by=lambda view: view.name),
    st.floats(0.5, 64),
    st.none() | st.floats(0, 64),
)


@pytest.mark.parametrize(("name", "options"), POLICIES)
@settings(max_examples=examples(60))
@given(first=nodes, second=nodes, seed=st.integers(0, 99))
def test_any_input_gives_a_sound_decision(
    name: str, options: dict[str, object], first: Snapshot, second: Snapshot, seed: int
) -> None:
    policy = load(name, options)
    memory: object = None
    for seen in (first, second, second):
        decision = policy.decide(seen, memory)
        running = {view.name: view for view in seen.running}
        assert decision.limits.keys() == decision.why.keys() == running.keys()
        for job_name, limits in decision.limits.items():
            cores, bounds = limits.cpu_cores, running[job_name].spec.bounds
            if cores is not None:
                assert math.isfinite(cores)
                assert bounds.floor_cores - 1e-9 <= cores
                assert bounds.ceiling_cores is None or cores <= bounds.ceiling_cores + 1e-9
        if policy.traits.reserves:
            floors = math.fsum(view.spec.bounds.floor_cores for view in running.values())
            whole = math.fsum(
                math.inf if one.cpu_cores is None else one.cpu_cores
                for one in decision.limits.values()
            )
            assert whole <= max(seen.node.capacity_cores, floors) + 1e-6
        assert math.isfinite(decision.next_s)

        shuffled = list(seen.jobs)
        random.Random(seed).shuffle(shuffled)
        again = load(name, options).decide(
            snapshot(*shuffled, capacity=seen.node.capacity_cores, foreign=seen.node.foreign_cores),
            memory,
        )
        assert again.limits == decision.limits
        assert again.memory == decision.memory
        memory = decision.memory
