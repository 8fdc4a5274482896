"""For each alert, what makes it fire: series minute by minute, and labels of the alert."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
