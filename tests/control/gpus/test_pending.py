"""GPUs through the ledger: who holds which from admission to the end, and who should move."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.control.gpus.placement import PlacementOptions
from dlsched.control.gpus.rebalance import Wanted
from dlsched.control.ledger.desired import Desired
from dlsched.control.ledger.ledger import Ledger
from dlsched.control.ledger.ledger_options import LedgerOptions
from dlsched.control.ledger.updated import State
from dlsched.model.actions import Move, Outcome, Start
from dlsched.model.decision import Answer
from dlsched.model.facts import (
    Begun,
    ContainerFact,
    ContainerState,
    GpuProcess,
    NodeFact,
    Observation,
    Report,
)
from dlsched.model.forecast import Forecast, ForecastKind
from dlsched.model.spec import AccuracyTarget, Checkpoint, JobSpec, Limits
from dlsched.model.state import JobState
from tests.doubles import doing, gpu_fact, gpu_spec, running, texts

TWO = (gpu_fact(0), gpu_fact(1))
SAVES = Checkpoint("SIGUSR1", 30.0, "/ckpt")


def saving(name: str, **more: object) -> JobSpec:
    """A job that can be moved."""
    spec = gpu_spec(name, **more)  # type: ignore[arg-type]
    return replace(
        spec, checkpoint=SAVES, container=replace(spec.container, volumes=("data:/ckpt",))
    )


def on(spec: JobSpec, *gpus: str, **more: object) -> ContainerFact:
    digests = {"container_digest": spec.container_digest, "digest": spec.digest}
    return running(spec.name, **{**digests, "gpus": gpus, **more})


class Cycles:
    """A ledger, and what it is shown."""

    def __init__(self, *specs: JobSpec, gpus=TWO, trouble: str | None = None, **options: object):
        self.ledger = Ledger(LedgerOptions(gpus=PlacementOptions(**options)))  # type: ignore[arg-type]
        self.specs = {spec.name: spec for spec in specs}
        self.facts: dict[str, ContainerFact] = {}
        self.begun: tuple[Begun, ...] = ()
        self.gpus, self.trouble, self.now_s, self.engine_ok = gpus, trouble, 0.0, True
        self.away: dict[str, tuple[str, ...]] = {}

    def update(self, after_s: float = 1.0) -> State:
        self.now_s += after_s
        node = NodeFact(8.0, 2**36, gpus=self.gpus, gpu_trouble=self.trouble)
        seen = Observation(
            self.now_s,
            self.engine_ok,
            containers=tuple(self.facts.values()),
            begun=self.begun,
            node=node,
            gpus_away=dict(self.away),
        )
        return self.ledger.update(seen, Desired(specs=self.specs), {})

    def runs(self, spec: JobSpec, *gpus: str, **more: object) -> None:
        self.specs[spec.name] = spec
        self.facts[spec.name] = on(spec, *gpus, **more)

    def applied(self, action: Start | Move, status: str) -> None:
        self.ledger.applied([Outcome(action, status)], Answer(), self.now_s)  # type: ignore[arg-type]


def views(state: State):
    return {job.name: job for job in state.snapshot.jobs}


# ------------------------------------------------------------------------------- the node


def test_whoever_is_in_none_of_our_containers_is_foreign():
    processes = (
        GpuProcess(1, "id-a", 100), GpuProcess(2, "another", 30), GpuProcess(3, None, 20),
        GpuProcess(4, None),
    )  # fmt: skip
    cycles = Cycles(gpus=(gpu_fact(0, processes=processes), gpu_fact(1)))
    cycles.runs(gpu_spec("a"), "GPU-0")
    used, free = cycles.update().snapshot.node.gpus
    assert (used.foreign_processes, used.foreign_memory_bytes) == (3, 50)
    assert free.foreign_processes == 0


def test_a_reserved_gpu_is_reserved_with_all_its_instances():
    part = replace(gpu_fact(0), uuid="MIG-1", part_of="GPU-0")
    cycles = Cycles(gpus=(*TWO, part), reserved=frozenset({"GPU-0"}))
    reserved = [gpu.uuid for gpu in cycles.update().snapshot.node.gpus if gpu.reserved]
    assert reserved == ["GPU-0", "MIG-1"]


def test_a_job_that_is_away_keeps_its_gpus():
    cycles = Cycles(gpu_spec("new"), gpus=(gpu_fact(0),))
    cycles.away = {"away": ("GPU-0",)}
    state = cycles.update()
    assert state.starts == ()
    assert "kept for away, which may return from another node" in views(state)["new"].reason
    cycles.away = {}
    assert cycles.update().placements == {"new": ("GPU-0",)}


# ------------------------------------------------------------------------------- waiting


def test_who_waits_is_told_what_the_policy_expects_of_the_holder():
    learns = gpu_spec("a", target=AccuracyTarget("accuracy", 0.9, 0.97))
    cycles = Cycles(gpu_spec("b"), gpus=TWO[:1])
    cycles.runs(learns, "GPU-0")
    assert views(cycles.update())["b"].reason.endswith(
        "when the job starts is unknown: a has not been observed yet"
    )
    expected = Forecast(ForecastKind.EXPECTED, "finish", 900.0, 602.0, 1500.0)
    cycles.ledger.applied((), Answer(forecasts={"a": (expected,)}), cycles.now_s)
    assert views(cycles.update())["b"].reason.endswith(
        "; the job starts in about 10 min at the earliest: a is expected to reach accuracy 0.97"
    )


# ------------------------------------------------------------------------------- starting


def test_a_start_gets_gpus_that_are_its_until_its_container_tells():
    cycles = Cycles(gpu_spec("a"), gpu_spec("b"), gpu_spec("c"))
    state = cycles.update()
    assert state.placements == {"a": ("GPU-0",), "b": ("GPU-1",)}
    for spec in state.starts:
        cycles.applied(Start(spec, Limits(), 1024, gpus=state.placements[spec.name]), "begun")
    cycles.begun = tuple(
        Begun(name, "pulling", "20 %", cycles.specs[name].digest) for name in ("a", "b")
    )
    state = cycles.update()
    assert views(state)["b"].gpus == ("GPU-1",)
    assert state.starts == ()
    cycles.begun = (Begun("a", "pulled", "", cycles.specs["a"].digest), cycles.begun[1])
    assert cycles.update().placements == {"a": ("GPU-0",)}
    cycles.begun = ()
    cycles.runs(cycles.specs["a"], "GPU-0")
    state = cycles.update()
    assert views(state)["a"].gpus == ("GPU-0",)
    assert state.placements == {"b": ("GPU-1",)}


def test_a_start_that_came_to_nothing_holds_no_gpu():
    cycles = Cycles(gpu_spec("a"), gpus=TWO[:1])
    assert cycles.update().placements == {"a": ("GPU-0",)}
    cycles.begun = (Begun("a", "failed", "no such image", cycles.specs["a"].digest),)
    assert views(cycles.update())["a"].gpus == ()
    cycles.specs["b"] = gpu_spec("b")
    assert cycles.update().placements == {"b": ("GPU-0",)}


def test_a_container_that_is_made_already_keeps_its_gpus():
    cycles = Cycles()
    cycles.runs(gpu_spec("a"), "GPU-1", state=ContainerState.CREATED)
    cycles.specs["b"] = gpu_spec("b", 2)
    state = cycles.update()
    assert state.placements == {"a": ("GPU-1",)}
    assert views(state)["b"].reason.startswith("needs 2 GPUs alone, 1 of 2 free")


def test_what_is_kept_for_one_that_waits_stays_kept():
    cycles = Cycles(gpu_spec("big"))
    cycles.runs(gpu_spec("a", share=0.4), "GPU-0")
    cycles.runs(gpu_spec("b", share=0.4), "GPU-1")
    cycles.update()
    cycles.runs(gpu_spec("c", share=0.1), "GPU-0")  # by now GPU 1 would be the better choice
    cycles.specs["small"] = gpu_spec("small", share=0.3)
    assert cycles.update().placements == {"small": ("GPU-1",)}


# ------------------------------------------------------------------------------- moves

SIZES = (gpu_fact(0, 16), gpu_fact(1, 80))
BIG = gpu_spec("big", gib=40)


def crowded(spec: JobSpec | None = None, **options: object) -> Cycles:
    """A job that could be elsewhere is on the only GPU that `big` fits on."""
    cycles = Cycles(BIG, gpus=SIZES, **options)
    cycles.runs(spec or saving("runs"), "GPU-1")
    return cycles


def move_of(cycles: Cycles, state: State) -> Move:
    assert state.move is not None
    start = Start(cycles.specs["runs"], Limits(), 1024, gpus=state.move.gpus)
    return Move("id-runs", start, SAVES, state.move.why)


def test_a_job_that_can_be_moved_makes_room():
    state = crowded().update()
    assert (state.move.job, state.move.gpus) == ("runs", ("GPU-0",))
    assert "makes room for big, which gains" in state.move.why
    assert views(state)["big"].state is JobState.WAITING


def test_a_setting_keeps_all_where_they_are():
    assert crowded(move=False).update().move is None


def test_an_adopted_job_is_somebody_elses_to_move():
    cycles = crowded()
    cycles.facts["runs"] = on(cycles.specs["runs"], "GPU-1", adopted=cycles.specs.pop("runs"))
    state = cycles.update()
    assert views(state)["runs"].adopted
    assert state.move is None


def test_without_an_engine_nothing_moves():
    cycles = crowded()
    cycles.engine_ok = False
    assert cycles.update().move is None


def test_what_is_being_done_to_a_job_keeps_it_where_it_is():
    cycles = crowded()
    cycles.runs(cycles.specs["runs"], "GPU-1", operation=doing("updating"))
    assert cycles.update().move is None


def test_in_a_move_both_gpus_are_held_and_no_other_move_begins():
    cycles = crowded()
    cycles.applied(move_of(cycles, cycles.update()), "begun")
    cycles.runs(cycles.specs["runs"], "GPU-1", operation=doing("moving: it saves itself"))
    cycles.specs["small"] = gpu_spec("small", share=0.2)
    state = cycles.update()
    assert views(state)["runs"].state is JobState.MOVING
    assert (state.move, state.placements) == (None, {})
    cycles.runs(cycles.specs["runs"], "GPU-0")
    assert cycles.update().placements == {"big": ("GPU-1",)}


def test_while_one_moves_no_other_does():
    cycles = crowded()
    cycles.gpus = (*SIZES, gpu_fact(2, 80), gpu_fact(3, 16))
    cycles.runs(saving("other"), "GPU-2")
    cycles.runs(gpu_spec("stays"), "GPU-3")
    cycles.runs(cycles.specs["runs"], "GPU-1", operation=doing("moving: it saves itself"))
    assert cycles.update().move is None
    cycles.runs(cycles.specs["runs"], "GPU-1")
    assert cycles.update().move is not None


def test_no_job_is_moved_again_soon_whether_it_worked_or_not():
    cycles = crowded()
    cycles.applied(move_of(cycles, cycles.update()), "failed")
    assert cycles.update().move is None
    assert cycles.update(1790.0).move is None
    assert cycles.update(10.0).move is not None


def test_a_move_that_was_only_told_is_told_again():
    cycles = crowded()
    cycles.applied(move_of(cycles, cycles.update()), "withheld")
    assert cycles.update().move is not None


def test_how_soon_a_job_reports_after_its_start_is_part_of_the_pause():
    cycles = Cycles(saving("runs"), gpus=SIZES)
    cycles.update()
    cycles.runs(cycles.specs["runs"], "GPU-1", started_at_s=1.0)
    cycles.update()
    cycles.runs(cycles.specs["runs"], "GPU-1", started_at_s=1.0, reports=(Report(6.0),))
    cycles.update()
    cycles.specs["big"] = BIG
    assert "(a pause of up to 45 s" in cycles.update().move.why


LOST = (gpu_fact(0), gpu_fact(1, trouble="fell off the bus"))


@pytest.mark.parametrize(
    ("spec", "options", "told", "move"),
    [
        (saving("runs"), {}, "the job is not moved", None),
        (
            saving("runs"),
            {"on_loss": "move", "move": False},
            "the job moves when another GPU has room",
            Wanted("runs", ("GPU-0",), "GPU 1, on which it runs: fell off the bus; to GPU 0"),
        ),
        (
            gpu_spec("runs"),
            {"on_loss": "move"},
            "the job stays: the job declares no checkpoint",
            None,
        ),
    ],
    ids=["kept", "moves by setting", "would lose its work"],
)
def test_a_gpu_in_trouble_under_a_job_is_told_with_what_becomes_of_the_job(
    spec, options, told, move
):
    cycles = Cycles(gpus=LOST, **options)
    cycles.runs(spec, "GPU-1")
    state = cycles.update()
    assert texts(state.alarms) == (f"runs: GPU 1, on which it runs: fell off the bus; {told}",)
    assert state.move == move


def test_a_gpu_that_vanished_is_in_trouble_but_not_where_none_can_be_seen():
    cycles = Cycles(gpus=TWO[:1])
    cycles.runs(saving("runs"), "GPU-1")
    assert texts(cycles.update().alarms) == (
        "runs: GPU GPU-1, on which it runs, is gone; the job is not moved",
    )
    cycles.gpus, cycles.trouble = (), "no driver"
    assert texts(cycles.update().alarms) == ()


def test_a_job_that_lost_its_gpu_to_an_update_is_made_anew_by_setting():
    cycles = Cycles(gpus=TWO[:1], on_loss="move")
    cycles.runs(saving("runs"), "GPU-0", gpu_lost="an update took it away")
    assert cycles.update().move == Wanted("runs", ("GPU-0",), "an update took it away; to GPU 0")
