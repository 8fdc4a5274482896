"""What the dashboard's panels have in common: units, selectors, colours, and three shapes."""

from __future__ import annotations

from string import ascii_uppercase
from typing import Any, Optional

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models

RATIO, CORES, SECONDS, BYTES, PER_MINUTE, PLAIN = (
    "percentunit",
    "suffix: cores",
    "s",
    "bytes",
    "cpm",
    "none",
)
"""Grafana's names of units."""

WIDTH = 24
"""Columns of Grafana's grid."""
HEIGHT = 8
"""Rows of the grid that a panel has."""
RATE = "$__rate_interval"
"""At least four scrape intervals, by Grafana."""
SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")


def of(metric: str, *matchers: str) -> str:
    """A selector of the chosen instances' series."""
    chosen = ", ".join(('instance=~"$instance"', *matchers))
    return f"dlsched_{metric}{{{chosen}}}"


def query(expression: str, legend: str, *, place: str = "A", instant: bool = False) -> Any:
    """A query, over time or of now. `place` is its letter in the panel."""
    made = (
        prometheus.Dataquery()
        .expr(expression)
        .legend_format(legend)
        .datasource(SOURCE)
        .ref_id(place)
    )
    return made.instant() if instant else made.range()


def thresholds(*steps: tuple[Optional[float], str]) -> Any:
    """Colours from those values on; None: from the lowest."""
    return (
        dashboard.ThresholdsConfig()
        .mode(models.ThresholdsMode.ABSOLUTE)
        .steps([models.Threshold(value=value, color=colour) for value, colour in steps])
    )


def number(title: str, unit: str, expression: str, colours: Any, meaning: str) -> Any:
    """A panel of the last value by instance."""
    return (
        stat.Panel()
        .title(title)
        .description(meaning)
        .unit(unit)
        .thresholds(colours)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .with_target(query(expression, "{{instance}}", instant=True))
        .height(HEIGHT // 2)
        .span(WIDTH // 6)
    )


def lines(title: str, unit: str, meaning: str, *targets: tuple[str, str]) -> Any:
    """A panel of series over time: expressions with their legends. Silence is a gap."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(meaning)
        .unit(unit)
        .span_nulls(False)
        .legend(
            common.VizLegendOptions()
            .show_legend(True)
            .display_mode(common_models.LegendDisplayMode.LIST)
            .placement(common_models.LegendPlacement.BOTTOM)
        )
        .tooltip(
            common.VizTooltipOptions()
            .mode(common_models.TooltipDisplayMode.MULTI)
            .sort(common_models.SortOrder.DESCENDING)
        )
        .height(HEIGHT)
        .span(WIDTH // 2)
    )
    for letter, (expression, legend) in zip(ascii_uppercase, targets, strict=False):
        panel = panel.with_target(query(expression, legend, place=letter))
    return panel


def stacked(panel: Any) -> Any:
    """The panel with its series on top of each other, as steps: a limit is a step."""
    return (
        panel.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL).group("A"))
        .line_interpolation(common_models.LineInterpolation.STEP_AFTER)
        .fill_opacity(40)
        .min(0)
    )
