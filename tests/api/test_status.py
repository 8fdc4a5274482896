"""Rows, satisfaction and redaction of dlsched.api.status."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from dlsched.api.reading import as_json
from dlsched.api.schema import EngineStatus, GiverStatus, SidecarStatus, TiersStatus
from dlsched.api.status import job_now, job_status, node_status, plain
from dlsched.api.why_schema import LimitsStatus, ShadowStatus
from dlsched.estimate.measured import REQUESTS_MIN
from dlsched.model.cycle import CycleReport, Shadow
from dlsched.model.decision import Decision
from dlsched.model.spec import AccuracyTarget, LatencyTarget, Limits
from dlsched.model.state import NodeView, Progress, Reached, Snapshot, Tiers
from tests.status_source import NOW_S, example_report, foretold, job


@pytest.mark.parametrize(
    ("latency_s", "band", "slo"),
    [
        (0.088, False, True),
        (0.092, True, True),
        (0.1, True, True),
        (0.108, True, False),
        (0.112, False, False),
    ],
)
def test_satisfied_in_both_readings(latency_s: float, band: bool, slo: bool) -> None:
    row = job_status(job("a", target=LatencyTarget(0.1), latency_s=latency_s), NOW_S)
    assert (row.satisfied_band, row.satisfied_slo) == (band, slo)
    assert row.ratio == pytest.approx(latency_s / 0.1)


def test_the_band_includes_its_edges() -> None:
    for latency_s in (0.09, 0.11):
        row = job_status(job("a", target=LatencyTarget(0.1), latency_s=latency_s), NOW_S)
        assert row.satisfied_band is True


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


def test_a_job_without_target_is_measured_but_not_judged() -> None:
    row = job_status(job("a", target=None), NOW_S)
    assert row.target is None
    assert row.measured_s == pytest.approx(0.05, rel=0.01)
    assert row.satisfied_band is None


def test_an_accuracy_target_shows_the_last_value() -> None:
    rows = {row.name: row for row in node_status(example_report()).jobs}
    assert rows["lenet-train"].metric == 0.8731
    assert rows["lenet-train"].target.text == "accuracy 0.9, 0.97"


def test_reached_tiers_are_told_with_their_age() -> None:
    view = job("a", target=AccuracyTarget("accuracy", 0.9, 0.97))
    assert job_status(view, NOW_S).tiers == TiersStatus(None, None)
    assert job_status(job("b"), NOW_S).tiers is None
    reached = replace(view, tiers=Tiers(Reached(NOW_S - 90, 0.93, 500)))
    assert as_json(job_status(reached, NOW_S).tiers) == {
        "delivered": {
            "value": 0.93,
            "step": 500,
            "age_s": 90.0,
            "text": "accuracy 0.93 at step 500 (deliver 0.9)",
        },
        "finished": None,
    }


def test_the_row_tells_container_cpu_and_sidecar() -> None:
    row = job_status(job("a"), NOW_S)
    assert row.container == "0123456789ab"
    assert as_json(row.cpu) == {
        "desired_cores": 0.6,
        "actual_cores": 0.6,
        "floor_cores": 0.1,
        "ceiling_cores": 2.0,
        "usage_cores": 0.52,
    }
    assert row.sidecar == SidecarStatus(0.5, 0, None, None, None)


def test_the_node_counts_given_used_and_unlimited() -> None:
    node = node_status(example_report()).node
    assert node.given_cores == pytest.approx(0.6 * 4 + 1.25)
    assert node.used_cores == pytest.approx(6 * 0.52)
    assert node.unlimited_jobs == 1


def test_a_lost_engine_is_told_with_its_trouble() -> None:
    gone = replace(example_report(), engine_ok=False, alarms=("engine: no answer", "other"))
    assert node_status(gone).engine == EngineStatus(ok=False, trouble="engine: no answer")


def test_now_tells_decision_guard_and_outcome() -> None:
    now = job_now("digits-resnet", example_report())
    assert now.why == "slow: p95 81 ms of 50 ms, grows by a tenth"
    assert now.guard == "1.4 cores cut to 1.25: the node is full"
    assert now.limits == LimitsStatus(1.25, None)
    assert [(out.status, out.action["kind"]) for out in now.outcomes] == [("failed", "resize")]
    assert job_now("queued", example_report()).outcomes == ()


def test_the_whole_report_is_strict_json_without_secrets() -> None:
    text = json.dumps(plain(example_report()), allow_nan=False)
    assert "hunter2" not in text
    assert "TOKEN" in text
    assert json.loads(text)["snapshot"]["jobs"][0]["state"] == "running"


def test_a_policy_that_answers_nan_can_still_be_looked_at() -> None:
    node = NodeView(1.0, 1.0, 1)
    report = CycleReport(
        snapshot=Snapshot(1, 0.0, node), policy="x", decision=Decision({"a": Limits(math.nan)})
    )
    shown = json.loads(json.dumps(plain(report), allow_nan=False))
    assert shown["decision"]["limits"]["a"]["cpu_cores"] == "nan"


def test_a_shadow_is_told_beside_what_is_done() -> None:
    why = {"digits-resnet": "weight 1 of 5"}
    shadow = Shadow("fair", None, {"digits-resnet": Limits(0.8)}, why, {}, "no longer asked: boom")
    report = replace(example_report(), shadow=shadow)
    assert node_status(report).shadow == "fair"
    assert as_json(job_now("digits-resnet", report).shadow) == {
        "policy": "fair",
        "why": "weight 1 of 5",
        "guard": None,
        "limits": {"cpu_cores": 0.8, "gpu_share": None},
        "trouble": "no longer asked: boom",
    }
    assert job_now("queued", report).shadow == ShadowStatus(
        "fair", None, None, None, "no longer asked: boom"
    )
    assert node_status(example_report()).shadow is None
    assert job_now("queued", example_report()).shadow is None


def test_outlooks_are_told_in_seconds_from_now_and_in_words() -> None:
    rows = {row.name: row for row in node_status(foretold(example_report())).jobs}
    deliver, finish = rows["lenet-train"].outlook
    assert as_json(deliver) == {
        "tier": "deliver",
        "kind": "expected",
        "in_s": 250.0,
        "earliest_in_s": 180.0,
        "latest_in_s": 362.0,
        "needs_cores": None,
        "best": None,
        "lacks": [],
        "givers": "",
        "why": "0.9 at step 1800",
        "text": "in 4 min (3-6)",
        "sentence": "expected in 4 min 10 s (80 %: 3 min to 6 min 2 s): 0.9 at step 1800",
    }
    assert (finish.kind, finish.best, finish.text) == (
        "impossible",
        0.952,
        "at best 0.952",
    )
    (crowded,) = rows["digits-resnet"].outlook
    assert crowded.lacks == (GiverStatus("digits-vgg", 0.8), GiverStatus("lenet-train", 0.4))
    assert crowded.needs_cores == 2.45


def test_a_time_that_has_passed_is_now_and_a_job_that_holds_nothing_has_no_outlook() -> None:
    report = foretold(example_report())
    later = replace(report, snapshot=replace(report.snapshot, now_s=NOW_S + 300))
    rows = {row.name: row for row in node_status(later).jobs}
    deliver = rows["lenet-train"].outlook[0]
    times = (deliver.in_s, deliver.earliest_in_s, deliver.latest_in_s, deliver.text)
    assert times == (0.0, 0.0, 62.0, "any moment")
    assert rows["typo"].outlook == ()
    assert rows["hostile"].outlook == ()
