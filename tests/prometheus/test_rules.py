"""The rules of config/prometheus: each alert fires, heals, and holds still where it must."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from dlsched.api.metrics import METRICS
from tests.prometheus.conftest import CONFIG

RULES = CONFIG / "dlsched.rules.yml"


BEGIN_MIN = 3
"""When things go wrong."""
LONG_MIN = 30
"""How long they stay wrong where the alert has to fire."""
WELL_MIN = 10
"""How long they are well again afterwards."""


@dataclass(frozen=True)
class Case:
    """An alert that fires because of series that go wrong: from one value to another."""

    alert: str
    labels: Mapping[str, str]
    """Beside `job` and `instance`."""
    value: str
    """The alert's value as its texts show it; empty: they do not."""
    wrong: Mapping[str, tuple[float, float]]
    """Names of series with labels: the value while things are well, and while they are wrong."""
    constant: Mapping[str, float]
    """Series that stay as they are."""
    lag_min: int = 0
    """Minutes after which the expression notices."""
    counter: bool = False
    """Whether the values of `wrong` are gains a minute."""


A = 'job_name="a"'
OF_A = {"job_name": "a"}
HARM_WRONG = {f"dlsched_job_target_ratio{{{A}}}": (0.9, 1.4)}
HARM_BESIDE = {
    f"dlsched_job_cpu_throttled_ratio{{{A}}}": 0.3,
    f"dlsched_job_cpu_limit_cores{{{A}}}": 1.0,
    f"dlsched_job_cpu_ceiling_cores{{{A}}}": 2.0,
    "dlsched_node_capacity_cores{}": 4.0,
    "dlsched_node_used_cores{}": 2.0,
    "dlsched_node_foreign_cores{}": 0.5,
}
THROTTLED = f"dlsched_job_cpu_throttled_ratio{{{A}}}"
KEPT = f'dlsched_job_satisfied{{{A},reading="slo"}}'

REPORTED = "dlsched_cluster_status_timestamp_seconds{}"
SERVICE = f'dlsched_job_info{{{A},source="file",kind="service"}}'
TRAINING = SERVICE.replace("service", "training")

CASES = (
    Case("DlschedDown", {}, "", {"up{}": (1, 0)}, {}),
    Case("DlschedCyclesStopped", {}, "", {"dlsched_cycles_total{}": (60, 0)}, {}, 2, counter=True),
    Case("DlschedEngineDown", {}, "", {"dlsched_engine_up{}": (1, 0)}, {}),
    Case("DlschedFilesRejected", {}, "2", {"dlsched_rejected_files{}": (0, 2)}, {}),
    Case("DlschedAlarm", {}, "1", {"dlsched_alarms{}": (0, 1)}, {}),
    Case("DlschedGpuLost", {"uuid": "GPU-1"}, "", {'dlsched_gpu_up{uuid="GPU-1"}': (1, 0)}, {}),
    Case("DlschedClusterStopped", {}, "", {REPORTED: (60, 0)}, {}, 2, counter=True),
    Case(
        "DlschedClusterNodeAbsent",
        {"state": "silent"},
        "1",
        {'dlsched_cluster_nodes{state="silent"}': (0, 1)},
        {'dlsched_cluster_nodes{state="ready"}': 3},
    ),
    Case("DlschedClusterAlarm", {}, "1", {"dlsched_cluster_alarms{}": (0, 1)}, {}),
    Case(
        "DlschedTargetMissed",
        OF_A,
        "1.3",
        {f"dlsched_job_target_ratio{{{A}}}": (1.05, 1.3)},
        {'dlsched_job_target_ratio{job_name="b"}': 1.0},
    ),
    Case(
        "DlschedTargetUnreachable",
        {**OF_A, "tier": "latency", "kind": "impossible"},
        "",
        {f'dlsched_job_outlook{{{A},tier="latency",kind="impossible"}}': (0, 1)},
        {f'dlsched_job_outlook{{{A},tier="latency",kind="crowded"}}': 1},
    ),
    Case("DlschedJobBlind", OF_A, "", {f"dlsched_job_blind{{{A}}}": (0, 1)}, {}),
    Case("DlschedTrainingDiverged", OF_A, "", {f"dlsched_job_diverged{{{A}}}": (0, 1)}, {}),
    Case("DlschedJobThrottled", OF_A, "70%", {THROTTLED: (0.2, 0.7)}, {KEPT: 0, SERVICE: 1}),
    Case("DlschedHarm", OF_A, "", HARM_WRONG, HARM_BESIDE),
)

