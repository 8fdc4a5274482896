"""The page: every metric, the figures of `ps`, and what hostile jobs do to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import parser

from dlsched import __version__
from dlsched.api.cluster_schema import ClusterStatus
from dlsched.api.metrics import METRICS, page
from dlsched.api.metrics.metric import JOBS_MAX, UNITS, Kind
from dlsched.api.metrics.page import LABEL_CHARACTERS, MetricsPage
from dlsched.api.metrics.totals import JournalTotals, LoopTotals, Totals
from dlsched.cluster.status_file import UnreadableStatus
from dlsched.model.cycle import CycleReport
from dlsched.model.spec import AccuracyTarget, Limits
from dlsched.model.state import JobState
from tests.cluster_status import example
from tests.status_source import everything_report, example_report, gpu_report, job, report_of
from tests.texts import same_text

Labels = frozenset[tuple[str, str]]


def totals_of(report: CycleReport) -> Totals:
    loop = LoopTotals()
    loop.count(replace(report, phase_s={"observe": 0.01}), 0.02, JournalTotals(4096, 3))
    assert loop.last is not None
    return loop.last


def text_of(report: CycleReport, cluster: ClusterStatus | None = None) -> str:
    return MetricsPage().render(totals_of(report), lambda: cluster).decode()


def samples(
    report: CycleReport, cluster: ClusterStatus | None = None
) -> dict[str, dict[Labels, float]]:
    """Values by the samples' names and labels."""
    found: dict[str, dict[Labels, float]] = {}
    for family in parser.text_string_to_metric_families(text_of(report, cluster)):
        for one in family.samples:
            series = found.setdefault(one.name, {})
            labels = frozenset(one.labels.items())
            assert labels not in series, f"{one} twice"
            series[labels] = one.value
    return found


def of_job(report: CycleReport, name: str, **labels: str) -> dict[str, float]:
    """The values of one job's series with these labels, by the metric's name."""
    wanted = {("job_name", name), *labels.items()}
    return {
        metric.removeprefix("dlsched_job_"): value
        for metric, series in samples(report).items()
        for has, value in series.items()
        if wanted <= has
    }


@pytest.mark.timed
def test_the_page_of_a_node_with_everything_has_every_metric() -> None:
    cluster = replace(example(), written_at="2026-01-01T00:00:10.000Z")
    found = samples(everything_report(), cluster)
    for metric in METRICS:
        assert metric.full_name + ("_sum" if metric.kind is Kind.HISTOGRAM else "") in found
    same_text("metrics", text_of(everything_report(), cluster=cluster).replace(__version__, "X"))


@pytest.mark.parametrize("metric", METRICS, ids=lambda one: one.name)
def test_names_follow_the_rules(metric: Any) -> None:
    assert (metric.kind is Kind.COUNTER) == metric.name.endswith("_total")
    assert (metric.kind is Kind.INFO) == metric.name.endswith("_info")
    # Prometheus' own label and the summaries' would collide.
    assert not {"job", "instance", "quantile", "le"}.intersection(metric.labels)
    named = [unit for unit in UNITS if unit in metric.name.split("_")]
    assert named == ([metric.unit] if metric.unit else [])
    assert metric.meaning.endswith(".")


def of_cluster(cluster: ClusterStatus | None) -> dict[str, dict[Labels, float]]:
    found = samples(example_report(), cluster)
    return {
        name.removeprefix("dlsched_cluster_"): series
        for name, series in found.items()
        if name.startswith("dlsched_cluster_")
    }


@pytest.mark.timed
def test_without_a_cluster_and_where_another_leads_its_series_are_absent() -> None:
    assert of_cluster(None) == {}
    follower = replace(example(), leader="n2", nodes=(), jobs=(), queue=(), observed_at="")
    assert set(of_cluster(follower)) == {"status_timestamp_seconds", "leads", "alarms"}
    assert of_cluster(follower)["leads"][frozenset()] == 0
    begins = of_cluster(replace(example(), totals=None, written_at="then"))
    assert "unreachable_nodes" in begins
    assert not [name for name in begins if "moves" in name or "timestamp" in name]


