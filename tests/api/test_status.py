"""Rows, satisfaction and redaction of dlsched.api.status."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dlsched.api.codec import as_json
from dlsched.api.history_schema import History
from dlsched.api.schema import (
    EngineStatus,
    ForecastStatus,
    GpuHolderStatus,
    GpuStatus,
    JobStatus,
    LogStatus,
    NodeStatus,
    SidecarStatus,
    _shared,
)
from dlsched.api.status import discreet, job_status, node_status
from dlsched.api.stream_schema import CyclePoint
from dlsched.api.usage_schema import UsageStatus
from dlsched.api.why_schema import EffectStatus, OutcomeStatus
from dlsched.estimate.effect import Effect
from dlsched.estimate.measured import REQUESTS_MIN
from dlsched.model.actions import Outcome
from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.facts import GpuFact, LatencySketch, LogFact, Usage
from dlsched.model.forecast import Forecast
from dlsched.model.spec import LatencyTarget
from dlsched.model.state import GpuHolder, GpuView, JobView, NodeView, Progress, Snapshot
from dlsched.store.journal.history import CpuUsage, Curves, Range
from tests.status_source import NOW_S, example_report, foretold, job, report_of


@pytest.mark.parametrize(
    ("latency_s", "band", "slo"),
    [
        (0.088, False, True),
        (0.09, True, True),
        (0.092, True, True),
        (0.1, True, True),
        (0.108, True, False),
        (0.11, True, False),
        (0.112, False, False),
    ],
)
def test_satisfied_in_both_readings_edges_included(latency_s: float, band: bool, slo: bool) -> None:
    row = job_status(job("a", target=LatencyTarget(0.1), latency_s=latency_s), NOW_S)
    assert (row.satisfied_band, row.satisfied_slo) == (band, slo)
    assert row.ratio == pytest.approx(latency_s / 0.1)


def test_too_few_requests_are_no_verdict() -> None:
    few = job_status(job("a", requests=REQUESTS_MIN - 1), NOW_S)
    assert few.measured_s is not None
    assert (few.ratio, few.satisfied_band, few.satisfied_slo) == (None, None, None)
    enough = job_status(job("a", requests=REQUESTS_MIN), NOW_S)
    assert enough.satisfied_band is True


def test_a_quantile_is_measured_as_that_quantile() -> None:
    from dlsched.estimate.sketch import from_latencies

    progress = Progress(recent=from_latencies([0.01] * 90 + [0.2] * 10), as_of_s=NOW_S)
    tail = job_status(job("a", target=LatencyTarget(0.05, 0.95), progress=progress), NOW_S)
    mean = job_status(job("a", target=LatencyTarget(0.05), progress=progress), NOW_S)
    assert tail.measured_s == pytest.approx(0.2, rel=0.01)
    assert mean.measured_s == pytest.approx(0.029, rel=0.01)


WIDE = LatencySketch(600, 4.2, spans=((0.0, 0.1, 600),))
"""600 answers in 7 ms on average, all in a bucket that ends at 100 ms."""


@pytest.mark.parametrize(
    ("target", "judged"),
    [
        (LatencyTarget(0.2, 0.95), (0.5, False, True)),
        (LatencyTarget(0.1, 0.95), (1.0, None, True)),
        (LatencyTarget(0.05, 0.95), (None, None, None)),
        (LatencyTarget(0.1), (0.07, False, True)),
    ],
)
def test_a_latency_within_bounds_is_judged_by_them(
    target: LatencyTarget, judged: tuple[float | None, bool | None, bool | None]
) -> None:
    row = job_status(job("a", target=target, progress=Progress(recent=WIDE)), NOW_S)
    assert (row.ratio, row.satisfied_band, row.satisfied_slo) == pytest.approx(judged)
    exact = 0.007 if target.quantile is None else None
    assert row.measured_s == exact
    assert (row.lowest_s, row.highest_s) == ((exact, exact) if exact else (0.0, 0.1))


def test_a_job_without_target_is_measured_but_not_judged() -> None:
    row = job_status(job("a", target=None), NOW_S)
    assert row.target is None
    assert row.measured_s == pytest.approx(0.05, rel=0.01)
    assert row.satisfied_band is None


def test_a_lost_engine_is_told_with_its_trouble() -> None:
    raised = (
        Alarm("engine", AlarmKey.ENGINE_DOWN, "engine: no answer"),
        Alarm("engine", AlarmKey.BURST_REFUSED, "engine: another"),
    )
    gone = replace(example_report(), engine_ok=False, raised=raised[::-1])
    assert node_status(gone).engine == EngineStatus(ok=False, trouble="engine: no answer")


def test_the_whole_report_is_strict_json_without_secrets() -> None:
    text = json.dumps(as_json(example_report()), allow_nan=False)
    assert "hunter2" not in text
    assert "TOKEN" in text
    assert json.loads(text)["snapshot"]["jobs"][0]["state"] == "running"


def test_only_jobs_that_quote_their_output_are_copied_to_hide_it() -> None:
    quoting = replace(job("quoting").progress, refused="no JSON: 'TOKEN=hunter2'")
    report = report_of(job("plain"), job("quoting", progress=quoting))
    plain, hidden = discreet(report, lambda _owner: False).snapshot.jobs
    assert plain is report.snapshot.jobs[0]
    assert hidden == replace(report.snapshot.jobs[1], progress=replace(quoting, refused=None))


# A name here is published without a line of code that says so: it must be meant for anyone who may
# ask, and of two sources the later one is taken.
@pytest.mark.parametrize(
    ("shown", "source", "names"),
    [
        (JobStatus, LatencySketch, "errors"),
        (JobStatus, Usage, "memory_bytes throttled_ratio"),
        (JobStatus, Progress, "in_flight oldest_s"),
        (
            JobStatus,
            JobView,
            "name state reason tiers diverged memory blind idle starts attained_core_s",
        ),
        (SidecarStatus, Progress, "bad_lines refused trouble log hides_failures lacks wire"),
        (LogStatus, LogFact, "lines matched example"),
        (ForecastStatus, Forecast, "tier kind needs_cores best lacks why"),
        (
            GpuHolderStatus,
            GpuHolder,
            "kind job name pid uid user memory_bytes computes",
        ),
        (
            GpuStatus,
            GpuFact,
            (
                "index uuid part_of model memory_bytes memory_used_bytes busy_ratio compute_mode "
                "numa_node trouble"
            ),
        ),
        (
            GpuStatus,
            GpuView,
            (
                "uuid kept_for reserved foreign_processes foreign_memory_bytes holders "
                "holders_left_out"
            ),
        ),
        (
            NodeStatus,
            NodeView,
            (
                "capacity_cores cores memory_bytes foreign_cores host_cpu gpus gpu_trouble "
                "bound_by throttled_ratio"
            ),
        ),
        (OutcomeStatus, Outcome, "action status detail retryable engine_s"),
        (
            EffectStatus,
            Effect,
            "verdict before_s after_s requests_before requests_after others",
        ),
        (CyclePoint, Snapshot, "cycle now_s jobs"),
        (CyclePoint, NodeStatus, "capacity_cores given_cores used_cores foreign_cores"),
        (History, Range, "from_s to_s step_s times jobs"),
        (
            History,
            Curves,
            "node changes changes_left_out events events_left_out notes jobs",
        ),
        (UsageStatus, CpuUsage, "recorded_s capacity_core_s used_core_s notes"),
    ],
)
def test_what_is_published_by_its_name_alone(shown: type, source: type, names: str) -> None:
    assert " ".join(_shared(shown, source)) == names


def test_a_time_that_has_passed_is_now_and_a_job_that_holds_nothing_has_no_outlook() -> None:
    report = foretold(example_report())
    later = replace(report, snapshot=replace(report.snapshot, now_s=NOW_S + 300))
    rows = {row.name: row for row in node_status(later).jobs}
    deliver = rows["lenet-train"].outlook[0]
    times = (deliver.in_s, deliver.earliest_in_s, deliver.latest_in_s, deliver.text)
    assert times == (0.0, 0.0, 62.0, "any moment")
    assert rows["typo"].outlook == ()
    assert rows["hostile"].outlook == ()