QUIET = {
    "throttled, but its target is kept": Case(
        "DlschedJobThrottled", OF_A, "", {THROTTLED: (0.2, 0.7)}, {KEPT: 1, SERVICE: 1}
    ),
    "trainings use all that they get": Case(
        "DlschedJobThrottled", OF_A, "", {THROTTLED: (0.2, 0.7)}, {TRAINING: 1}
    ),
    "its own ceiling holds the job": Case(
        "DlschedHarm",
        OF_A,
        "",
        HARM_WRONG,
        {**HARM_BESIDE, f"dlsched_job_cpu_limit_cores{{{A}}}": 2.0},
    ),
    "the node has no room": Case(
        "DlschedHarm", OF_A, "", HARM_WRONG, {**HARM_BESIDE, "dlsched_node_used_cores{}": 3.4}
    ),
    "the limit is not what holds it": Case(
        "DlschedHarm", OF_A, "", HARM_WRONG, {**HARM_BESIDE, THROTTLED: 0.0}
    ),
    "under none the limit is its owner's": Case(
        "DlschedHarm",
        OF_A,
        "",
        HARM_WRONG,
        {**HARM_BESIDE, 'dlsched_build_info{policy="none"}': 1.0},
    ),
    "it has no limit": Case(
        "DlschedHarm",
        OF_A,
        "",
        HARM_WRONG,
        {name: one for name, one in HARM_BESIDE.items() if "limit" not in name},
    ),
}
"""Cases that must not fire, by the reason."""


def unit_test(case: Case, rule: Mapping[str, Any], wrong_min: int, fires: bool) -> dict[str, Any]:
    """The case as a test of promtool: well, wrong for so many minutes, and well again."""
    hold_min = int(rule["for"].removesuffix("m"))
    due_min = BEGIN_MIN + case.lag_min + hold_min
    labels = {"job": "dlsched", "instance": "n1", **case.labels}
    texts = {name: _text(text, labels, case.value) for name, text in rule["annotations"].items()}
    alarm = {"exp_labels": {**labels, **rule["labels"]}, "exp_annotations": texts}
    expected = [
        (due_min - 1, []),
        (due_min, [alarm] if fires else []),
        (BEGIN_MIN + wrong_min + WELL_MIN, []),
    ]
    return {
        "name": case.alert,
        "interval": "1m",
        "input_series": [
            *({"series": _series(one), "values": f"{v}x60"} for one, v in case.constant.items()),
            *(
                {"series": _series(one), "values": _values(case, values, wrong_min)}
                for one, values in case.wrong.items()
            ),
        ],
        "alert_rule_test": [
            {"eval_time": f"{minute}m", "alertname": case.alert, "exp_alerts": alarms}
            for minute, alarms in expected
        ],
    }


def _series(name: str) -> str:
    comma = "" if name.endswith("{}") else ","
    return name.replace("{", '{job="dlsched",instance="n1"' + comma)


def _values(case: Case, values: tuple[float, float], wrong_min: int) -> str:
    well, wrong = values
    levels = [*[well] * BEGIN_MIN, *[wrong] * wrong_min, *[well] * (WELL_MIN + 1)]
    if case.counter:
        levels = [sum(levels[: at + 1]) for at in range(len(levels))]
    return " ".join(map(str, levels))


def _text(template: str, labels: Mapping[str, str], value: str) -> str:
    """The annotation as Prometheus fills it."""
    named = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels[found[1]], template)
    return re.sub(r"\{\{ \$value[^}]*\}\}", value, named)


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alert(case: Case) -> dict[str, Any]:
    (rule,) = (rule for rule in rules() if rule.get("alert") == case.alert)
    return rule


def promtool(programs: Path, *words: str | Path) -> str:
    done = subprocess.run(
        [programs / "promtool", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_alert_has_a_case() -> None:
    assert sorted(case.alert for case in CASES) == sorted(
        rule["alert"] for rule in rules() if "alert" in rule
    )


def test_every_metric_in_a_rule_exists() -> None:
    known = {metric.full_name for metric in METRICS}
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    for rule in rules():
        used = set(re.findall(r"\bdlsched[\w:]+", rule["expr"].replace('"dlsched"', "")))
        assert used - known - recorded == set(), rule


@pytest.mark.browser
def test_promtool_accepts_rules_and_example(programs: Path) -> None:
    assert "SUCCESS" in promtool(programs, "check", "rules", RULES)
    assert "SUCCESS" in promtool(programs, "check", "config", CONFIG / "prometheus.yml")


@pytest.mark.browser
def test_each_alert_fires_and_heals(programs: Path, tmp_path: Path) -> None:
    fires = [unit_test(case, alert(case), LONG_MIN, fires=True) for case in CASES]
    assert "SUCCESS" in run(programs, tmp_path, fires)


@pytest.mark.browser
def test_no_alert_fires_for_what_heals_before(programs: Path, tmp_path: Path) -> None:
    heals = [
        unit_test(case, alert(case), int(alert(case)["for"].removesuffix("m")), fires=False)
        for case in CASES
    ]
    assert "SUCCESS" in run(programs, tmp_path, heals)


@pytest.mark.browser
@pytest.mark.parametrize("why", QUIET)
def test_no_alert_where(programs: Path, tmp_path: Path, why: str) -> None:
    case = QUIET[why]
    assert "SUCCESS" in run(programs, tmp_path, [unit_test(case, alert(case), LONG_MIN, False)])


def run(programs: Path, folder: Path, tests: list[dict[str, Any]]) -> str:
    file = folder / "alerts.json"  # JSON is YAML
    content = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}
    file.write_text(json.dumps(content))
    return promtool(programs, "test", "rules", file)
