"""Forecasts in `ps` and `why`."""

from __future__ import annotations

from dlsched.api.schema import ForecastStatus, JobStatus
from dlsched.cli.layout import Cell, Page

FORECAST_COLUMNS = 20

_STYLE = {"met": "green", "crowded": "yellow", "impossible": "bold red", "unlikely": "yellow"}


def forecast_cell(job: JobStatus) -> Cell:
    """The forecast of the next target that is not met; a blind job has none."""
    forecast = _next(job)
    if job.blind is not None:
        return Cell("blind", "yellow")
    if forecast is None:
        return Cell("-", "dim")
    return Cell(forecast.text, _style(forecast))


def expectation(job: JobStatus, *, shown: bool) -> str | None:
    """The jobs that would have to give cores, else the forecast if it has no column."""
    forecast = _next(job)
    if forecast is None or forecast.kind == "met":
        return None
    if forecast.givers:
        return f"needs {forecast.givers}"
    return None if shown or forecast.kind == "unknown" else forecast.text


def print_forecasts(job: JobStatus, page: Page) -> None:
    """Print a line for each target. For a blind job, it is the forecast from before."""
    for forecast in job.outlook:
        past = " before" if job.blind and forecast.kind != "unknown" else ""
        style = "dim" if past else _style(forecast)
        page.note(f"forecast {forecast.tier}{past}", forecast.sentence, style)


def _next(job: JobStatus) -> ForecastStatus | None:
    still_open = [one for one in job.outlook if one.kind != "met"]
    return still_open[0] if still_open else job.outlook[-1] if job.outlook else None


def _style(forecast: ForecastStatus) -> str:
    return "dim" if forecast.kind == "unknown" else _STYLE.get(forecast.kind, "")
