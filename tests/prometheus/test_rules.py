"""The rules of config/prometheus: each alert fires, heals, and holds still where it must."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dlsched.api.metrics import METRICS
from tests.prometheus.alerts import CASES, LONG_MIN, QUIET, Case, unit_test
from tests.prometheus.conftest import CONFIG

RULES = CONFIG / "dlsched.rules.yml"


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
