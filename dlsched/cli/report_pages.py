"""The report as text: targets, trainings, who gave and got, changes and alarms."""

from __future__ import annotations

import re

from dlsched.api.review_schema import (
    AlarmReview,
    JobReview,
    Kept,
    PlainDocker,
    Review,
    TierReached,
    Trained,
)
from dlsched.cli.layout import Cell, Column, Page
from dlsched.model.units import counted, render_cores, render_seconds

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_NAMES_MAX = 4
_WELL, _BADLY = 0.95, 0.8
"""From the first on a target counts as kept, below the second as missed: colours only."""


def show_report(found: Review, page: Page) -> None:
    page.line(headline(found), "bold")
    for line in summary(found):
        page.line(line)
    _services(found, page)
    _trainings(found, page)
    _given(found, page)
    _changes(found, page)
    _alarms(found, page)
    notes = [*found.remarks, *guesses(found)]
    if notes:
        page.line("")
        for note in notes:
            page.note("note", note, "dim")


def headline(found: Review) -> str:
    """What the report is about."""
    jobs = counted(len(found.jobs), "job")
    until = found.ends.partition(".")[0].replace("T", " ").removesuffix("Z")
    length = render_seconds(round(found.recorded_s))
    policies = ", ".join(found.policies)
    cores = render_cores(found.capacity_cores)
    return f"{length} until {until} UTC under {policies}: {jobs} on {cores}"


def summary(found: Review) -> list[str]:
    """The most important sentences, three at most."""
    lines = []
    met = met_ratio(found)
    if met is not None:
        count = counted(len(reporting(found)), "service")
        lines.append(f"Targets were met {percent(met)} of the time with reports ({count}).")
    lines += estimate_lines(found)
    return lines


def reporting(found: Review) -> list[Kept]:
    """The services that reported, which `met_ratio` is about."""
    return [job.kept for job in found.jobs if job.kept and job.kept.met_ratio is not None]


def met_ratio(found: Review) -> float | None:
    """Over all services, of the time with reports."""
    kept = reporting(found)
    reported_s = sum(one.met_s + one.slow_s for one in kept)
    return sum(one.met_s for one in kept) / reported_s if reported_s else None


def estimated_services(found: Review) -> str:
    """The services that the estimate is about: those that reported, or a part of them."""
    count, every = found.estimate.jobs, len(reporting(found))
    return (
        f"the {counted(count, 'service')}"
        if count == every
        else f"{count} of the {counted(every, 'service')}"
    )


def estimate_lines(found: Review) -> list[str]:
    """The estimate of plain Docker in all, called so, and the model's error."""
    one = found.estimate
    if one.why_not is not None:
        return [f"Plain Docker: no estimate, {one.why_not}."]
    if one.plain_met_ratio is None or one.recorded_met_ratio is None:
        return ["Plain Docker is estimated for the trainings alone."]
    text = (
        f"Plain Docker would have met them {percent(one.plain_met_ratio)} of the time: an estimate "
        f"from the recorded load of {estimated_services(found)}; recorded of the same were "
        f"{percent(one.recorded_met_ratio)}."
    )
    lines = [text]
    if one.replayed_met_ratio is not None and one.error_ratio is not None:
        off = (
            "" if one.error_factor is None else f", latencies by a factor of {one.error_factor:.2f}"
        )
        lines.append(
            f"The model's error on this node: under the recorded limits it says "
            f"{percent(one.replayed_met_ratio)}; a service is off by "
            f"{points(one.error_ratio)} in the mean{off}."
        )
    return lines


def guesses(found: Review) -> list[str]:
    """What the estimates rest on: alike ones together, with their jobs."""
    jobs: dict[str, list[str]] = {}
    first: dict[str, str] = {}
    for job in found.jobs:
        if job.plain_docker.why_not is None:
            for remark in job.plain_docker.remarks:
                alike = _NUMBER.sub("#", remark)
                jobs.setdefault(alike, []).append(job.name)
                first.setdefault(alike, remark)
    named = [
        f"{first[alike]} ({_names(names)})" if len(names) == 1 else f"{alike} ({_names(names)})"
        for alike, names in jobs.items()
    ]
    return [f"estimate: {remark}" for remark in (*found.estimate.remarks, *named)]


def _names(names: list[str]) -> str:
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    return f"{', '.join(names[:_NAMES_MAX])}{more}"


# ---------------------------------------------------------------------- tables


