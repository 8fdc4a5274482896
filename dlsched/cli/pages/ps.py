"""The page of `ps`: the table of jobs with their forecasts, alarms, rejected files, and one line
about each node. A text always says the same as a colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dlsched.api.host_cpu import missed_beside
from dlsched.api.schema import AccuracyTargetStatus, ForecastStatus, JobStatus, Status
from dlsched.api.wire_status import measurements
from dlsched.cli.pages.gpus import in_short, show_gpus
from dlsched.cli.pages.layout import GAP, Cell, Column, Page, cropped
from dlsched.estimate.measured import REQUESTS_MIN
from dlsched.model.units import (
    counted,
    render_bytes,
    render_cores,
    render_percent,
    render_quantile,
    render_seconds,
    render_within,
)

SILENT_S = 30.0
"""A service without a report for this long gets a remark."""

REASON_COLUMNS = 32
"""With less room, reasons are printed below the table."""

HOST_COLUMNS = 24
"""Maximum width of a host's name."""

METRIC_COLUMNS = 12
"""Maximum width of a metric's name. The values beside it matter more."""

STATE_STYLE = {
    "running": "green",
    "failed": "bold red",
    "restarting": "red",
    "waiting": "yellow",
    "pulling": "cyan",
    "starting": "cyan",
    "moving": "cyan",
    "stopping": "yellow",
    "unmanaged": "yellow",
}

OVER = ("stopping", "stopped", "finished")
"""Jobs in these states are not counted in the last line."""


CPU_LABEL = "host CPU"


class _Layout(NamedTuple):
    """The columns of the table at some width."""

    name_columns: int
    whole_target: bool
    """Whether the quantile or metric is shown with the measured value."""
    forecast: bool
    memory: bool = False


_LAYOUTS = (
    _Layout(24, whole_target=True, forecast=True, memory=True),
    _Layout(24, whole_target=True, forecast=True),
    _Layout(18, whole_target=True, forecast=True),
    _Layout(18, whole_target=False, forecast=True),
    _Layout(18, whole_target=True, forecast=False, memory=True),
    _Layout(18, whole_target=True, forecast=False),
    _Layout(14, whole_target=False, forecast=False),
    _Layout(10, whole_target=False, forecast=False),
)
"""The first one that fits is used."""


def show_jobs(status: Status, page: Page) -> None:
    if status.jobs:
        _show_table(status.jobs, page)
    else:
        page.line("no jobs yet: `dlsched submit FILE` adds one")
    show_gpus(status.node.gpus, page)
    show_alarms(status, page)
    show_cpu(status, page)
    page.line(node_line(status), "" if status.engine.ok else "bold red")


def show_hosts(found: Mapping[str, Status], page: Page) -> None:
    """The jobs of all hosts in one table, then alarms and a line of each host."""
    jobs = [(host, job) for host, status in found.items() for job in status.jobs]
    if jobs:
        _show_table([job for _, job in jobs], page, [host for host, _ in jobs])
    for host, status in found.items():
        show_alarms(status, page, host)
        show_cpu(status, page, host)
    for host, status in found.items():
        page.line(f"{host}: {node_line(status)}", "" if status.engine.ok else "bold red")


def show_alarms(status: Status, page: Page, host: str = "") -> None:
    """Alarms and rejected files, each with a line or more."""
    of = f"{host}: " if host else ""
    for alarm in status.alarms:
        page.note("alarm", f"{of}{alarm}", "bold red")
    for rejected in status.rejected:
        for problem in rejected.problems:
            page.note("rejected", f"{of}{problem}", "red")


def show_cpu(status: Status, page: Page, host: str = "") -> None:
    """Who uses the host's CPU, while a target is missed."""
    if (cpu := missed_beside(status)) is not None:
        page.note(f"{host}: {CPU_LABEL}" if host else CPU_LABEL, cpu.text, "yellow")


def _show_table(jobs: Sequence[JobStatus], page: Page, hosts: Sequence[str] = ()) -> None:
    """`hosts`: of each job, in a column of its own; none: it has none."""
    has_forecasts = any(job.outlook for job in jobs)
    has_memory = any(job.memory.working_set_bytes is not None for job in jobs)
    for layout in _LAYOUTS:
        if (layout.forecast and not has_forecasts) or (layout.memory and not has_memory):
            continue
        columns, rows = _columns(layout), [_row(job, layout) for job in jobs]
        if hosts:
            columns.insert(0, Column("HOST", most=HOST_COLUMNS))
            rows = [[Cell(host), *row] for host, row in zip(hosts, rows, strict=True)]
        room = page.room(columns, rows) - len(GAP)
        if room >= (REASON_COLUMNS if layout.memory else 0):
            break
    reasons = [_reason(job, forecast_shown=layout.forecast) for job in jobs]
    if room < REASON_COLUMNS:
        page.table(columns, rows)
        for at, (job, reason) in enumerate(zip(jobs, reasons, strict=True)):
            if reason:
                page.note(f"{hosts[at]} {job.name}" if hosts else job.name, reason, "dim")
        return
    columns.append(Column("REASON", wraps=True))
    page.table(columns, [[*row, Cell(reason)] for row, reason in zip(rows, reasons, strict=True)])


