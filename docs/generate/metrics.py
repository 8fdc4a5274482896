"""Every metric of `/metrics`, and every alert and recorded series of the shipped rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from dlsched.api.metrics import METRICS
from docs.generate.markdown import table
from tools.environment import ROOT

RULES = ROOT / "config" / "prometheus" / "dlsched.rules.yml"


def markdown() -> str:
    """A table of every metric."""
    rows = (
        (
            f"`{metric.full_name}`",
            metric.kind.value,
            ", ".join(f"`{label}`" for label in metric.labels),
            metric.unit,
            metric.meaning,
        )
        for metric in METRICS
    )
    return table(("metric", "type", "labels", "unit", "what it is"), rows)


def alerts() -> str:
    """A table of every alert."""
    rows = (
        (
            f"`{rule['alert']}`",
            f"`{rule['expr']}`",
            rule["for"],
            rule["labels"]["severity"],
            _plain(rule["annotations"]["summary"]),
        )
        for rule in _rules("alert")
    )
    return table(("alert", "fires while", "after", "severity", "what it says"), rows)


def records() -> str:
    """A table of every recorded series."""
    rows = ((f"`{rule['record']}`", f"`{rule['expr']}`") for rule in _rules("record"))
    return table(("recorded series", "what it is"), rows)


def _rules(kind: str) -> Iterator[Mapping[str, Any]]:
    for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]:
        yield from (rule for rule in group["rules"] if kind in rule)


def _plain(template: str) -> str:
    """The text with names in place of what Prometheus fills in."""
    named = re.sub(r"\{\{ \$labels\.(\w+) \}\}", r"`\1`", template)
    return re.sub(r"\{\{ \$value[^}]*\}\}", "N", named)
