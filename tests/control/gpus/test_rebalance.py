"""Which move is worth it: cost against gain, one at a time, and no work is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.control.gpus.placement import Holder, PlacementOptions, rooms
from dlsched.control.gpus.queue import Turn
from dlsched.control.gpus.rebalance import (
    UNKNOWN_RESUME_S,
    Movable,
    off_lost_gpu,
    pause_s,
    to_make_room,
    unmovable,
)
from dlsched.model.spec import Checkpoint, Stop
from tests.doubles import gpu_fact, gpu_node, gpu_spec

SAVES = Checkpoint("SIGUSR1", 30.0, "/ckpt/now")
AUTO = PlacementOptions()
SMALL_AND_LARGE = gpu_node(gpu_fact(0, 16), gpu_fact(1, 80))


def left(node, *holders: Movable):
    return rooms(node, [Holder(one.spec, one.gpus) for one in holders], AUTO)


def movable(name: str, *gpus: str, pause_s: float = 75.0, share: float = 1.0, **more: object):
    return Movable(gpu_spec(name, len(gpus), share, **more), gpus, pause_s)


RUNS = movable("runs", "GPU-1")
WAITS, TURN = gpu_spec("waits", gib=40), Turn(kept=("GPU-1",), wait_s=600.0)


def wanted(turn: Turn, *running: Movable, node=SMALL_AND_LARGE):
    return to_make_room([(WAITS, turn)], running, left(node, *running), AUTO)


def test_a_job_makes_room_for_one_that_fits_nowhere_else():
    move = wanted(TURN, RUNS)
    assert (move.job, move.gpus) == ("runs", ("GPU-0",))
    assert move.why == (
        "makes room for waits, which gains 525 s (a wait of 10 min, less the pause, times its "
        "weight 1); it costs 75 s (a pause of up to 1 min 15 s times the weight 1); to GPU 0"
    )


def test_a_wait_that_nothing_tells_counts_as_half_an_hour_and_is_called_assumed():
    assert "an assumed wait of 30 min" in wanted(replace(TURN, wait_s=None), RUNS).why


@pytest.mark.parametrize(("wait_s", "weight", "moves"), [
    (149.0, 1.0, False), (151.0, 1.0, True), (224.0, 2.0, False), (226.0, 2.0, True),
])  # fmt: skip
def test_it_moves_only_where_the_gain_is_above_the_cost(wait_s, weight, moves):
    heavy = replace(RUNS, spec=replace(RUNS.spec, weight=weight))
    assert (wanted(replace(TURN, wait_s=wait_s), heavy) is not None) is moves


def test_the_cheapest_of_those_that_could_move_does():
    node = gpu_node(gpu_fact(0, 16), gpu_fact(1, 80), gpu_fact(2, 80))
    slow, quick = movable("slow", "GPU-1", pause_s=90.0), movable("quick", "GPU-2", pause_s=20.0)
    assert wanted(replace(TURN, kept=()), slow, quick, node=node).job == "quick"


def test_nobody_moves_where_the_one_that_moves_would_have_no_room():
    assert wanted(TURN, replace(RUNS, spec=gpu_spec("runs", gib=40))) is None


def test_nobody_moves_where_that_makes_no_room():
    shares = movable("shares", "GPU-0", share=0.2)
    alone = Holder(gpu_spec("stays"), ("GPU-1",))
    node_left = rooms(SMALL_AND_LARGE, [Holder(shares.spec, shares.gpus), alone], AUTO)
    assert to_make_room([(WAITS, TURN)], [shares], node_left, AUTO) is None


def test_nobody_moves_to_where_the_memory_that_it_uses_is_not():
    uses = replace(RUNS, used_bytes=17 * 2**30)
    assert wanted(TURN, uses) is None
    assert wanted(TURN, replace(RUNS, used_bytes=15 * 2**30)) is not None
    lost = replace(uses, problem="its GPU 1: lost")
    assert off_lost_gpu([lost], left(SMALL_AND_LARGE, lost), AUTO).gpus == ("GPU-1",)
    asks = replace(movable("runs", "GPU-1", gib=8), used_bytes=17 * 2**30)
    assert wanted(TURN, asks).gpus == ("GPU-0",)


def test_it_does_not_move_onto_what_is_kept_for_another():
    node = gpu_node(gpu_fact(0, 16), gpu_fact(1, 80))
    kept = left(node, RUNS)
    kept["GPU-0"] = replace(kept["GPU-0"], closed="kept for other")
    assert to_make_room([(WAITS, TURN)], [RUNS], kept, AUTO) is None
    kept["GPU-0"], kept["GPU-1"] = (
        left(node, RUNS)["GPU-0"], replace(kept["GPU-1"], closed="kept for waits")
    )  # fmt: skip
    assert to_make_room([(WAITS, TURN)], [RUNS], kept, AUTO).gpus == ("GPU-0",)


def test_a_job_moves_off_a_gpu_in_trouble_and_may_keep_the_sound_one():
    node = gpu_node(gpu_fact(0), gpu_fact(1, trouble="fell off the bus"), gpu_fact(2))
    hit = replace(movable("hit", "GPU-0", "GPU-1"), problem="its GPU 1: fell off the bus")
    move = off_lost_gpu([RUNS, hit], left(node, hit), AUTO)
    assert (move.job, move.gpus) == ("hit", ("GPU-0", "GPU-2"))
    assert move.why == "its GPU 1: fell off the bus; to GPUs 0, 2"


def test_without_room_elsewhere_it_stays():
    node = gpu_node(gpu_fact(0), gpu_fact(1, trouble="fell off the bus"))
    other = movable("other", "GPU-0")
    hit = replace(movable("hit", "GPU-1"), problem="its GPU 1: fell off the bus")
    assert off_lost_gpu([hit], left(node, hit, other), AUTO) is None


def test_one_that_lost_its_sound_gpu_may_go_on_there():
    node = gpu_node(gpu_fact(0))
    hit = replace(movable("hit", "GPU-0"), problem="taken away by an update")
    assert off_lost_gpu([hit], left(node, hit), AUTO).gpus == ("GPU-0",)


def test_a_move_takes_at_most_saving_stopping_and_starting_again():
    spec = gpu_spec("a", checkpoint=SAVES, stop=Stop("SIGTERM", 5.0))
    assert pause_s(spec, 12.0) == 47.0
    assert pause_s(spec, None) == 35.0 + UNKNOWN_RESUME_S


def test_without_a_checkpoint_nothing_moves():
    assert unmovable(gpu_spec("a")) == "the job declares no checkpoint"
