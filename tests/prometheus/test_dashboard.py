"""The dashboard of config/grafana: its file, and a real Prometheus that scrapes a real daemon, with
the example and the rules as shipped, asked every query of it.

No Grafana opens it here: what the panels look like is not shown.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dlsched.api.metrics import METRICS
from dlsched.api.metrics.metric import Kind, Metric
from docs.generate.metrics import markdown
from tests.daemon.test_daemon import shows, spec
from tests.nvml.library import Stub
from tests.nvml.scenario import GIB, Gpu, Scenario
from tests.prometheus.conftest import free_port, prometheus
from tools.environment import BUILD, ROOT
from tools.session import Session, wait_for

FILE = ROOT / "config" / "grafana" / "dlsched.json"

CHOSEN = 'instance=~"$instance"'
UNITS = {"bytes": "bytes", "cores": "suffix: cores", "ratio": "percentunit", "seconds": "s"}
"""Grafana's unit by a metric's."""
HISTOGRAM_ENDS = ("_bucket", "_sum", "_count")

NO_SERIES = {
    "dlsched_job_outlook_seconds": "a metric that does not rise has no forecast with a time",
    **{
        metric.full_name: "neither job asks for a GPU"
        for metric in METRICS
        if metric.name.startswith("job_gpu_")
    },
}
"""Metrics that these jobs may have no series of, and why."""

REPORTING = """
  - sh
  - -c
  - |
    while :; do
      echo '{LINE}' >> "$DLSCHED_METRICS_FILE"
      sleep 0.1
    done
"""
SERVING = REPORTING.replace("{LINE}", '{"t": 1, "latency_s": [0.02, 0.02]}')
TRAINING = REPORTING.replace("{LINE}", '{"t": 1, "step": 10, "accuracy": 0.5}')


@cache
def dashboard() -> dict[str, Any]:
    made: dict[str, Any] = json.loads(FILE.read_text())
    return made


def panels() -> list[dict[str, Any]]:
    """All that show something: no rows."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def queries() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each panel with each of its queries."""
    for panel in panels():
        yield from ((panel, target) for target in panel["targets"])


def metrics_of(expression: str) -> list[Metric]:
    """The metrics that it names. Raises KeyError for one that does not exist."""
    known = {metric.full_name: metric for metric in METRICS}
    for metric in METRICS:
        if metric.kind is Kind.HISTOGRAM:
            known |= {metric.full_name + end: metric for end in HISTOGRAM_ENDS}
    return [known[name] for name in re.findall(r"\bdlsched_\w+", expression)]


def test_the_source_and_the_instances_are_variables() -> None:
    variables = {one["name"]: one for one in dashboard()["templating"]["list"]}
    assert (variables["datasource"]["type"], variables["datasource"]["query"]) == (
        "datasource",
        "prometheus",
    )
    assert variables["instance"]["query"] == "label_values(dlsched_build_info, instance)"
    assert metrics_of(variables["instance"]["query"])
    source = {"type": "prometheus", "uid": "${datasource}"}
    assert variables["instance"]["datasource"] == source
    for panel, target in queries():
        assert panel["datasource"] == target["datasource"] == source, panel["title"]
        selectors = re.findall(r"\{(.*?)\}", target["expr"])
        assert selectors, panel["title"]
        assert all(CHOSEN in one for one in selectors), panel["title"]


def test_every_metric_exists_and_is_documented() -> None:
    documented = markdown()
    for panel, target in queries():
        named = metrics_of(target["expr"])
        assert named or target["expr"].startswith("up{"), panel["title"]
        for metric in named:
            assert f"`{metric.full_name}`" in documented


def test_legends_name_labels_that_the_series_have() -> None:
    for panel, target in queries():
        there = {"instance", *(one for m in metrics_of(target["expr"]) for one in m.labels)}
        used = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert used <= there, panel["title"]
        kept = re.search(r"\bby \(([\w, ]+)\)", target["expr"])
        if kept is not None:
            assert used <= set(kept[1].split(", ")), panel["title"]


def test_units_are_those_of_the_metrics() -> None:
    for panel, target in queries():
        shown, expression = panel["fieldConfig"]["defaults"]["unit"], target["expr"]
        if expression.startswith("60 * "):
            due = "cpm"
        elif "cpu_seconds_total" in expression:
            due = UNITS["cores"]
        elif expression.startswith("avg ") or "_bytes{" in expression.partition(" / ")[2]:
            due = UNITS["ratio"]
        else:
            units = {metric.unit for metric in metrics_of(expression)} or {""}
            (unit,) = {""} if " == bool " in expression else units
            due = UNITS.get(unit, "none")
        assert shown == due, (panel["title"], expression)


@pytest.mark.browser
def test_the_file_is_what_the_script_makes(tmp_path: Path) -> None:
    prepare = [sys.executable, "-m", "tools.environment", "--make", "dashboard"]
    subprocess.run(prepare, cwd=ROOT, check=True)
    made = tmp_path / "dlsched.json"
    python = BUILD / "dashboard-venv" / "bin" / "python"
    subprocess.run([python, "-m", "tools.dashboard", "--output", made], cwd=ROOT, check=True)
    assert made.read_text() == FILE.read_text()


@pytest.mark.browser
@pytest.mark.engine
def test_a_real_prometheus_scrapes_a_real_daemon_and_answers_every_query(
    programs: Path,
    node: Session,
    nvml_stub: Stub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in nvml_stub.environment.items():
        monkeypatch.setenv(name, value)
    nvml_stub.show(Scenario((Gpu("GPU-aaaa0000", used_bytes=GIB, busy_percent=40),)))
    address = f"127.0.0.1:{free_port()}"
    node.drop("alpha", spec("alpha", SERVING, target="{latency: 50ms}"))
    target = "{metric: accuracy, deliver: 0.9, finish: 0.97}"
    node.drop("train", spec("train", TRAINING, target=target))
    node.start("adaptive", more={"listen": address, "period": "200ms"})
    shows(node, "alpha", lambda one: one.get("ratio"), "to have a ratio")
    shows(node, "train", lambda one: one.get("metric"), "to have a metric")

    page = httpx2.get(f"http://{address}/metrics", timeout=60).text
    check = [programs / "promtool", "check", "metrics"]
    checked = subprocess.run(check, input=page.encode(), capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, b"")

    with prometheus(programs, tmp_path, address) as query:

        def results(expression: str) -> list[dict[str, Any]]:
            # What Grafana fills in for all instances and a scrape interval of 1 s.
            return query(expression.replace("$instance", ".+").replace("$__rate_interval", "4s"))

        def empty() -> set[str]:
            return {
                target["expr"]
                for _, target in queries()
                if not results(target["expr"])
                and not any(one.full_name in NO_SERIES for one in metrics_of(target["expr"]))
            }

        try:
            wait_for(lambda: not empty(), 60, "every query to have a result")
        except AssertionError as error:
            raise AssertionError(f"{error}: {empty()}") from error

        def healths() -> set[str]:
            return {
                rule["health"] for group in query("/rules")[0]["groups"] for rule in group["rules"]
            }

        # Groups are evaluated one after the other; before that a rule's is `unknown`.
        wait_for(lambda: healths() == {"ok"}, 60, "every rule to be evaluated")
        node.stop()
        down = 'ALERTS{alertname="DlschedDown",job="dlsched"}'
        wait_for(lambda: query(down), 60, "the alert that the daemon is down")
