"""Reports from sources that tell of more than a second at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.control.ledger.measures import Measures
from dlsched.estimate.gpu_use import GpuUse
from dlsched.model.facts import CheckpointAck, LatencySketch, Report, Sample
from dlsched.model.spec import Limits
from tests.doubles import running, sketch


@pytest.fixture
def measures() -> Measures:
    return Measures()


def test_what_may_have_begun_before_a_change_of_limits_is_recent_and_not_measured(
    measures: Measures,
) -> None:
    measures.update(running("a", actual=Limits(1.0)), 0.0, 30.0)
    changed = running("a", actual=Limits(2.0))
    measures.update(changed, 10.0, 30.0)
    one_second = Report(13.0, latency=sketch(0.1))
    five_seconds = replace(one_second, span_s=5.0)
    measures.update(replace(changed, reports=(one_second, five_seconds)), 13.0, 30.0)
    told = measures.progress(changed, 13.0)
    assert (told.window.count, told.recent.count) == (1, 2)


def test_a_flood_of_reports_spans_as_much_as_the_longest(measures: Measures) -> None:
    measures.update(running("a", actual=Limits(1.0)), 0.0, 30.0)
    changed = running("a", actual=Limits(2.0))
    measures.update(changed, 10.0, 30.0)
    flood = tuple(Report(13.0, latency=sketch(0.1), span_s=5.0) for _ in range(100))
    measures.update(replace(changed, reports=flood), 13.0, 30.0)
    told = measures.progress(changed, 13.0)
    assert (told.window.count, told.recent.count) == (0, 100)


def test_the_gpu_time_that_a_job_tells_of_is_this_starts_last_word(measures: Measures) -> None:
    job = running("a")
    assert measures.progress(job, 0.0).gpu_ratio is None
    told = replace(job, reports=(Report(1.0, gpu_ratio=0.3), Report(2.0, gpu_ratio=0.48)))
    measures.update(told, 2.0, 30.0)
    assert measures.progress(told, 2.0).gpu_ratio == 0.48
    silent = replace(job, reports=(Report(3.0),))
    measures.update(silent, 3.0, 30.0)
    assert measures.progress(silent, 3.0).gpu_ratio == 0.48
    again = replace(job, starts=2)
    measures.update(again, 4.0, 30.0)
    assert measures.progress(again, 4.0).gpu_ratio is None


def test_a_checkpoint_is_known_until_another_container(measures: Measures) -> None:
    job, ack = running("a"), CheckpointAck(1200, "/ckpt/1200")
    measures.update(replace(job, reports=(Report(7.0, checkpoint=ack), Report(8.0))), 9.0, 30.0)
    measures.update(replace(job, starts=2), 10.0, 30.0)
    assert measures.progress(job, 10.0).checkpoint == ack, "it lies where it lay"
    measures.update(replace(job, container_id="another"), 11.0, 30.0)
    assert measures.progress(job, 11.0).checkpoint is None


def test_a_moved_jobs_samples_and_service_go_on_in_its_new_container(measures: Measures) -> None:
    sampled = Report(7.0, sample=Sample(7.0, 100, (("accuracy", 0.5),)))
    measures.update(running("a", reports=(sampled,), usage_core_s=5.0), 8.0, 30.0)
    new = running("a", container_id="id-new", origin="id-a", usage_core_s=2.0)
    measures.update(new, 20.0, 30.0)
    assert measures.attained_core_s == 7.0
    assert measures.progress(new, 20.0).samples == (sampled.sample,)
    measures.update(running("a", usage_core_s=0.0), 30.0, 30.0)
    assert measures.progress(new, 30.0).samples == (sampled.sample,), "it went back"
    measures.update(running("a", container_id="another"), 40.0, 30.0)
    assert measures.progress(new, 40.0).samples == ()


def test_how_soon_it_reports_is_measured_from_starts_that_were_seen_alone() -> None:
    found = Measures()
    found.update(running("a", started_at_s=5.0, reports=(Report(6.0),)), 6.0, 30.0)
    assert found.resume_s is None, "nobody knows how long it has been running"
    found.update(running("a", started_at_s=20.0, starts=2), 21.0, 30.0)
    assert found.resume_s is None
    found.update(running("a", started_at_s=20.0, starts=2, reports=(Report(32.0),)), 32.0, 30.0)
    found.update(running("a", started_at_s=20.0, starts=2, reports=(Report(40.0),)), 40.0, 30.0)
    assert found.resume_s == 12.0
    new = Measures()
    new.absent()
    new.update(running("a", started_at_s=5.0, reports=(Report(8.0),)), 8.0, 30.0)
    assert new.resume_s == 3.0


def test_a_failed_request_is_a_request(measures: Measures) -> None:
    failed = LatencySketch(errors=1)
    for at_s, latency in ((1.0, sketch(0.1)), (10.0, failed), (20.0, failed)):
        measures.update(running("a", reports=(Report(at_s, latency=latency),)), at_s, 30.0)
    silence = measures.silence(20.0)
    assert (silence.request_s, silence.failing_s) == (20.0, 10.0)
    measures.update(running("a", reports=(Report(21.0, latency=sketch(0.1)),)), 21.0, 30.0)
    assert measures.silence(21.0).failing_s is None, "it answered"


@pytest.mark.parametrize("order", [1, -1])
def test_requests_in_flight_at_any_writer_are_in_flight(measures: Measures, order: int) -> None:
    busy = Report(1.0, writer="A", latency=LatencySketch(), in_flight=5)
    free = Report(1.0, writer="B", latency=LatencySketch(), in_flight=0)
    measures.update(running("a", reports=(busy, free)[::order]), 1.0, 30.0)
    assert measures.silence(90.0).in_flight
    measures.update(running("a", reports=(replace(busy, in_flight=0),)), 2.0, 30.0)
    assert measures.silence(90.0).in_flight is False


GPUS = ("GPU-0",)


def test_gpu_use_is_the_drivers_word_and_else_the_jobs_own(measures: Measures) -> None:
    told = running("a", gpus=GPUS, reports=(Report(1.0, gpu_ratio=0.4),))
    measures.update(told, 1.0, 30.0, GpuUse(0.3, 5 << 30))
    assert (measures.usage.gpu_ratio, measures.usage.gpu_memory_bytes) == (0.3, 5 << 30)
    measures.update(running("a", gpus=GPUS), 2.0, 30.0, GpuUse(None, 5 << 30))
    assert measures.usage.gpu_ratio == 0.4
    assert measures.usage.gpu_window_ratio == 0.4


def test_unread_gpu_use_is_not_zero_and_a_job_without_gpus_has_none(measures: Measures) -> None:
    measures.update(running("a", gpus=GPUS), 1.0, 30.0, GpuUse())
    assert (measures.usage.gpu_ratio, measures.usage.gpu_window_ratio) == (None, None)
    measures.update(running("a"), 2.0, 30.0)
    assert (measures.usage.gpu_ratio, measures.usage.gpu_memory_bytes) == (None, None)


def test_the_window_of_gpu_use_is_its_mean_since_the_share_changed(measures: Measures) -> None:
    before = running("a", gpus=GPUS, actual=Limits(1.0, 0.5))
    for second, ratio in enumerate((0.5, 0.5, 0.3)):
        measures.update(before, float(second), 30.0, GpuUse(ratio, 0))
    assert measures.usage.gpu_window_ratio == (0.5 + 0.3) / 2
    after = running("a", gpus=GPUS, actual=Limits(1.0, 0.8))
    measures.update(after, 3.0, 30.0, GpuUse(0.8, 0))
    assert measures.changed_at_s == 3.0
    assert measures.usage.gpu_window_ratio is None
    measures.update(after, 4.0, 30.0, GpuUse(0.8, 0))
    assert measures.usage.gpu_window_ratio == pytest.approx(0.8)


def test_a_job_that_does_nothing_rests_and_its_rate_is_of_the_time_since() -> None:
    still, resting = Measures(), running("a", usage_core_s=5.0, actual=Limits(1.0))
    for now_s in range(1, 60):
        still.update(resting, float(now_s), 30.0)
    assert still.rests
    assert (still.usage.cpu_cores, still.usage.window_cores) == (0.0, 0.0)
    assert still.update(replace(resting, usage_core_s=5.5), 60.0, 30.0) == pytest.approx(0.5)
    assert not still.rests
    assert still.usage.cpu_cores == pytest.approx(0.5), "of the last second, not of all its rest"
    assert still.usage.window_cores == pytest.approx(0.5 / 30)


def test_a_job_that_has_just_become_still_is_folded_until_its_window_shows_it(
    measures: Measures,
) -> None:
    measures.update(running("a", usage_core_s=1.0), 1.0, 30.0)
    idle = running("a", usage_core_s=4.0)
    measures.update(idle, 2.0, 30.0)
    for now_s in range(3, 30):
        measures.update(idle, float(now_s), 30.0)
        assert not measures.rests
    for now_s in range(30, 36):
        measures.update(idle, float(now_s), 30.0)
    assert measures.rests and measures.usage.window_cores == 0.0


def test_a_change_of_limits_ends_its_rest_and_its_rate_is_of_the_time_since() -> None:
    measures, idle = Measures(), running("a", usage_core_s=5.0, actual=Limits(1.0))
    for now_s in range(1, 60):
        measures.update(idle, float(now_s), 30.0)
    assert measures.rests and measures.limited(Limits(2.0), 59.1)
    measures.update(replace(idle, usage_core_s=5.5, actual=Limits(2.0)), 60.0, 30.0)
    assert not measures.rests and measures.changed_at_s == 59.1
    assert measures.usage.cpu_cores == pytest.approx(0.5), "of the last second, not of all its rest"


def test_counts_that_begin_anew_are_another_starts() -> None:
    """An operator's `docker restart` is a start that the engine does not count."""
    measures, job = Measures(), running("a", usage_core_s=100.0)
    measures.update(job, 1.0, 30.0)
    assert measures.update(replace(job, usage_core_s=0.5), 2.0, 30.0) == pytest.approx(0.5)
    assert measures.usage.cpu_cores is None
    assert measures.attained_core_s == pytest.approx(100.5)
    measures.update(replace(job, usage_core_s=1.5), 3.0, 30.0)
    assert (measures.usage.cpu_cores, measures.usage.window_cores) == (1.0, 1.0)


def test_a_rate_of_cpu_use_is_of_half_a_second_at_least() -> None:
    """Commands wake the loop: 20 ms after a cycle a container has used nothing, or a burst."""
    measures, job = Measures(), running("a", usage_core_s=100.0, periods=10, throttled_periods=0)
    measures.update(job, 1.0, 30.0)
    measures.update(job, 1.02, 30.0)
    assert measures.usage.cpu_cores is None, "unknown, not zero"
    measures.update(replace(job, usage_core_s=101.0, periods=20, throttled_periods=5), 2.0, 30.0)
    assert (measures.usage.cpu_cores, measures.usage.throttled_ratio) == (1.0, 0.5)
    later = replace(job, usage_core_s=101.0, periods=20, throttled_periods=5)
    assert measures.update(later, 2.02, 30.0) == 0.0
    assert (measures.usage.cpu_cores, measures.usage.throttled_ratio) == (1.0, 0.5)
    measures.update(replace(job, starts=2, usage_core_s=0.0), 3.1, 30.0)
    assert measures.usage.cpu_cores is None, "of another start nothing is known"
    assert measures.attained_core_s == pytest.approx(101.0), "what it used before still counts"
