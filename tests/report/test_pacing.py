"""`pace` on a simulated device: what a job gets of it, by the device's own books."""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.report.granted import Allotment
from dlsched.report.pacing import IDLE_S, LONGEST_S, POLL_S, WAITED_S, Budget, Pacer, Section
from dlsched.report.turns import turn_file
from tests.lanes import but_the_first_long
from tests.report.jobs import run_job
from tests.report.simulated_gpu import Process, World, paced, torch

pytestmark = pytest.mark.timed

POINTS = 0.05
"""The share is kept to within so much."""
GPU = "GPU-1"

Steps = Callable[[random.Random], float]
Loop = Callable[[Process, Pacer, Callable[[], float]], None]


def regular(_: random.Random) -> float:
    return 0.01


def short(_: random.Random) -> float:
    return 0.001


def irregular(chance: random.Random) -> float:
    return 1.0 if chance.random() < 0.02 else chance.choice((0.003, 0.01, 0.03, 0.2))


def long(_: random.Random) -> float:
    return 2.0


def after_steps(process: Process, pace: Pacer, step_s: Callable[[], float]) -> None:
    """A job that goes on while the device computes."""
    while True:
        process.step(step_s())
        pace()


def around_steps(process: Process, pace: Pacer, step_s: Callable[[], float]) -> None:
    """A job that says which part of its loop is the device's, and waits for its results."""
    while True:
        with pace:
            process.step(step_s())
            process.finish()


def waits(process: Process, pace: Pacer, step_s: Callable[[], float]) -> None:
    """A job that looks at each step's result before it goes on."""
    while True:
        process.step(step_s())
        process.finish()
        pace()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[World]:
    monkeypatch.setenv("DLSCHED_ALLOTMENT_FILE", str(tmp_path / "allotment.json"))
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    world = World()
    yield world
    world.end()


