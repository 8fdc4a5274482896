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


def names_of(group: click.Group) -> list[str]:
    return group.list_commands(click.Context(group))


WORDS: dict[str, list[str]] = {
    "commands": [
        *(f"## dlsched {name}\n\n```text\ndlsched {name} " for name in names_of(main)),
        "## dlsched trace record",
        "| `--dry-run` |",
        "Examples:\n\n```text\ndlsched check face-unlock.yaml\n",
    ],
    "job-file": [*(f"| `{name}` | " for name in JobKeys.model_fields), "| `gpus.share.max` | "],
    "labels": [
        f"| `dlsched.{name}` | "
        for name in ("enable", "target.deliver", "cpus.max", "weight", "metrics.pattern")
    ],
    "policies": [*(f"\n## {name}\n" for name in known()), '| `mode` | `"slo"` | '],
    "status": [
        "(status-status)=\n## Status\n",
        "| `jobs` | list of [JobStatus](#status-jobstatus) |",
        "| `cpu_cores` | number or null |",
        "| `schema_version` | `1` |",
    ],
    "alarms": [f"| `{key.value}` | {key.meaning} | {key.remedy} |" for key in AlarmKey],
    "metrics": [
        *(f"| `{metric.full_name}` | {metric.kind} | " for metric in METRICS),
        "| `dlsched_job_latency_seconds` | gauge | `job_name`, `stat` | seconds | Measured ",
    ],
    "metric-alerts": [
        "| `DlschedEngineDown` | `dlsched_engine_up == 0` | 1m | critical | The ",
        "`job_name` misses its latency target: N times the target.",
    ],
    "metric-records": ["| `dlsched:node_free_cores` | `dlsched_node_capacity_cores - "],
}
"""What a reader finds in each part."""
UNWANTED = {"commands": "\x08", "job-file": "|  |", "metric-alerts": "{{"}
"""Of click's help, of a key without words, and of Prometheus' templates."""


@pytest.mark.parametrize("part", WORDS)
def test_all_that_the_code_has_is_there_with_its_words(part: str) -> None:
    told = PARTS[part]()  # type: ignore[index]
    assert [one for one in WORDS[part] if one not in told] == []
    assert UNWANTED.get(part, "\0") not in told


def test_a_required_key_of_a_job_file_is_called_so() -> None:
    assert re.search(r"\| `image` \| .* Required\. \|", PARTS["job-file"]())
