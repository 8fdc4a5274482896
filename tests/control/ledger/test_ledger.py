"""Windows and rates: what counts as measured under the present limits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.control.ledger.desired import Desired
from dlsched.control.ledger.ledger import Ledger
from dlsched.control.ledger.ledger_options import LedgerOptions
from dlsched.control.ledger.updated import State
from dlsched.model.actions import Outcome, Resize
from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.decision import Answer
from dlsched.model.facts import (
    ContainerFact,
    ContainerState,
    GpuProcess,
    NodeFact,
    Observation,
    Report,
    Sample,
)
from dlsched.model.spec import AccuracyTarget, Bounds, ContainerSpec, JobSpec, LatencyTarget, Limits
from dlsched.model.state import (
    NAMES_KEPT,
    Diverged,
    Idle,
    JobState,
    JobView,
    Lacks,
    Reached,
    Snapshot,
    Tiers,
)
from tests.doubles import FakeRuntime, gpu_fact, job_spec, running, sketch, texts

SPEC = job_spec("a")
WISH = Desired(specs={"a": SPEC})


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(LedgerOptions())


def update(ledger: Ledger, now_s: float, **fact: object) -> Snapshot:
    seen = Observation(
        now_s=now_s,
        engine_ok=True,
        containers=(running("a", **fact),),
        node=NodeFact(4.0, 2**33),
    )
    return ledger.update(seen, WISH, {}).snapshot


def test_a_quota_that_appears_changes_the_capacity_and_wakes_the_policy(ledger: Ledger):
    update(ledger, 10.0)
    ledger.decided({})
    why = "quota of 1 core of control group /slice"
    node = NodeFact(4.0, 2**33, jobs_cores=1.0, bound_by=why)
    seen = Observation(11.0, engine_ok=True, containers=(running("a"),), node=node)
    state = ledger.update(seen, WISH, {})
    assert state.snapshot.node.capacity_cores == 1.0
    assert state.snapshot.wakes == ("capacity: 4 cores -> 1 core",)
    assert state.snapshot.node.bound_by == why


def line(received_s: float, *latencies_s: float, **more: object) -> Report:
    return Report(received_s=received_s, latency=sketch(*latencies_s), **more)  # type: ignore[arg-type]


def resized(ledger: Ledger, now_s: float, cores: float) -> None:
    action = Resize("a", "id-a", Limits(), Limits(cores), 1024, "")
    ledger.applied([Outcome(action, "done")], Answer(), now_s)


def test_a_line_whose_requests_began_before_the_change_does_not_count(ledger: Ledger):
    update(ledger, 10.0)
    resized(ledger, 20.0, 0.5)
    early = line(20.9, 0.1)
    late = line(21.2, 0.1, 0.1)
    slow = line(21.3, 0.9)
    job = update(ledger, 21.5, actual=Limits(0.5), reports=(early, late, slow)).jobs[0]
    assert job.progress.window.count == 2
    assert job.progress.fresh.count == 4


def test_a_line_of_a_rare_reporter_tells_of_all_the_time_since_the_last(ledger: Ledger):
    for now_s in (10.0, 20.0, 30.0):
        update(ledger, now_s, reports=(line(now_s, 0.1),))
    resized(ledger, 35.0, 0.5)
    early = update(ledger, 40.0, actual=Limits(0.5), reports=(line(40.0, 0.1),)).jobs[0]
    assert early.progress.every_s == 10.0
    assert early.progress.window.count == 0
    late = update(ledger, 50.0, actual=Limits(0.5), reports=(line(50.0, 0.1),)).jobs[0]
    assert late.progress.window.count == 1


def test_a_silence_or_a_burst_of_lines_is_not_the_usual_gap(ledger: Ledger):
    times = (1.0, 2.0, 3.0, 4.0, 60.0, 61.0, 61.1, 62.0)
    told = [update(ledger, at_s, reports=(line(at_s, 0.1),)).jobs[0].progress for at_s in times]
    assert [one.every_s for one in told] == [1.0] * len(times)


def test_lines_without_requests_are_no_reports_of_requests(ledger: Ledger):
    update(ledger, 10.0, reports=(line(10.0, 0.1),))
    for now_s in range(11, 20):
        update(ledger, float(now_s), reports=(Report(float(now_s), in_flight=1, oldest_s=1.0),))
    assert update(ledger, 20.0, reports=(line(20.0, 0.1),)).jobs[0].progress.every_s == 10.0


@pytest.mark.parametrize(("every_s", "vouches"), [(1.0, False), (10.0, True)])
def test_a_writer_vouches_for_its_requests_until_it_is_late(
    ledger: Ledger, every_s: float, vouches: bool
):
    for look in range(4):
        now_s = 100.0 + look * every_s
        told = (line(now_s, 0.1, in_flight=2, oldest_s=0.1),)
        update(ledger, now_s, reports=told)
    job = update(ledger, now_s + 15.0, reports=(Report(now_s + 15.0, writer="other"),)).jobs[0]
    assert (job.progress.in_flight == 2) is vouches


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"target": LatencyTarget(0.2)}, "target"),
        ({"bounds": Bounds(0.2, 0.9)}, "bounds"),
        ({"weight": 3.0}, "weight"),
    ],
)
def test_what_a_changed_file_asks_for_wakes_the_policy(ledger: Ledger, change, word):
    update(ledger, 10.0)
    ledger.decided({})
    seen = Observation(11.0, engine_ok=True, containers=(running("a"),), node=NodeFact(4.0, 2**33))
    wish = Desired(specs={"a": job_spec("a", **change)})
    assert ledger.update(seen, wish, {}).snapshot.wakes == (f"a: its {word} changed",)


@pytest.mark.parametrize(
    ("told", "wanted", "there", "allowed"),
    [
        (False, True, False, True),
        (True, True, True, True),
        (None, True, False, False),  # it cannot be put there
        (False, False, False, False),  # the operator wants nobody there
        (True, False, True, False),  # nor anybody left there
    ],
)
def test_whether_it_may_be_put_into_the_idle_class(told, wanted, there, allowed):
    ledger = Ledger(LedgerOptions(idle_class=wanted))
    job = update(ledger, 10.0, cpu_idle=told).jobs[0]
    assert (job.cpu_idle, job.can_idle) == (there, allowed)


def test_a_setting_holds_for_a_job_at_rest_too():
    ledger = Ledger(LedgerOptions(idle_class=True))
    for now_s in (10.0, 100.0, 101.0):
        assert update(ledger, now_s, cpu_idle=True).jobs[0].can_idle
    ledger.adopt(LedgerOptions(idle_class=False))
    assert not update(ledger, 102.0, cpu_idle=True).jobs[0].can_idle


def test_a_change_that_somebody_else_made_is_noticed(ledger: Ledger):
    update(ledger, 10.0, actual=Limits(1.0))
    update(ledger, 20.0, actual=Limits(1.0), reports=(line(20.0, 0.1),))
    job = update(ledger, 21.0, actual=Limits(0.4)).jobs[0]
    assert job.changed_at_s == 21.0
    assert job.progress.window.count == 0


def test_the_windows_reach_back_only_so_far():
    ledger = Ledger(LedgerOptions(window_s=30.0))
    update(ledger, 10.0)
    update(ledger, 20.0, reports=(line(20.0, 0.1),))
    job = update(ledger, 51.0, reports=(line(51.0, 0.2),)).jobs[0]
    assert job.progress.recent.count == 1
    assert job.progress.window.mean_s == pytest.approx(0.2)


def test_usage_is_also_told_over_the_window_since_the_change(ledger: Ledger):
    update(ledger, 10.0, usage_core_s=0.0)
    update(ledger, 20.0, usage_core_s=10.0)
    resized(ledger, 20.0, 0.5)
    update(ledger, 22.0, usage_core_s=11.0, actual=Limits(0.5))
    job = update(ledger, 24.0, usage_core_s=12.0, actual=Limits(0.5)).jobs[0]
    assert job.usage.window_cores == pytest.approx(0.5)


def test_unread_is_not_zero(ledger: Ledger):
    update(ledger, 10.0)
    job = update(ledger, 11.0).jobs[0]
    assert job.usage.cpu_cores is None
    assert job.usage.memory_bytes is None


def test_a_hung_service_grows_old_between_its_lines(ledger: Ledger):
    hung = Report(received_s=10.0, latency=sketch(), in_flight=2, oldest_s=1.5, writer="w")
    update(ledger, 10.0, reports=(hung,))
    job = update(ledger, 13.0).jobs[0]
    assert job.progress.in_flight == 2
    assert job.progress.oldest_s == pytest.approx(4.5)


def test_training_samples_are_kept_in_order_and_bounded(ledger: Ledger):
    reports = tuple(
        Report(10.0, sample=Sample(10.0, step, (("loss", 1.0),))) for step in range(300)
    )
    samples = update(ledger, 10.0, reports=reports).jobs[0].progress.samples
    assert [sample.step for sample in samples] == list(range(44, 300))


def test_foreign_load_is_what_is_not_ours(ledger: Ledger):

    def seen(now_s: float, host: float, ours: float) -> Observation:
        return Observation(
            now_s=now_s,
            engine_ok=True,
            containers=(running("a", usage_core_s=ours),),
            host_busy_core_s=host,
            node=NodeFact(4.0, 2**33),
        )

    ledger.update(seen(10.0, 100.0, 20.0), WISH, {})
    node = ledger.update(seen(12.0, 103.0, 21.0), WISH, {}).snapshot.node
    assert node.foreign_cores == pytest.approx(1.0)


def test_the_reserve_is_not_divided():
    ledger = Ledger(
        LedgerOptions(capacity_cores=3.0, reserve_cores=0.5, reserve_memory_bytes=2**30)
    )
    node = update(ledger, 10.0).node
    assert node.capacity_cores == pytest.approx(2.5)
    assert node.memory_bytes == 7 * 2**30


def test_jobs_are_sorted_by_name(ledger: Ledger):
    runtime = FakeRuntime()
    for name in ("zeta", "alpha", "mid"):
        runtime.containers[name] = running(name)
    wish = Desired(specs={name: job_spec(name) for name in ("mid", "zeta", "alpha")})
    state = ledger.update(runtime.observe(1.0), wish, {})
    assert [job.name for job in state.snapshot.jobs] == ["alpha", "mid", "zeta"]


def test_a_second_container_of_a_job_is_left_alone_and_takes_no_place(ledger: Ledger):
    update(ledger, 1.0)
    copy = replace(running("a"), container_id="id-Z")  # before `id-a` in order
    seen = Observation(2.0, engine_ok=True, containers=(copy, running("a")), node=NodeFact(4.0, 1))
    state = ledger.update(seen, WISH, {})
    assert state.removals == ()
    assert state.snapshot.jobs[0].container_id == "id-a"
    assert texts(state.alarms) == (
        (
            "a: another container, id-Z, has the labels of this job's container, and is left "
            "alone: remove it, or run it without dlsched's labels"
        ),
    )


def test_ten_thousand_writers_are_not_all_remembered(ledger: Ledger):
    update(ledger, 10.0)
    claims = tuple(
        Report(received_s=11.0, writer=str(n), in_flight=1, oldest_s=1.0) for n in range(10_000)
    )
    progress = update(ledger, 11.0, reports=claims).jobs[0].progress
    assert progress.in_flight == 1024
    assert update(ledger, 30.0).jobs[0].progress.in_flight == 0


# ---------------------------------------------------------------------- tiers


def trained(value: float, received_s: float = 20.0, **more: object) -> Report:
    return Report(received_s, sample=Sample(received_s, None, (("accuracy", value),)), **more)  # type: ignore[arg-type]


AIMED = job_spec("a", target=AccuracyTarget("accuracy", 0.9, 0.97))


def climbs(ledger: Ledger, now_s: float, *values: float, **fact: object):
    reports = tuple(trained(value, now_s) for value in values)
    seen = Observation(now_s, True, containers=(running("a", reports=reports, **fact),))
    return ledger.update(seen, Desired(specs={"a": AIMED}), {})


def test_a_tier_is_seen_whatever_the_policy_and_however_many_reports_come(ledger: Ledger):
    assert climbs(ledger, 10.0, 0.95, 0.95).delivered == ()
    state = climbs(ledger, 11.0, 0.95, *(0.1,) * 1000)
    (word,) = state.delivered
    assert word.tiers == Tiers(Reached(11.0, 0.95))
    (job,) = climbs(ledger, 12.0).snapshot.jobs
    assert job.tiers == word.tiers
    assert all(dict(sample.metrics)["accuracy"] == 0.1 for sample in job.progress.samples)


def test_how_many_evaluations_a_tier_takes_is_a_setting():
    ledger = Ledger(LedgerOptions(tier_evaluations=1))
    assert len(climbs(ledger, 10.0, 0.95).delivered) == 1
    ledger = Ledger(LedgerOptions(tier_evaluations=2))
    assert climbs(ledger, 10.0, 0.95).delivered == ()
    ledger.adopt(LedgerOptions(tier_evaluations=4))
    assert climbs(ledger, 11.0, 0.95, 0.95).delivered == ()
    assert len(climbs(ledger, 12.0, 0.95).delivered) == 1


def test_a_removed_jobs_word_is_given_up_once_its_container_is_gone_and_not_before():
    (word,) = climbs(Ledger(LedgerOptions()), 10.0, 0.95, 0.95, 0.95).delivered
    ledger = Ledger(LedgerOptions(), delivered={"a": word})
    there = Observation(20.0, True, containers=(running("a"),))
    assert ledger.update(there, Desired(settled=False), {}).undelivered == ()
    assert ledger.update(there, Desired(), {}).undelivered == ()
    gone = Observation(21.0, True)
    assert ledger.update(gone, Desired(settled=False), {}).undelivered == ()
    assert ledger.update(gone, Desired(), {}).undelivered == ("a",)
    assert ledger.update(gone, Desired(), {}).undelivered == ()


# ---------------------------------------------------------------------- adopted ones


def web(**changes: object) -> ContainerFact:
    """A running container that somebody else started, to be adopted as the job `web`."""
    spec = JobSpec("web", ContainerSpec("theirs:1", memory_bytes=2**30), Bounds(0.5, 2.0))
    fact = running("web", adopted=spec, container_digest="", digest="", **changes)
    return replace(fact, container_id="id-theirs")


def adopting(
    ledger: Ledger, *facts: ContainerFact, now_s: float = 10.0, wish: Desired | None = None
) -> State:
    seen = Observation(now_s, engine_ok=True, containers=facts, node=NodeFact(4.0, 2**33))
    return ledger.update(seen, wish or Desired(), {})


def test_an_adopted_container_is_a_job_by_its_labels_from_its_start_to_its_removal(ledger: Ledger):
    state = adopting(ledger, web(actual=Limits(2.0)))
    (job,) = state.snapshot.jobs
    assert (job.state, job.adopted, job.spec.bounds) == (JobState.RUNNING, True, Bounds(0.5, 2.0))
    assert job.desired == Limits(2.0), "what it came with, until something is decided"
    assert state.snapshot.wakes == ("web: arrived",)
    over = adopting(ledger, web(state=ContainerState.EXITED, exit_code=7), now_s=11.0)
    (job,) = over.snapshot.jobs
    assert (job.state, job.reason) == (JobState.STOPPED, "exit code 7")
    gone = adopting(ledger, now_s=12.0)
    assert gone.snapshot.jobs == ()
    for one in (state, over, gone):
        assert (one.starts, one.removals, one.ended, one.alarms) == ((), (), (), ())


def test_nothing_that_the_wish_spares_or_removes_concerns_an_adopted_one():
    state = adopting(Ledger(LedgerOptions()), web(), wish=Desired(spares=lambda _: "no file"))
    assert [job.state for job in state.snapshot.jobs] == [JobState.RUNNING]
    assert texts(state.alarms) == ()


def test_a_job_files_job_comes_before_a_container_of_its_name(ledger: Ledger):
    assert adopting(ledger, web()).snapshot.jobs[0].adopted
    filed = Desired(specs={"web": job_spec("web")})
    state = adopting(ledger, web(), now_s=11.0, wish=filed)
    (job,) = state.snapshot.jobs
    assert (job.state, job.adopted) == (JobState.WAITING, False)
    assert [spec.name for spec in state.starts] == ["web"]
    assert texts(state.alarms) == ("container web (id-theirs) is left alone: a job has its name",)
    both = adopting(ledger, running("web"), web(), now_s=12.0, wish=filed)
    assert [(job.container_id, job.adopted) for job in both.snapshot.jobs] == [("id-web", False)]
    assert len(both.alarms) == 1


def test_a_file_that_yields_takes_neither_name_nor_log_of_what_is_there():
    mine = job_spec("web", owner=1001)
    wish = Desired(specs={"web": mine}, yields=lambda fact: fact.adopted is not None)
    ledger = Ledger(LedgerOptions())
    state = adopting(ledger, web(), wish=wish)
    (job,) = state.snapshot.jobs
    assert (job.adopted, job.spec.owner, state.starts) == (True, None, ())
    assert texts(state.alarms) == (
        "web: the job's file waits: another container, id-theirs, has the job's name",
    )
    assert adopting(ledger, wish=wish, now_s=11.0).starts == (mine,)
    beside = adopting(ledger, running("web"), web(), wish=wish, now_s=12.0)
    assert [job.adopted for job in beside.snapshot.jobs] == [False], "who was there first stays"
    assert beside.removals == ()

    lingering = Desired(specs={"web": mine}, yields=lambda _: True)
    state = adopting(Ledger(LedgerOptions()), running("web"), wish=lingering)
    (job,) = state.snapshot.jobs
    assert (job.state, job.spec.owner, job.reason) == (
        JobState.STOPPING, None, "the job's file was removed",
    )  # fmt: skip


def test_an_adopted_one_holds_its_floor_and_a_place_but_never_queues():
    small = LedgerOptions(max_jobs=1)
    filed = Desired(specs={"a": job_spec("a")})
    state = adopting(Ledger(small), web(), wish=filed)
    waiting = {job.name: (job.state, job.reason) for job in state.snapshot.jobs}
    assert waiting["a"] == (JobState.WAITING, "the node has 1 job, at most 1 are allowed")
    assert waiting["web"] == (JobState.RUNNING, None)
    wide = Desired(specs={"a": job_spec("a", bounds=Bounds(3.6))})
    state = adopting(Ledger(LedgerOptions()), web(), wish=wide)
    assert "floors of the node take 0.50 of 4.00" in (state.snapshot.jobs[0].reason or "")
    ended = adopting(Ledger(small), web(state=ContainerState.EXITED, exit_code=0), wish=filed)
    assert [spec.name for spec in ended.starts] == ["a"], "what ended holds nothing"


def test_who_is_left_alone_is_an_alarm():
    text = "container x (123) is left alone: its labels are wrong"
    alarm = Alarm("123", AlarmKey.CONTAINER_LEFT_ALONE, text)
    seen = Observation(10.0, engine_ok=True, left_alone=(alarm,))
    assert Ledger(LedgerOptions()).update(seen, Desired(), {}).alarms == (alarm,)


def test_a_diverged_training_is_an_alarm_until_its_loss_is_finite_again():
    spec = job_spec("a", target=AccuracyTarget("accuracy", 0.9, 0.97))
    ledger = Ledger(LedgerOptions(tier_evaluations=1))

    def told(now_s: float, sample: Sample | None, **fact: object) -> State:
        reports = () if sample is None else (Report(now_s, sample=sample),)
        seen = Observation(
            now_s=now_s,
            engine_ok=True,
            containers=(running("a", reports=reports, **fact),),
            node=NodeFact(4.0, 2**33),
        )
        return ledger.update(seen, Desired(specs={"a": spec}), {})

    state = told(10.0, Sample(10.0, 200, (), (("loss", "nan"),)))
    assert texts(state.alarms) == ("a: diverged: loss nan at step 200",)
    state = told(11.0, Sample(11.0, 300, (("accuracy", 0.99),), (("loss", "inf"),)))
    (job,) = state.snapshot.jobs
    assert job.diverged == Diverged("loss", "nan", 10.0, 200), "since when"
    assert job.tiers == Tiers(), "never delivered"
    assert texts(told(12.0, None).alarms) == ("a: diverged: loss nan at step 200",)
    state = told(13.0, Sample(13.0, 400, (("accuracy", 0.99), ("loss", 0.1))))
    assert (state.alarms, state.snapshot.jobs[0].diverged) == ((), None)


# ---------------------------------------------------------------------- the blind


def test_a_service_that_falls_silent_is_blind_after_a_while_and_sees_again():
    ledger = Ledger(LedgerOptions(blind_after_s=5.0))
    assert update(ledger, 10.0).jobs[0].blind is None
    assert update(ledger, 16.0).jobs[0].blind == "no report in the first 5 s"
    assert update(ledger, 17.0, reports=(line(17.0, 0.1),)).jobs[0].blind is None
    assert update(ledger, 22.1).jobs[0].blind == "no report for 5 s"
    quiet = line(23.0, 0.1, in_flight=0)
    assert update(ledger, 23.0, reports=(quiet,)).jobs[0].blind is None
    assert update(ledger, 99.0).jobs[0].blind is None, "it said that nothing was asked of it"


def test_one_that_was_paused_has_its_time_to_report_again():
    ledger = Ledger(LedgerOptions(blind_after_s=5.0))
    update(ledger, 10.0, reports=(line(10.0, 0.1),))
    assert update(ledger, 60.0, state=ContainerState.PAUSED).jobs[0].blind is None
    assert update(ledger, 61.0).jobs[0].blind is None
    assert update(ledger, 66.1).jobs[0].blind is not None


def test_a_job_is_told_with_what_it_uses_of_its_gpus(ledger: Ledger):
    process = GpuProcess(7, "id-a", 5 << 30, 0.4)
    gpu = replace(gpu_fact(0), busy_ratio=0.5, processes=(process,))

    def at(now_s: float, share: float) -> Snapshot:
        fact = running("a", gpus=(gpu.uuid,), actual=Limits(1.0, share))
        node = NodeFact(4.0, 2**33, gpus=(gpu,))
        seen = Observation(now_s=now_s, engine_ok=True, containers=(fact,), node=node)
        return ledger.update(seen, WISH, {}).snapshot

    at(10.0, 0.5)
    usage = at(12.0, 0.5).jobs[0].usage
    assert (usage.gpu_ratio, usage.gpu_memory_bytes) == (0.4, 5 << 30)
    assert usage.gpu_window_ratio == pytest.approx(0.4)
    changed = at(14.0, 0.6).jobs[0]
    assert changed.changed_at_s == 14.0
    assert changed.usage.gpu_window_ratio is None


@pytest.mark.parametrize(("own", "most"), [(None, 0.2), (0.5, 0.5), (0.0, 0.0)])
def test_a_targets_own_part_of_failures_goes_first(own: float | None, most: float):
    ledger = Ledger(LedgerOptions(max_failed_ratio=0.2))
    target = LatencyTarget(0.05, max_failed_ratio=own)
    asked = Desired(specs={"a": job_spec("a", target=target)})
    seen = Observation(10.0, engine_ok=True, containers=(running("a"),), node=NodeFact(4.0, 2**33))
    (view,) = ledger.update(seen, asked, {}).snapshot.jobs
    assert view.max_failed_ratio == most


# ---------------------------------------------------------------------- the idle


def service_at(ledger: Ledger, now_s: float, core_s: float, **fact: object) -> JobView:
    return update(ledger, now_s, usage_core_s=core_s, **fact).jobs[0]


def test_a_mute_service_is_idle_once_its_start_is_over(ledger: Ledger):
    """Loading the model takes 20 core-seconds in the first 20 s."""
    ledger.update(Observation(0.0, engine_ok=True), WISH, {})
    jobs = [
        service_at(ledger, float(at), min(at, 20) + 0.004 * at, started_at_s=0.0)
        for at in range(1, 63)
    ]
    assert {(one.blind, one.idle) for one in jobs[:60]} == {(None, None)}
    assert jobs[-1].idle == Idle(1.0, began=True, certain=False)
    assert jobs[-1].unheard == "idle"


def test_a_short_burst_of_cpu_is_no_work(ledger: Ledger):
    for at in range(1, 200):
        job = service_at(ledger, float(at), 1.2 * (at >= 100))
    assert job.idle is not None


def test_idleness_lasts_while_nothing_changes(ledger: Ledger):
    for at in range(1, 400):
        job = service_at(ledger, float(at), 5.0)
    assert job.idle == Idle(1.0, certain=False)
    assert job is service_at(ledger, 400.0, 5.0), "a job at rest costs nothing"


# ---------------------------------------------------------------------- the metric that never comes


def stepped(ledger: Ledger, now_s: float, target: AccuracyTarget, *samples: Sample) -> JobView:
    reports = tuple(Report(now_s, sample=sample) for sample in samples)
    seen = Observation(
        now_s=now_s,
        engine_ok=True,
        containers=(running("a", reports=reports),),
        node=NodeFact(4.0, 2**33),
    )
    spec = replace(AIMED, target=target)
    return ledger.update(seen, Desired(specs={"a": spec}), {}).snapshot.jobs[0]


ACCURACY = AccuracyTarget("accuracy", 0.9, 0.97)


def test_steps_without_the_metric_make_a_training_blind(ledger: Ledger):
    for at in range(1, 63):
        job = stepped(ledger, float(at), ACCURACY, Sample(float(at), at, (("val_acc", 0.8),)))
    assert job.blind == "the job reports steps, but never `accuracy`"
    assert job.progress.lacks == Lacks(1.0, 3, ("val_acc",))
    job = stepped(ledger, 63.0, ACCURACY, Sample(63.0, 63, (("accuracy", 0.8),)))
    assert (job.blind, job.progress.lacks) == (None, None)


def test_a_metric_that_came_once_is_not_missed_later(ledger: Ledger):
    stepped(ledger, 1.0, ACCURACY, Sample(1.0, 0, (("accuracy", 0.1),)))
    for at in range(2, 400):
        job = stepped(ledger, float(at), ACCURACY, Sample(float(at), at, (("loss", 1.0 / at),)))
    assert (job.blind, job.progress.lacks) == (None, None)


def test_a_target_changed_to_the_reported_metric_sees_again(ledger: Ledger):
    for at in range(1, 63):
        job = stepped(ledger, float(at), ACCURACY, Sample(float(at), at, (("val_acc", 0.8),)))
    assert job.blind is not None
    assert stepped(ledger, 63.0, replace(ACCURACY, metric="val_acc")).blind is None


def test_names_of_a_hostile_training_are_bounded(ledger: Ledger):
    for at in range(1, 5):
        names = tuple((f"m{at}-{number}", 1.0) for number in range(32))
        job = stepped(ledger, float(at), ACCURACY, Sample(float(at), at, names))
    assert job.progress.lacks is not None
    assert len(job.progress.lacks.names) == NAMES_KEPT