def test_an_unreadable_status_of_a_cluster_costs_no_other_metric() -> None:
    def unreadable() -> ClusterStatus | None:
        raise UnreadableStatus("cluster.json: not the status of a cluster")

    page = MetricsPage().render(totals_of(example_report()), unreadable)
    assert b"dlsched_node_capacity_cores" in page
    assert b"dlsched_cluster_" not in page


def test_what_is_unknown_is_absent() -> None:
    silent = job("silent", latency_s=None)
    silent = replace(silent, progress=replace(silent.progress, as_of_s=None))
    known = of_job(report_of(silent), "silent")
    assert not {"report_age_seconds", "window_requests", "metric", "gpu_usage_ratio"} & set(known)


@pytest.mark.parametrize("state", [JobState.FINISHED, JobState.STOPPED, JobState.RESTARTING])
def test_a_job_that_does_not_run_has_no_limit(state: JobState) -> None:
    limits = {"cpu_limit_cores", "cpu_desired_cores", "gpu_share_actual_ratio", "gpu_usage_ratio"}
    runs = gpu_report().snapshot.jobs[0]
    runs = replace(runs, actual=Limits(0.6, 0.5), usage=replace(runs.usage, gpu_ratio=0.4))
    assert limits <= set(of_job(report_of(runs), runs.name))
    over = of_job(report_of(replace(runs, state=state)), runs.name)
    assert not limits & set(over)
    assert {"cpu_floor_cores", "starts_total"} <= set(over)


def test_the_limits_add_up_to_what_the_node_gives() -> None:
    report = report_of(job("runs"), job("over", state=JobState.FINISHED), job("too"))
    found = samples(report)
    given = found["dlsched_node_given_cores"][frozenset()]
    assert sum(found["dlsched_job_cpu_limit_cores"].values()) == given == 1.2


def test_hostile_text_stays_one_value_of_one_label() -> None:
    name = 'x"} 1\ndlsched_engine_up 0\n# \\ \x1b[31m\ud800' + "é" * 2 * LABEL_CHARACTERS
    target = AccuracyTarget(name, 0.9, 0.97)
    report = report_of(job("evil", target=target))
    (labels,) = {dict(one)["metric"] for one in samples(report)["dlsched_job_metric_target"]}
    assert labels.startswith('x"} 1\ndlsched_engine_up 0\n# \\ \x1b[31m\\ud800')
    assert len(labels) <= LABEL_CHARACTERS + len("\\ud800")
    assert samples(report)["dlsched_engine_up"] == {frozenset(): 1}


def test_reasons_alarms_and_files_are_no_labels() -> None:
    text = text_of(everything_report())
    for secret in (
        "boom",
        "bad.yaml",
        "no report for 1 min",
        "hunter2",
        "not found",
        "0123456789ab",
    ):
        assert secret not in text


def test_jobs_past_the_bound_are_counted_and_those_that_hold_nothing_go_first() -> None:
    waiting = [job(f"w{n:05}", state=JobState.WAITING) for n in range(JOBS_MAX)]
    running = [job(f"r{n:05}") for n in range(10)]
    found = samples(report_of(*waiting, *running))
    names = {dict(one)["job_name"] for one in found["dlsched_job_info"]}
    assert len(names) == JOBS_MAX
    assert {one.name for one in running} <= names
    assert found["dlsched_jobs_without_series"] == {frozenset(): 10}
    assert found["dlsched_jobs"][frozenset({("state", "waiting")})] == JOBS_MAX


def test_changes_are_counted_of_jobs_with_series_alone() -> None:
    jobs = [job(f"r{n:05}") for n in range(JOBS_MAX + 10)]
    totals = totals_of(report_of(*jobs))
    changes = {(one.name, "resize", "done"): 1 for one in jobs}
    text = MetricsPage().render(replace(totals, changes=changes), lambda: None).decode()
    assert text.count("\ndlsched_job_changes_total{") == JOBS_MAX


def test_a_cycle_is_rendered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    statuses: list[object] = []
    original = page.node_status
    monkeypatch.setattr(page, "node_status", lambda one: statuses.append(one) or original(one))
    shown, first, second = MetricsPage(), totals_of(example_report()), totals_of(example_report())
    assert shown.render(first) is shown.render(first)
    assert len(statuses) == 1
    shown.render(second)
    assert len(statuses) == 2