def _columns(layout: _Layout) -> list[Column]:
    return [
        Column("NAME", most=layout.name_columns),
        Column("STATE", least=7, most=10 if layout.whole_target else 7),
        Column("MEASURED / TARGET" if layout.whole_target else "TARGET", most=32, right=True),
        Column("RESULT"),
        *([Column("FORECAST", most=FORECAST_COLUMNS)] if layout.forecast else []),
        Column("CPU / LIMIT"),
        *([Column("MEMORY / LIMIT", right=True)] if layout.memory else []),
    ]


def _row(job: JobStatus, layout: _Layout) -> list[Cell]:
    return [
        Cell(job.name),
        Cell(job.state, STATE_STYLE.get(job.state, "")),
        Cell(measured_against_target(job, whole=layout.whole_target)),
        result(job),
        *([forecast_cell(job)] if layout.forecast else []),
        cpu_and_limit(job),
        *([_memory_and_limit(job)] if layout.memory else []),
    ]


def measured_against_target(job: JobStatus, *, whole: bool = True) -> str:
    """`p95 42.6 ms / 50 ms`, or `accuracy 0.87 / 0.9` (the next value to reach); `-`: neither."""
    target = job.target
    if isinstance(target, AccuracyTargetStatus):
        reached = job.tiers is not None and job.tiers.delivered is not None
        measured = "-" if job.metric is None else f"{job.metric:.4g}"
        asked = f"{target.finish if reached else target.deliver:g}"
        which = cropped(target.metric, METRIC_COLUMNS)
    else:
        quantile = None if target is None else target.quantile
        which = render_quantile(quantile)
        measured = latency(job)
        asked = "" if target is None else render_seconds(target.seconds)
    if not asked:
        return measured if measured == "-" or not whole else f"{which} {measured}"
    return f"{which} {measured} / {asked}" if whole else f"{measured} / {asked}"


def latency(job: JobStatus) -> str:
    """`42.6 ms`, or between what it lies; `-`: unknown."""
    if job.measured_s is not None:
        return render_seconds(job.measured_s)
    return "-" if job.lowest_s is None else render_within(job.lowest_s, job.highest_s)


def result(job: JobStatus) -> Cell:
    """Whether the target is met: OK, LATE +63% or UNCLEAR; NOT YET, DIVERGED, DELIVERED or FINISHED
    for a training. A latency of which only a lower bound is known is LATE > +63%."""
    if job.tiers is not None and job.tiers.finished is not None:
        return Cell("FINISHED", "green")
    if job.tiers is not None and job.tiers.delivered is not None and job.diverged is None:
        return Cell("DELIVERED", "green")
    if job.diverged is not None:
        return Cell("DIVERGED", "bold red")
    if job.metric is not None:
        return Cell("NOT YET", "yellow")
    if job.failing is not None:
        return Cell("LATE", "bold red")
    if job.ratio is None:
        return Cell("UNCLEAR", "yellow") if job.uncertain == "unclear" else Cell("-", "dim")
    if job.satisfied_slo:
        return Cell("OK", "green")
    style = "yellow" if job.satisfied_band else "bold red"
    if job.measured_s is None:
        return Cell(f"LATE > {_excess(job.ratio, 0.0)}", style)
    return Cell(f"LATE {_excess(job.ratio)}", style)


def _excess(ratio: float, least: float = 0.01) -> str:
    if ratio < 2:
        return f"+{max(ratio - 1, least):.0%}"
    return f"{ratio:.1f}x" if ratio < 10 else f"{min(ratio, 999):.0f}x"


def cpu_and_limit(job: JobStatus) -> Cell:
    used, limit = job.cpu.usage_cores, job.cpu.actual_cores
    if job.container is None:
        return Cell("-", "dim")
    now = "?" if used is None else f"{used:.2f}"
    return Cell(f"{now:>4} / {'none' if limit is None else f'{limit:.2f}'}")


def _memory_and_limit(job: JobStatus) -> Cell:
    used, limit = job.memory.working_set_bytes, job.memory.limit_bytes
    if used is None:
        return Cell("-", "dim")
    text = f"{render_bytes(used)} / {'none' if limit is None else render_bytes(limit)}"
    if job.memory.max_bytes is not None and job.memory.max_bytes > (limit or 0):
        text += f" (to {render_bytes(job.memory.max_bytes)})"
    return Cell(text, "yellow" if job.memory.filling else "")