def _services(found: Review, page: Page) -> None:
    rows = []
    unclear = any(job.kept.unclear_s for job in found.jobs if job.kept is not None)
    for job in worst_first(found):
        kept = job.kept
        if kept is None:
            continue
        met = "-" if kept.met_ratio is None else percent(kept.met_ratio)
        rows.append(
            (
                Cell(job.name),
                Cell(job.target or "-"),
                Cell(seconds(kept.measured_s)),
                Cell(met, _style(kept.met_ratio)),
                Cell(length(kept.slow_s)),
                Cell(length(kept.silent_s)),
                *([Cell(length(kept.unclear_s))] if unclear else []),
                Cell(f"{kept.requests}"),
                *estimate_cells(job),
            )
        )
    if rows:
        page.line("")
        columns = (
            Column("SERVICE", 4, 24),
            Column("TARGET", 6, 20),
            Column("MEASURED", right=True),
            Column("MET", right=True),
            Column("SLOW", right=True),
            Column("SILENT", right=True),
            *([Column("UNCLEAR", right=True)] if unclear else []),
            Column("REQUESTS", right=True),
            Column("MODEL ERROR", right=True),
            Column("PLAIN DOCKER, ESTIMATE", 12, wraps=True),
        )
        page.table(columns, rows)


def estimate_cells(job: JobReview) -> tuple[Cell, Cell]:
    """The model's error, and the estimate or why there is none."""
    one, kept = job.plain_docker, job.kept
    if one.why_not is not None:
        return Cell("-"), Cell(f"none: {one.why_not}", "dim")
    if kept is None:
        return Cell(trained_error(job)), Cell(trained_estimate(one))
    off = kept_error(one, kept)
    error = "-" if off is None else points(off, signed=True)
    met = "-" if one.met_ratio is None else percent(one.met_ratio)
    return Cell(error), Cell(f"met {met}, {seconds(one.measured_s)}", _style(one.met_ratio))


def kept_error(one: PlainDocker, kept: Kept) -> float | None:
    """How much more the model says that the target was met under the recorded limits."""
    if one.replayed_met_ratio is None or kept.met_ratio is None:
        return None
    return one.replayed_met_ratio - kept.met_ratio


def _trainings(found: Review, page: Page) -> None:
    rows = []
    for job in found.jobs:
        one = job.trained
        if one is None:
            continue
        deliver, finish = (reached(tier, one) for tier in one.tiers)
        value = "-" if one.value is None else f"{one.value:.4g}"
        row = (Cell(job.name), Cell(job.target or "-"), Cell(value), Cell(deliver), Cell(finish))
        rows.append((*row, *estimate_cells(job)))
    if not rows:
        return
    page.line("")
    columns = (
        Column("TRAINING", 4, 24),
        Column("TARGET", 6, 28),
        Column("LAST", right=True),
        Column("DELIVER", right=True),
        Column("FINISH", right=True),
        Column("MODEL ERROR", right=True),
        Column("PLAIN DOCKER, ESTIMATE", 12, wraps=True),
    )
    page.table(columns, rows)
    for job in found.jobs:
        if job.trained is not None and job.trained.outlook:
            page.note(job.name, job.trained.outlook)


def _given(found: Review, page: Page) -> None:
    rows = [
        (
            Cell(job.name),
            Cell(core_time(job.fair_core_s)),
            Cell(core_time(job.used_core_s)),
            Cell(
                core_time(job.borrowed_core_s),
                "green" if job.borrowed_core_s > job.lent_core_s else "",
            ),
            Cell(core_time(job.lent_core_s)),
            Cell(f"{job.changes}"),
        )
        for job in sorted(found.jobs, key=lambda one: one.lent_core_s - one.borrowed_core_s)
        if job.ran_s
    ]
    if not rows:
        return
    page.line("")
    heads = ("FAIR SHARE", "USED", "BORROWED", "LENT", "CHANGES")
    page.table(
        (Column("CPU TIME", 4, 24), *(Column(head, right=True) for head in heads)),
        rows,
    )
    page.line("borrowed: used beyond its fair share by weight; lent: used by others of it", "dim")


def _changes(found: Review, page: Page) -> None:
    changes = found.changes
    page.line("")
    page.line(changes_line(found), "bold")
    if changes.effects:
        page.line(effects_line(found), indent=2)
    for one in changes.reasons:
        page.line(f"{one.count:>7}  such as: {one.what}", indent=2)
    for change in changes.largest[:3]:
        where = f"{change.wall_time.partition('.')[0].replace('T', ' ')}  {change.job}"
        page.line(f"{where}  {change.changed}", indent=2)
        page.line(f"{change.effect}: {change.why}", "dim", 6)


