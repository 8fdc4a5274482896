"""Whether more CPU makes a job faster: what is believed, what is tried, what is forgiven."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest

from dlsched.estimate.response import (
    AGAIN_S,
    FIRST_S,
    STEP_DOWN,
    STEP_UP,
    TRIAL_S,
    Phase,
    Response,
    followed,
    measured,
)
from dlsched.estimate.sketch import from_latencies
from dlsched.estimate.tuning import LITTLE
from dlsched.model.facts import Sample
from dlsched.model.spec import AccuracyTarget, Limits
from dlsched.model.state import JobView, NodeView, Progress, Snapshot
from tests.doubles import view

NODE = NodeView(8.0, 8.0, 2**33)
PACE_S = 0.1


def at(now_s: float) -> Snapshot:
    return Snapshot(1, now_s, NODE)


def serving(
    cores: float | None,
    pace_s: float = PACE_S,
    *,
    changed_s: float = 0.0,
    count: int = 100,
    spread: float = 0.02,
    share: float | None = None,
    floor: float = 0.1,
) -> JobView:
    """A job that answered so many requests in about that long, since its limits changed."""
    job = view("a", actual=cores, floor=floor)
    drawn = [pace_s * (1 + spread * (-1) ** index) for index in range(count)]
    return replace(
        job,
        actual=Limits(cores, share),
        gpus=("GPU-1",),
        progress=Progress(window=from_latencies(drawn)),
        started_at_s=0.0,
        changed_at_s=changed_s,
    )


def stepping(cores: float, steps_per_s: float, *, changed_s: float, now_s: float) -> JobView:
    """A training that reported a step count each second since its limits changed."""
    job = serving(cores, count=0, changed_s=changed_s)
    told = range(int(now_s - changed_s) + 1)
    samples = [Sample(changed_s + i, round(i * steps_per_s * 100), ()) for i in told]
    return replace(
        job,
        spec=replace(job.spec, target=AccuracyTarget("accuracy", 0.8, 0.9)),
        progress=Progress(samples=tuple(samples)),
    )


# ------------------------------------------------------------------ the measure


def test_speed_is_what_was_measured_wholly_under_the_limit() -> None:
    level = measured(serving(0.5), at(20.0))
    assert level.speed_per_s == pytest.approx(1 / PACE_S, rel=0.001)
    assert (level.cores, level.requests, level.load_per_s) == (0.5, 100, 5.0)
    steps = measured(stepping(0.5, 2.0, changed_s=10.0, now_s=20.0), at(20.0))
    assert steps.speed_per_s == pytest.approx(200.0)
    assert steps.requests == 0


@pytest.mark.parametrize(
    "job",
    [
        serving(None),
        serving(0.5, count=7),
        serving(0.5, changed_s=19.0),
        serving(0.5, count=20, spread=0.9),
        stepping(0.5, 2.0, changed_s=17.0, now_s=20.0),
    ],
    ids=["no limit", "few requests", "just changed", "noise", "few steps"],
)
def test_what_is_not_known_well_enough_is_not_known(job: JobView) -> None:
    assert measured(job, at(20.0)) is None


def test_a_step_that_goes_back_begins_anew() -> None:
    job = stepping(0.5, 2.0, changed_s=0.0, now_s=20.0)
    resumed = [replace(one, received_s=one.received_s + 21.0) for one in job.progress.samples]
    both = replace(job, progress=Progress(samples=(*job.progress.samples, *resumed)))
    level = measured(both, at(42.0))
    assert level.speed_per_s == pytest.approx(200.0)


# ------------------------------------------------------------------ what is believed


def follow(
    jobs: list[tuple[float, JobView]], known: Response | None = None, *, contended: bool = False
) -> Response:
    for now_s, job in jobs:
        known = followed(known, job, at(now_s), contended=contended)
    return known


def test_two_flat_changes_in_a_row_hold_it_and_say_so() -> None:
    once = follow([(10, serving(0.5)), (20, serving(0.8, changed_s=11))])
    assert once.phase is Phase.WATCHED
    assert once.ceiling_cores is None
    twice = follow([(30, serving(1.0, 0.101, changed_s=21))], once)
    assert twice.phase is Phase.HELD
    assert twice.ceiling_cores == pytest.approx(0.5 * (1.0 + LITTLE))
    assert twice.reason == (
        "at most 0.525 cores: with more than 0.50 cores the job was not faster "
        "(0.50 -> 1.00 cores: 100 ms -> 101 ms)"
    )


def test_one_window_looked_at_twice_counts_once() -> None:
    more = serving(0.8, changed_s=11)
    assert follow([(10, serving(0.5)), (20, more), (21, more), (22, more)]).flat == 1


def test_a_job_that_answers_is_never_held() -> None:
    known = follow([(10, serving(0.5))])
    for index, cores in enumerate((0.8, 1.0, 1.6, 3.0)):
        changed_s = 20.0 * (index + 1)
        job = serving(cores, PACE_S * 0.5 / cores, changed_s=changed_s)
        known = follow([(changed_s + 10, job)], known)
        assert (known.phase, known.flat) == (Phase.WATCHED, 0)


def test_changes_of_less_than_a_tenth_say_nothing() -> None:
    known = follow([(10, serving(0.5)), (20, serving(0.54, changed_s=11))])
    assert known.flat == 0
    assert known.least.cores == 0.5


def test_noise_is_not_taken_for_an_answer_nor_for_none() -> None:
    first = serving(0.5, count=30, spread=0.25)
    later = serving(0.6, PACE_S * 0.98, changed_s=11, count=30, spread=0.25)
    known = follow([(10, first), (20, later)])
    assert (known.flat, known.phase, known.least.cores) == (0, Phase.WATCHED, 0.5)


def test_many_flat_steps_may_not_add_up_to_a_slow_job() -> None:
    """Each step down costs 4 %, which alone is flat: two would hold it."""
    known = follow([(10, serving(2.0))])
    cores, pace_s = 2.0, PACE_S
    for index in range(8):
        cores, pace_s = cores / STEP_DOWN, pace_s * 1.04
        changed_s = 20.0 * (index + 1)
        known = follow([(changed_s + 10, serving(cores, pace_s, changed_s=changed_s))], known)
        assert known.ceiling_cores is None


# ------------------------------------------------------------------ trials


@dataclass
class Job:
    """A job whose speed answers up to a number of cores, under the ceiling that is found for it."""

    useful_cores: float
    wanted: float = 2.0
    cores: float = 2.0
    changed_s: float = 0.0
    least_cores: float = 2.0
    load_per_s: float = 10.0
    pace_s: float = PACE_S
    known: Response | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    def run(self, begin_s: int, end_s: int, *, contended: bool = True) -> None:
        for now_s in range(begin_s, end_s):
            passed_s = min(30.0, now_s - self.changed_s)
            pace_s = self.pace_s * max(1.0, self.useful_cores / self.cores)
            count = int(passed_s * self.load_per_s)
            drawn = [pace_s * self.chance.gauss(1.0, 0.1) for _ in range(count)]
            job = replace(
                serving(self.cores, changed_s=self.changed_s),
                progress=Progress(window=from_latencies(max(0.001, one) for one in drawn)),
            )
            self.known = followed(self.known, job, at(float(now_s)), contended=contended)
            most = self.known.ceiling_cores if self.known else None
            cores = self.wanted if most is None else max(0.1, min(self.wanted, most))
            if abs(cores - self.cores) > 0.01:
                self.cores, self.changed_s = cores, float(now_s)
            self.least_cores = min(self.least_cores, self.cores)

    @property
    def phase(self) -> Phase | None:
        return self.known.phase if self.known else None


@pytest.mark.parametrize("seed", range(8))
def test_fewer_and_fewer_are_tried_until_it_answers(seed: int) -> None:
    job = Job(useful_cores=0.5, seed=seed)
    job.run(0, int(FIRST_S) + 120)
    assert job.phase is Phase.HELD
    assert 0.5 * 0.95 <= job.cores <= 0.5 * STEP_DOWN * (1.0 + LITTLE) * 1.05


@pytest.mark.parametrize("seed", range(8))
def test_a_job_that_needs_what_it_has_is_tried_once_and_let_be(seed: int) -> None:
    job = Job(useful_cores=4.0, seed=seed)
    job.run(0, int(FIRST_S + AGAIN_S) - 30)
    assert job.phase is Phase.WATCHED
    assert job.cores == 2.0
    assert job.least_cores == pytest.approx(2.0 / STEP_DOWN)


def test_alone_on_the_node_nothing_is_tried() -> None:
    job = Job(useful_cores=0.5)
    job.run(0, 600, contended=False)
    assert job.least_cores == 2.0


def test_it_is_tried_no_lower_than_its_floor() -> None:
    job = Job(useful_cores=0.01)
    job.run(0, 300)
    assert job.phase is Phase.HELD
    assert job.least_cores >= 0.1
    assert job.known.least.cores / STEP_DOWN < 0.1


@pytest.mark.long
def test_more_is_tried_now_and_then_and_forgiven_when_it_answers() -> None:
    job = Job(useful_cores=0.5)
    job.run(0, 150)
    assert job.phase is Phase.HELD
    held = job.cores
    job.useful_cores = 1.5  # slower all at once: lifted at once, not after the interval
    job.run(150, 200)
    assert job.cores > 2 * held
    job.useful_cores = 0.5
    job.run(200, 900)
    assert job.phase is Phase.HELD
    began_s = 900
    job.run(began_s, began_s + int(2 * (AGAIN_S + TRIAL_S)))
    assert job.phase is not Phase.WATCHED
    assert job.cores < 0.5 * STEP_DOWN * STEP_UP * 1.1


def test_a_trial_of_more_that_shows_speed_lifts_the_ceiling() -> None:
    held = Response(
        "a",
        "id-a",
        measured(serving(0.5), at(20.0)),
        flat=2,
        phase=Phase.MORE,
        until_s=100.0,
        judged_s=0.0,
    )
    more = serving(0.75, PACE_S / 1.4, changed_s=50.0)
    known = followed(held, more, at(60.0), contended=True)
    assert (known.phase, known.ceiling_cores, known.flat) == (Phase.WATCHED, None, 0)


def test_a_trial_that_shows_nothing_ends() -> None:
    known = follow([(10, serving(2.0))], contended=True)
    known = follow([(10 + FIRST_S, serving(2.0))], known, contended=True)
    assert known.phase is Phase.FEWER
    assert known.ceiling_cores == pytest.approx(2.0 / STEP_DOWN)
    assert known.reason == (
        "a trial: the job gets at most 1.538 cores for a moment, to measure whether it becomes "
        "slower"
    )
    silent = serving(1.54, count=0, changed_s=50.0)
    still = follow([(10 + FIRST_S + TRIAL_S - 1, silent)], known, contended=True)
    assert still.phase is Phase.FEWER
    over = follow([(10 + FIRST_S + TRIAL_S, silent)], known, contended=True)
    assert over.phase is Phase.WATCHED


# ------------------------------------------------------------------ what is forgiven


def held(share: float | None = None) -> Response:
    return follow(
        [
            (10, serving(0.5, share=share)),
            (20, serving(0.8, changed_s=11, share=share)),
            (30, serving(1.0, changed_s=21, share=share)),
            (50, serving(0.525, changed_s=31, share=share)),
        ]
    )


def test_a_low_load_does_not_starve_a_job_that_is_asked_more_of() -> None:
    quiet = held()
    assert quiet.phase is Phase.HELD
    busy = serving(0.525, changed_s=31, count=600)
    assert follow([(61, busy)], quiet).ceiling_cores is None


def test_as_many_requests_by_chance_are_no_other_load() -> None:
    known = held()
    assert follow([(61, serving(0.525, changed_s=31, count=190))], known).phase is Phase.HELD


def test_a_held_job_that_gets_slower_is_let_go_at_once() -> None:
    slow = serving(0.525, PACE_S * 1.15, changed_s=31)
    assert follow([(61, slow)], held()).ceiling_cores is None


def test_more_of_the_gpu_may_need_more_cpu() -> None:
    known = held(share=0.5)
    assert known.phase is Phase.HELD
    more = serving(0.525, PACE_S * 0.7, changed_s=51, share=0.7)
    assert follow([(61, more)], known).ceiling_cores is None


def test_less_of_the_gpu_needs_no_more_cpu() -> None:
    less = serving(0.525, PACE_S * 2, changed_s=51, share=0.25)
    known = follow([(61, less)], held(share=0.5))
    assert known.phase is Phase.HELD
    assert known.share == 0.25
    assert known.least.speed_per_s == pytest.approx(1 / (2 * PACE_S), rel=0.001)
    assert follow([(65, less)], known).phase is Phase.HELD


def test_a_share_that_changed_says_nothing_of_cores() -> None:
    known = follow([(10, serving(0.5, share=0.4)), (20, serving(0.8, changed_s=11, share=0.6))])
    assert (known.flat, known.least.cores) == (0, 0.8)


def test_another_container_is_another_job() -> None:
    other = replace(serving(0.525, changed_s=51), container_id="id-b")
    known = follow([(61, other)], held())
    assert (known.container_id, known.phase) == ("id-b", Phase.WATCHED)