def _reason(job: JobStatus, *, forecast_shown: bool) -> str:
    parts = [
        None if job.bottleneck is None else f"bottleneck: {job.bottleneck.cause}",
        "adopted" if job.source == "container" else "",
        "background" if job.background else "",
        None if job.diverged is None else f"diverged: {job.diverged}",
        delivered(job),
        job.reason,
        blindness(job),
        *sources(job),
        None if job.uncertain else expectation(job, shown=forecast_shown),
        in_short(job.gpu),
    ]
    target = job.target
    if job.state == "running" and target is not None and target.kind == "latency":
        parts.append(None if job.uncertain else _missing_reports(job))
        if job.in_flight and job.oldest_s > target.seconds and job.ratio is None:
            parts.append(f"a request has waited {render_seconds(job.oldest_s)} for its answer")
    parts.append(job.failing)
    if job.errors:
        parts.append(counted(job.errors, "error"))
    return "; ".join(part for part in parts if part)


def sources(job: JobStatus) -> list[str]:
    sidecar, log, parts = job.sidecar, job.sidecar.log, []
    if sidecar.trouble is not None and sidecar.trouble not in (job.blind or ""):
        parts.append(sidecar.trouble)
    if sidecar.lacks is not None and job.blind is None:
        parts.append(sidecar.lacks)
    if log is not None and log.lines and not log.matched:
        first = "" if log.example is None else f"; the first line: {log.example}"
        parts.append(f"none of {log.lines} lines of the log matches the pattern{first}")
    if sidecar.wire is not None and sidecar.wire.contradiction is not None:
        parts.append(sidecar.wire.contradiction)
    if sidecar.bad_lines:
        why = "" if sidecar.refused is None else f", the first: {sidecar.refused}"
        parts.append(f"{counted(sidecar.bad_lines, 'bad line')}{why}")
    return parts


def blindness(job: JobStatus) -> str | None:
    """Why a job is blind, unclear or idle; None: it is none of these, or `failing` says why."""
    kind, why = job.uncertain, job.blind or job.idle
    if job.failing is not None:
        return None
    return why if kind is None or kind == "unclear" else f"{kind}: {why}"


def _missing_reports(job: JobStatus) -> str | None:
    """Why a service's latency is uncertain, if so. A service without requests may be silent."""
    age_s = job.sidecar.age_s
    if age_s is None:
        return "no report yet"
    if age_s > SILENT_S:
        return f"no report for {render_seconds(age_s)}"
    if job.requests < REQUESTS_MIN:
        return f"{measurements(job.requests, job.target)} measured, {REQUESTS_MIN} needed"
    return None


def delivered(job: JobStatus) -> str:
    """Since when a training can be delivered, and its evaluation; empty: it cannot yet."""
    if job.tiers is None or job.tiers.delivered is None:
        return ""
    tier = job.tiers.delivered
    return f"deliverable for {render_seconds(tier.age_s)}: {tier.text}"


def node_line(status: Status) -> str:
    node = status.node
    present = [job for job in status.jobs if job.target and job.state not in OVER]
    services = [job for job in present if job.target and job.target.kind == "latency"]
    trainings = [job.tiers for job in present if job.tiers is not None]
    in_time = sum(job.satisfied_slo is True for job in services)
    in_band = sum(job.satisfied_band is True for job in services)
    done = sum(tiers.delivered is not None for tiers in trainings)
    shadow = f", shadow {status.shadow}" if status.shadow else ""
    limits = f"CPU limits add up to {node.given_cores:.2f} cores"  # may exceed the capacity
    if node.unlimited_jobs:
        limits += f", {counted(node.unlimited_jobs, 'job')} without a limit"
    parts = [
        f"policy {status.policy}{shadow}",
        f"{in_time} of {len(services)} services OK, {in_band} within 10 % of target"
        if services
        else "",
        f"{done} of {counted(len(trainings), 'training')} delivered" if trainings else "",
        f"{_capacity(status)}, {node.used_cores:.2f} used, {limits}",
        "engine ok" if status.engine.ok else "engine does not answer",
    ]
    return " | ".join(part for part in parts if part)


def _capacity(status: Status) -> str:
    """What jobs may use, and why that is less than the host's CPUs or not known."""
    node = status.node
    cores = render_cores(node.capacity_cores)
    bound = f" ({node.bound_by})" if node.bound_by else ""
    if node.throttled_ratio:
        return f"capacity unknown: throttled from outside, at most {cores}{bound}"
    return f"capacity {cores}{bound}"


FORECAST_COLUMNS = 20

_STYLE = {"met": "green", "crowded": "yellow", "impossible": "bold red", "unlikely": "yellow"}


def forecast_cell(job: JobStatus) -> Cell:
    """The forecast of the next target that is not met; a blind or idle job has none, nor one of
    which too many requests fail."""
    forecast = _next(job)
    if job.failing is not None:
        ratio = job.errors / max(job.requests + job.errors, 1)
        return Cell(f"{render_percent(ratio)} fail", "bold red")
    if job.uncertain is not None:
        return Cell(job.uncertain, "dim" if job.uncertain == "idle" else "yellow")
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