def _alarms(found: Review, page: Page) -> None:
    page.line("")
    if not found.alarms:
        page.line("no alarm", "bold")
        return
    count = len(found.alarms)
    page.line(counted(count, "alarm"), "bold")
    for one in found.alarms[:10]:
        page.line(f"{one.text} ({alarm_time(one)})", "yellow" if one.raised else "", 2)
    if count > 10:
        page.line(f"{count - 10} more: --output json has all", indent=2)


# ---------------------------------------------------------------------- words


def worst_first(found: Review) -> list[JobReview]:
    """The jobs whose targets were kept least, first."""
    return sorted(
        found.jobs,
        key=lambda job: (
            2.0 if job.kept is None or job.kept.met_ratio is None else job.kept.met_ratio,
            job.name,
        ),
    )


def changes_line(found: Review) -> str:
    changes = found.changes
    kinds = ", ".join(f"{one.count} {one.what}" for one in changes.kinds)
    text = counted(changes.count, "change")
    text += f": {kinds}" if kinds else ""
    if changes.failed:
        text += f"; {changes.failed} failed or withheld"
    if changes.left_out:
        text += f"; {changes.left_out} earlier ones are not counted"
    return text


def effects_line(found: Review) -> str:
    effects = ", ".join(f"{one.count} {one.what}" for one in found.changes.effects)
    return f"before and after, of services: {effects}; no cause is claimed"


def alarm_time(one: AlarmReview) -> str:
    lasted = f"for {render_seconds(round(one.lasted_s))}" if one.lasted_s >= 1 else "for a moment"
    since = one.since.partition(".")[0].replace("T", " ")
    return f"{lasted}, first at {since}{', still raised' if one.raised else ''}"


def reached(tier: TierReached, one: Trained) -> str:
    """When a tier was reached."""
    if tier.before:
        return "before"
    if tier.reached_s is None:
        return "not yet"
    time_s = render_seconds(round(tier.reached_s))
    return f"{time_s} into the range" if one.ran_before else time_s


def trained_estimate(one: PlainDocker) -> str:
    """When plain Docker would have reached the tiers, in their order."""
    times = (one.deliver_s, one.finish_s)
    return " / ".join(
        "not reached" if time_s is None else render_seconds(round(time_s)) for time_s in times
    )


def trained_error(job: JobReview) -> str:
    """The model's times under the recorded limits, beside the recorded ones."""
    one, trained = job.plain_docker, job.trained
    if trained is None:
        return "-"
    parts = [
        f"{model_s / tier.reached_s - 1.0:+.0%}"
        for tier, model_s in zip(
            trained.tiers, (one.replayed_deliver_s, one.replayed_finish_s), strict=True
        )
        if model_s is not None and tier.reached_s
    ]
    return " / ".join(parts) or "-"


def trained_value(trained: Trained) -> str:
    value = "no value" if trained.value is None else f"{trained.metric} {trained.value:.4g}"
    return value if trained.step is None else f"{value} at step {trained.step}"


def percent(ratio: float) -> str:
    """Not 100% unless it is all."""
    if 0.995 <= ratio < 1.0:
        return f"{min(100.0 * ratio, 99.9):.1f}%"
    return f"{ratio:.0%}"


def points(ratio: float, *, signed: bool = False) -> str:
    """A difference of ratios."""
    count = round(100.0 * ratio)
    text = f"{count:+d}" if signed and count else f"{abs(count)}"
    return f"{text} point{'' if abs(count) == 1 else 's'}"


def seconds(time_s: float | None) -> str:
    return "-" if time_s is None else render_seconds(time_s)


def length(time_s: float) -> str:
    return render_seconds(round(time_s)) if time_s >= 0.5 else "-"


def core_time(core_s: float) -> str:
    """CPU time in core-hours where these are many."""
    if core_s >= 36_000.0:
        return f"{core_s / 3600.0:.0f} core-h"
    return f"{core_s / 3600.0:.2f} core-h" if core_s >= 3600.0 else f"{core_s:.0f} core-s"


def _style(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return "green" if ratio >= _WELL else "red" if ratio < _BADLY else "yellow"