@pytest.fixture
def events(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch is there, with events."""
    monkeypatch.setitem(sys.modules, "torch", torch(world))


@pytest.fixture
def turns(tmp_path: Path) -> None:
    """The agent has laid down what is locked in turn."""
    (tmp_path / turn_file(GPU)).touch()


def job(
    world: World, share: float | None, loop: Loop, steps: Steps, seed: int = 1, **told: Any
) -> Process:
    chance = random.Random(seed)
    allotment = Allotment(gpu_share=share, gpus=(GPU,))
    return world.start(
        lambda process: loop(
            process, paced(process, lambda: allotment, **told), lambda: steps(chance)
        )
    )


ENOUGH_S: dict[Steps, float] = {regular: 20.0, irregular: 200.0, long: 200.0}
"""For many turns, whatever the share."""
LOOPS = pytest.mark.parametrize("loop", [after_steps, around_steps])
STEPS = pytest.mark.parametrize("steps", [regular, irregular, long])


@LOOPS
@STEPS
@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 0.75])
@pytest.mark.usefixtures("events", "turns")
def test_one_job_has_its_share(world: World, share: float, steps: Steps, loop: Loop) -> None:
    one = job(world, share, loop, steps)
    world.run(until_s := ENOUGH_S[steps])
    assert one.busy_s / until_s == pytest.approx(share, abs=POINTS)


@LOOPS
@STEPS
@pytest.mark.parametrize(
    "shares", but_the_first_long([(0.25, 0.75), (0.1, 0.9), (0.5, 0.5), (0.25, 0.25)])
)
@pytest.mark.usefixtures("events", "turns")
def test_two_jobs_have_theirs_and_together_keep_the_device_busy(
    world: World, shares: tuple[float, float], steps: Steps, loop: Loop
) -> None:
    one, other = (job(world, share, loop, steps, seed) for seed, share in enumerate(shares))
    world.run(until_s := ENOUGH_S[steps])
    assert one.busy_s / until_s == pytest.approx(shares[0], abs=POINTS)
    assert other.busy_s / until_s == pytest.approx(shares[1], abs=POINTS)
    if sum(shares) == 1:
        assert one.busy_s + other.busy_s >= 0.95 * until_s


@pytest.mark.parametrize("steps", [regular, short])
@pytest.mark.usefixtures("events", "turns")
def test_two_at_a_half_make_as_many_steps_as_one_alone(world: World, steps: Steps) -> None:
    alone_world = World()
    alone = job(alone_world, None, waits, steps)
    alone_world.run(20.0)
    alone_world.end()
    jobs = [job(world, 0.5, after_steps, steps, seed) for seed in (1, 2)]
    world.run(20.0)
    assert sum(each.steps for each in jobs) >= 0.95 * alone.steps


@pytest.mark.usefixtures("turns")
def test_without_events_the_clock_does_as_well(world: World) -> None:
    jobs = [job(world, share, waits, irregular, seed) for seed, share in enumerate((0.25, 0.75))]
    world.run(100.0)
    assert jobs[0].busy_s / 100.0 == pytest.approx(0.25, abs=POINTS)
    assert jobs[1].busy_s / 100.0 == pytest.approx(0.75, abs=POINTS)


def test_without_turns_waiting_for_the_other_counts_as_busy(world: World) -> None:
    """Two jobs at a half that compute at the same time each take twice as long for a step. Each
    holds all of it for its own, and rests for as long: half of the device is lost."""
    jobs = [job(world, 0.5, waits, regular, seed) for seed in (1, 2)]
    world.run(20.0)
    for each in jobs:
        assert each.busy_s / 20.0 == pytest.approx(0.25, abs=POINTS)


@pytest.mark.usefixtures("events", "turns")
def test_a_job_whose_steps_others_hold_up_catches_up(world: World) -> None:
    """Steps of 5 s and of 10 ms on one device, half of it each."""
    slow = job(world, 0.5, after_steps, lambda _: 5.0)
    quick = job(world, 0.5, after_steps, regular)
    world.run(300.0)
    assert slow.busy_s / 300.0 == pytest.approx(0.5, abs=POINTS)
    assert quick.busy_s / 300.0 == pytest.approx(0.5, abs=POINTS)


@pytest.mark.parametrize(("idle_s", "share", "gets"), [(0.05, 0.5, 1 / 6), (0.01, 0.25, 0.25)])
@pytest.mark.usefixtures("events", "turns")
def test_a_job_that_idles_of_itself_is_slowed_no_further_than_to_its_share(
    world: World, idle_s: float, share: float, gets: float
) -> None:
    def loads(process: Process, pace: Pacer, step_s: Callable[[], float]) -> None:
        while True:
            process.sleep(idle_s)
            with pace:
                process.step(step_s())

    one = job(world, share, loads, regular)
    world.run(20.0)
    assert one.busy_s / 20.0 == pytest.approx(gets, abs=0.01)


@LOOPS
@pytest.mark.usefixtures("events", "turns")
def test_another_share_is_followed_at_once(world: World, loop: Loop) -> None:
    shares: list[float | None] = [0.25]
    one = world.start(
        lambda process: loop(
            process,
            paced(process, lambda: Allotment(gpu_share=shares[-1], gpus=(GPU,))),
            lambda: 0.01,
        )
    )
    before_s = until_s = 0.0
    for share in (0.25, 0.75, 0.1, None, 0.5):
        shares.append(share)
        until_s += 20.0
        world.run(until_s)
        assert (one.busy_s - before_s) / 20.0 == pytest.approx(share or 0.98, abs=POINTS)
        before_s = one.busy_s


@pytest.mark.parametrize("word", ["stop_soon", "checkpoint_wanted"])
@pytest.mark.usefixtures("events", "turns")
def test_a_job_that_is_asked_for_something_does_not_rest_on(world: World, word: str) -> None:
    told = [Allotment(gpu_share=0.05, gpus=(GPU,))]
    one = world.start(lambda process: waits(process, paced(process, lambda: told[-1]), lambda: 2.0))
    world.run(10.0)
    assert one.steps == 2, "it rests: pacing begins with the first call, after a step"
    told.append(told[0]._replace(**{word: True}))
    world.run(10.0 + POLL_S + 0.01)
    assert one.steps > 2
    world.run(30.0)
    assert one.busy_s == pytest.approx(24.0, abs=1.0), "and it is not held up until it has answered"
    told.append(told[0])
    world.run(40.0)
    before_s = one.busy_s
    world.run(80.0)
    assert one.busy_s - before_s <= 6.0


@pytest.mark.usefixtures("events", "turns")
@pytest.mark.parametrize(
    ("share", "steps", "until_s", "least"),
    [
        pytest.param(0.5, regular, 30.0, 20, id="short steps"),
        pytest.param(0.1, long, 200.0, 4, id="long steps, with their rests"),
    ],
)
def test_the_used_share_is_reported_at_most_once_a_second(
    world: World, share: float, steps: Steps, until_s: float, least: int
) -> None:
    told: list[tuple[float, float]] = []
    writer = SimpleNamespace(paced=lambda ratio: told.append((world.now_s, ratio)))
    job(world, share, after_steps, steps, writer=lambda: writer)
    world.run(until_s)
    assert least <= len(told) <= 30
    assert all(ratio == pytest.approx(share, abs=0.1 * share) for _, ratio in told[3:])
    assert all(later[0] - sooner[0] >= 1.0 for sooner, later in pairwise(told))


@pytest.mark.parametrize("share", [None, 1.0, 0.0, -1.0, 7.0])
@pytest.mark.usefixtures("events", "turns")
def test_a_gpu_of_its_own_is_not_touched(world: World, share: float | None) -> None:
    one = job(world, share, waits, regular)
    world.run(10.0)
    assert one.steps == pytest.approx(10.0 / 0.0102, abs=1)


@pytest.mark.usefixtures("events", "turns")
def test_ranks_of_a_distributed_job_are_not_paced(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    one = job(world, 0.25, waits, regular)
    world.run(10.0)
    assert one.busy_s > 9.0


def test_a_graph_that_is_being_recorded_is_left_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = torch(world)
    module.cuda.is_current_stream_capturing = lambda: True
    module.cuda.Event = lambda **_: pytest.fail("an event in a graph")
    monkeypatch.setitem(sys.modules, "torch", module)
    one = job(world, 0.25, around_steps, regular)
    other = job(world, 0.25, waits, regular)
    world.run(1.0)
    assert one.busy_s + other.busy_s > 0.9


def test_a_device_that_fails_is_the_jobs_to_notice(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(**_: object) -> object:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    module = torch(world)
    module.cuda.Event = failing
    monkeypatch.setitem(sys.modules, "torch", module)
    jobs = [job(world, 0.25, loop, regular) for loop in (after_steps, around_steps)]
    world.run(1.0)
    assert all(each.steps > 1 for each in jobs)


# ------------------------------------------------------------------ one process, real threads


def still(share: float | None) -> tuple[Pacer, list[float]]:
    """A pacer whose clock only its rests move."""
    now_s = [0.0]

    class Rest:
        def __enter__(self) -> Rest:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def sleep(self, seconds: float) -> bool:
            now_s[0] += seconds
            return False

    allotment = Allotment(gpu_share=share)
    return Pacer(lambda: now_s[0], Rest, lambda: None, lambda: allotment), now_s


def test_the_allotment_of_a_job_that_is_not_paced_is_seldom_looked_at() -> None:
    looks: list[int] = []
    pacer = Pacer(lambda: 0.0, granted=lambda: looks.append(1))  # type: ignore[func-returns-value]
    for _ in range(100):
        pacer()
        with pacer:
            pass
    assert len(looks) == 1


def in_threads(work: Callable[[], None], count: int) -> None:
    """Until all have ended, or it is plain that they wait for ever."""
    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
        assert not each.is_alive()


@pytest.mark.parametrize("step_s", [0.0, 1.0], ids=["short", "until the allotment is polled"])
def test_threads_of_an_unpaced_job_do_not_wait_for_each_other(step_s: float) -> None:
    pacer, now_s = still(None)
    met = threading.Barrier(2, timeout=30)

    def meet() -> None:
        with pacer:
            now_s[0] += step_s
            met.wait()

    pacer()
    in_threads(meet, 2)
    assert not met.broken


def test_threads_of_a_paced_job_use_the_device_one_after_the_other() -> None:
    pacer, now_s = still(0.5)
    within: list[int] = []

    def compute() -> None:
        for _ in range(50):
            with pacer, pacer:
                within.append(1)
                assert len(within) == 1
                now_s[0] += 0.1
                within.pop()

    in_threads(compute, 3)
    assert now_s[0] == pytest.approx(150 * 0.1 / 0.5, rel=0.05)


def test_who_waits_for_a_paced_thread_while_it_computes_is_not_waited_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dlsched.report.pacing.PATIENCE_S", 0.01)
    pacer, _ = still(0.5)
    done: list[str] = []

    def work() -> None:
        with pacer:
            done.append("around")
        pacer()
        done.append("after")

    with pacer:
        in_threads(work, 2)
    assert sorted(done) == ["after", "after", "around", "around"]
    with pacer:
        assert pacer._meter is not None


def test_what_the_body_raises_is_raised_and_counted() -> None:
    pacer, now_s = still(0.5)
    for _ in range(10):
        with pytest.raises(ZeroDivisionError), pacer:
            now_s[0] += 1.0
            raise ZeroDivisionError
    assert now_s[0] == pytest.approx(19.0, abs=0.2)


def test_a_rest_that_a_handler_ends_by_raising_leaves_the_pacer_usable() -> None:
    pacer, now_s = still(0.5)
    with pacer:
        now_s[0] += 1.0
    rest = pacer._rest

    def interrupted() -> Any:
        raise KeyboardInterrupt

    pacer._rest = interrupted
    with pytest.raises(KeyboardInterrupt), pacer:
        pytest.fail("there was no rest")
    pacer._rest = rest
    done = threading.Thread(target=lambda: pacer.__enter__() and pacer.__exit__())
    done.start()
    done.join(30)
    assert not done.is_alive()


def test_a_frameworks_step_that_never_ended_ends_with_the_next() -> None:
    pacer, now_s = still(0.5)
    section = Section(pacer)
    section.end()
    for _ in range(10):
        section.begin()
        now_s[0] += 1.0
    section.end()
    section.end()
    assert now_s[0] == pytest.approx(19.0, abs=0.2)


@pytest.mark.process
def test_a_forked_child_is_paced_for_itself() -> None:
    pacer, now_s = still(0.5)
    with pacer:
        now_s[0] += 1.0
        child = os.fork()
        if child == 0:
            pacer.after_fork()
            begun_s = now_s[0]
            pacer()
            os._exit(now_s[0] != begun_s)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.process
def test_the_jobs_own_pace_rests_in_real_time_and_is_woken(tmp_path: Path) -> None:
    (tmp_path / "allotment.json").write_text('{"gpu_share": 0.05, "gpus": ["GPU-1"]}')
    (tmp_path / turn_file(GPU)).touch()
    run_job(
        """
import os, signal, threading, time
from dlsched.report import pace
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
pace()
time.sleep(1.5)
over = threading.Event()
def ask():
    while not over.wait(0.1):  # the first may come before it rests
        os.kill(os.getpid(), signal.SIGTERM)
threading.Thread(target=ask).start()
began = time.monotonic()
pace()                      # 1.5 s at a twentieth: half a minute, but for the signal
took = time.monotonic() - began
with pace:
    pass
over.set()
assert asked and took < 25, took
""",
        None,
        DLSCHED_ALLOTMENT_FILE=str(tmp_path / "allotment.json"),
    )


SHARES = st.floats(0.05, 0.95)


@given(SHARES, st.lists(st.floats(0.0, 5.0), min_size=1, max_size=50))
def test_resting_when_told_makes_every_stretch_cost_its_share(
    share: float, steps: list[float]
) -> None:
    budget, passed_s = Budget(), 0.0
    for step_s in steps:
        budget.spend(step_s, share)
        budget.gain(step_s, share, waited=True)
        rest_s = budget.rest_s(0.0, share)
        budget.gain(rest_s, share, waited=False)
        passed_s += step_s + rest_s
        assert budget.left_s == pytest.approx(0.0, abs=1e-9)
    assert sum(steps) == pytest.approx(share * passed_s, abs=1e-6)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_idle_time_is_made_up_for_within_a_window_and_no_more(share: float) -> None:
    budget = Budget()
    budget.gain(3600.0, share, waited=False)
    # With time passing at the same time, it is busy until as much is used as the window gives.
    assert budget.left_s / (1.0 - share) == pytest.approx(share * IDLE_S)


def test_time_waited_for_the_device_is_made_up_for_longer_and_is_not_lost_by_idling() -> None:
    budget = Budget()
    budget.gain(10.0, 0.5, waited=True)
    assert budget.left_s == 5.0
    budget.gain(10.0, 0.5, waited=False)
    assert budget.left_s == 5.0
    budget.gain(3600.0, 0.5, waited=True)
    assert budget.left_s == 0.25 * WAITED_S


def test_one_wrong_reading_does_not_put_a_job_to_sleep_for_hours() -> None:
    budget = Budget()
    budget.spend(1e9, 0.05)
    assert budget.rest_s(0.0, 0.05) == pytest.approx(LONGEST_S)
    budget.gain(-5.0, 0.05, waited=False)
    budget.spend(-5.0, 0.05)
    assert budget.rest_s(0.0, 0.05) == pytest.approx(LONGEST_S), "a clock that goes back"
