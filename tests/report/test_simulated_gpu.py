"""The simulated device keeps books as a GPU in time slices would."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.report.simulated_gpu import MOST_AHEAD, SLICE_S, Event, Process, World

pytestmark = pytest.mark.timed


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.end()


def test_two_that_compute_at_once_have_a_slice_each_in_turn(world: World) -> None:
    took_s: list[float] = []

    def compute(process: Process) -> None:
        process.step(0.01, host_s=0.0)
        process.finish()
        took_s.append(process.clock())

    jobs = [world.start(compute) for _ in range(2)]
    world.run(0.011)
    assert [round(each.busy_s, 6) for each in jobs] == [0.006, 0.005]
    world.run(1.0)
    assert took_s == [pytest.approx(0.02 - SLICE_S), pytest.approx(0.02)]
    assert [each.busy_s for each in jobs] == [pytest.approx(0.01)] * 2


def test_events_tell_how_long_a_step_took_and_not_how_much_of_it_was_its_own(world: World) -> None:
    took_ms: list[float] = []

    def timed(process: Process) -> None:
        begin, end = Event(process), Event(process)
        begin.record()
        process.step(0.01, host_s=0.0)
        end.record()
        assert not end.query()
        end.synchronize()
        took_ms.append(begin.elapsed_time(end))

    for _ in range(2):
        world.start(timed)
    world.run(1.0)
    assert max(took_ms) == pytest.approx(20.0)


def test_a_job_runs_ahead_of_the_device_until_the_queue_is_full(world: World) -> None:
    def launch(process: Process) -> None:
        while True:
            process.step(1.0)

    one = world.start(launch)
    world.run(0.5)
    assert one.steps == MOST_AHEAD + 1
    world.run(10.5)
    assert one.busy_s == pytest.approx(10.5, abs=0.001)


def test_what_a_process_raises_is_raised(world: World) -> None:
    def fail(process: Process) -> None:
        process.sleep(1.0)
        raise ZeroDivisionError

    world.start(fail)
    world.run(0.5)
    with pytest.raises(ZeroDivisionError):
        world.run(2.0)
