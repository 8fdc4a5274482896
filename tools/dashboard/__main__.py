"""Writes the dashboard's file."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Optional, Sequence

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models

from tools.dashboard.panels import changes, cpu, gpus, itself, targets
from tools.dashboard.parts import SOURCE
from tools.environment import ROOT

FILE = ROOT / "config" / "grafana" / "dlsched.json"


def text() -> str:
    """The dashboard as JSON."""
    made = (
        dashboard.Dashboard("dlsched")
        .uid("dlsched")
        .description("Targets, CPU, changes, forecasts, GPUs and health of dlsched.")
        .tags(["dlsched"])
        .refresh("30s")
        .time("now-1h", "now")
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")
        )
        .with_variable(
            dashboard.QueryVariable("instance")
            .label("Instance")
            .datasource(SOURCE)
            .query("label_values(dlsched_build_info, instance)")
            .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(models.VariableSort.ALPHABETICAL_ASC)
            .multi(True)
            .include_all(True)
            .all_value(".+")
            .current(models.VariableOption(text="All", value="$__all"))
        )
    )
    every = [*targets(), *cpu(), *changes(), *gpus(), *itself()]
    for place, one in enumerate(every, 1):
        if isinstance(one, dashboard.Row):
            made = made.with_row(one.id(place))
        else:
            made = made.with_panel(one.id(place).datasource(SOURCE))
    return json.dumps(made.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """Write the dashboard."""
    parser = argparse.ArgumentParser(prog="python -m tools.dashboard", description=main.__doc__)
    parser.add_argument("--output", type=Path, default=FILE)
    parser.parse_args(arguments).output.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
