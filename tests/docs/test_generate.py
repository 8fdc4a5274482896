"""The parts of the documentation that come from the code: all of it is there, with its words."""

from __future__ import annotations

import re

import click
import pytest

from dlsched.api.metrics import METRICS
from dlsched.cli import main
from dlsched.config.job_schema import JobKeys
from dlsched.config.settings import setting_places, variable_name
from dlsched.model.alarms import AlarmKey
from dlsched.policies.registry import known
from docs.generate import PARTS, filled, settings


def test_a_marker_gives_way_to_its_part_and_what_is_beside_it_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(PARTS, "labels", lambda: "| a |")  # type: ignore[arg-type]
    assert filled("before\n<!-- generated: labels -->\nafter") == "before\n| a |\nafter"
    assert filled("in `<!-- generated: labels -->` text") == "in `<!-- generated: labels -->` text"


@pytest.mark.parametrize("marker", ["unheard-of", "result unheard-of"])
def test_a_part_that_does_not_exist_is_an_error(marker: str) -> None:
    with pytest.raises(KeyError, match="unheard-of"):
        filled(f"<!-- generated: {marker} -->")


def test_every_setting_is_explained_with_its_default_and_its_variable() -> None:
    told = settings.markdown()
    for place in setting_places():
        dotted = ".".join(map(str, place))
        found = re.search(rf"^#+ {re.escape(dotted)}\n\n(.*?)(?=^#|\Z)", told, re.M | re.S)
        assert found, dotted
        assert f"environment: `{variable_name(place)}`" in found[1]
        own = found[1].strip().startswith("Default:")
        assert not own or re.search(rf"^## {place[0]}\n\n\w", told, re.M), f"{dotted}: no words"


def test_an_example_in_a_settings_comment_is_a_block_of_yaml() -> None:
    assert "```yaml\ntenants:\n  everyone:\n" in settings.markdown()


def test_what_a_reload_cannot_change_is_said() -> None:
    told = settings.markdown()
    assert re.search(r"DLSCHED_GPUS_INJECTION`; changed by a restart only", told)
    assert re.search(r"`DLSCHED_PERIOD`\.", told)


def test_every_command_is_there_with_its_options() -> None:
    told = PARTS["commands"]()
    for name in main.list_commands(click.Context(main)):
        assert f"## dlsched {name}\n\n```text\ndlsched {name} " in told
    assert "## dlsched trace record" in told
    assert "| `--dry-run` |" in told
    assert "\x08" not in told
    assert "Examples:\n\n```text\ndlsched check face-unlock.yaml\n" in told


def test_every_key_of_a_job_file_is_there() -> None:
    told = PARTS["job-file"]()
    for name in JobKeys.model_fields:
        assert f"| `{name}` | " in told
    assert "| `gpus.share.max` | " in told
    assert re.search(r"\| `image` \| .* Required\. \|", told)
    assert "|  |" not in told, "a key without words"


def test_every_label_is_there() -> None:
    told = PARTS["labels"]()
    for name in ("enable", "target.deliver", "cpus.max", "weight", "metrics.pattern", "instance"):
        assert f"| `dlsched.{name}` | " in told


def test_every_policy_is_there_with_its_parameters() -> None:
    told = PARTS["policies"]()
    for name in known():
        assert f"\n## {name}\n" in told
    assert '| `mode` | `"slo"` | ' in told


def test_every_type_of_the_status_is_there_with_its_keys() -> None:
    told = PARTS["status"]()
    assert told.startswith("(status-status)=\n## Status\n")
    assert "| `jobs` | list of [JobStatus](#status-jobstatus) |" in told
    assert "| `cpu_cores` | number or null |" in told
    assert "| `schema_version` | `1` |" in told


def test_every_alarm_is_there_with_its_remedy() -> None:
    told = PARTS["alarms"]()
    for key in AlarmKey:
        assert f"| `{key.value}` | {key.meaning} | {key.remedy} |" in told


def test_every_metric_is_there_with_its_labels_and_unit() -> None:
    told = PARTS["metrics"]()
    for metric in METRICS:
        assert f"| `{metric.full_name}` | {metric.kind} | " in told
    row = "| `dlsched_job_latency_seconds` | gauge | `job_name`, `stat` | seconds | Measured "
    assert row in told


def test_every_alert_and_recorded_series_is_there() -> None:
    told = PARTS["metric-alerts"]()
    assert "| `DlschedEngineDown` | `dlsched_engine_up == 0` | 1m | critical | The " in told
    assert "`job_name` misses its latency target: N times the target." in told
    assert "{{" not in told
    assert "| `dlsched:node_free_cores` | `dlsched_node_capacity_cores - " in (
        PARTS["metric-records"]()
    )
