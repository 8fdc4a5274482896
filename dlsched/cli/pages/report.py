"""The report in sections, as text and for the page: targets, trainings, who gave and got, changes
and alarms."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from dlsched.api.review_schema import JobReview, Kept, PlainDocker, Review, TierReached, Trained
from dlsched.cli.pages.layout import Cell, Column, Page
from dlsched.model.units import counted, render_cores, render_seconds

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_NAMES_MAX = 4
_WELL, _BADLY = 0.95, 0.8
"""From the first on a target counts as kept, below the second as missed: colours only."""
_LARGEST_MAX, _ALARMS_MAX = 3, 10
_ESTIMATE = (
    Column("MODEL ERROR", right=True),
    Column("PLAIN DOCKER, ESTIMATE", 12, wraps=True),
)


class Line(NamedTuple):
    """A line of a section."""

    text: str
    style: str = ""
    indent: int = 2


class Section(NamedTuple):
    """A part of the report. A table's first heading says what it is about, so that its title is for
    the page alone."""

    title: str
    columns: Sequence[Column] = ()
    rows: Sequence[Sequence[Cell]] = ()
    lines: Sequence[Line] = ()


def show_report(found: Review, page: Page) -> None:
    page.line(headline(found), "bold")
    for line in summary(found):
        page.line(line)
    for section in sections(found):
        page.line("")
        if section.rows:
            page.table(section.columns, section.rows)
        else:
            page.line(section.title, "bold")
        for text, style, indent in section.lines:
            page.line(text, style, indent)
    if remarks := notes(found):
        page.line("")
        for remark in remarks:
            page.note("note", remark, "dim")


def headline(found: Review) -> str:
    """What the report is about."""
    jobs = counted(len(found.jobs), "job")
    length = render_seconds(round(found.recorded_s))
    policies = ", ".join(found.policies)
    cores = render_cores(found.capacity_cores)
    return f"{length} until {_moment(found.ends)} UTC under {policies}: {jobs} on {cores}"


def summary(found: Review) -> list[str]:
    """The most important sentences, three at most."""
    kept = [job.kept for job in found.jobs if job.kept and job.kept.met_ratio is not None]
    reported_s = sum(one.met_s + one.slow_s for one in kept)
    lines = []
    if reported_s:
        met, count = sum(one.met_s for one in kept) / reported_s, counted(len(kept), "service")
        lines.append(f"Targets were met {_percent(met)} of the time with reports ({count}).")
    return lines + _estimate_lines(found, len(kept))


def sections(found: Review) -> list[Section]:
    """Every part of the report that has something to say."""
    tables = (_services(found), _trainings(found), _given(found))
    return [*(one for one in tables if one.rows), _changes(found), _alarms(found)]


def services(found: Review) -> list[JobReview]:
    """The jobs with a latency target, in the order of their table: those kept least first."""
    jobs = [(job, job.kept.met_ratio) for job in found.jobs if job.kept is not None]
    jobs.sort(key=lambda one: (2.0 if one[1] is None else one[1], one[0].name))
    return [job for job, _ in jobs]


def notes(found: Review) -> list[str]:
    """What limits the report, and what its estimates rest on: alike ones together, with their
    jobs."""
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
    guesses = [f"estimate: {remark}" for remark in (*found.estimate.remarks, *named)]
    return [*found.remarks, *guesses]


def _estimate_lines(found: Review, reporting: int) -> list[str]:
    """The estimate of plain Docker in all, called so, and the model's error. `reporting`: how many
    services did."""
    one = found.estimate
    if one.why_not is not None:
        return [f"Plain Docker: no estimate, {one.why_not}."]
    if one.plain_met_ratio is None or one.recorded_met_ratio is None:
        return ["Plain Docker is estimated for the trainings alone."]
    every = counted(reporting, "service")
    of = f"the {every}" if one.jobs == reporting else f"{one.jobs} of the {every}"
    met = (
        f"Plain Docker would have met them {_percent(one.plain_met_ratio)} of the time: an "
        f"estimate from the recorded load of {of}; recorded of the same were "
        f"{_percent(one.recorded_met_ratio)}."
    )
    lines = [met]
    if one.replayed_met_ratio is not None and one.error_ratio is not None:
        off = one.error_factor
        factor = "" if off is None else f", latencies by a factor of {off:.2f}"
        lines.append(
            f"The model's error on this node: under the recorded limits it says "
            f"{_percent(one.replayed_met_ratio)}; a service is off by "
            f"{_points(one.error_ratio)} in the mean{factor}."
        )
    return lines


def _names(names: list[str]) -> str:
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    return f"{', '.join(names[:_NAMES_MAX])}{more}"


# ---------------------------------------------------------------------- tables


def _services(found: Review) -> Section:
    jobs = [(job, job.kept) for job in services(found) if job.kept is not None]
    unclear = any(kept.unclear_s for _, kept in jobs)
    rows = [
        (
            Cell(job.name),
            Cell(job.target or "-"),
            Cell(_seconds(kept.measured_s)),
            _met(kept.met_ratio),
            Cell(_length(kept.slow_s)),
            Cell(_length(kept.silent_s)),
            *([Cell(_length(kept.unclear_s))] if unclear else []),
            Cell(f"{kept.requests}"),
            *_estimate_cells(job),
        )
        for job, kept in jobs
    ]
    columns = (
        Column("SERVICE", 4, 24),
        Column("TARGET", 6, 20),
        Column("MEASURED", right=True),
        Column("MET", right=True),
        Column("SLOW", right=True),
        Column("SILENT", right=True),
        *([Column("UNCLEAR", right=True)] if unclear else []),
        Column("REQUESTS", right=True),
        *_ESTIMATE,
    )
    return Section("Targets", columns, rows)


def _estimate_cells(job: JobReview) -> tuple[Cell, Cell]:
    """The model's error, and the estimate or why there is none."""
    one, kept = job.plain_docker, job.kept
    if one.why_not is not None:
        return Cell("-"), Cell(f"none: {one.why_not}", "dim")
    if kept is None:
        return Cell(_trained_error(job)), Cell(_trained_estimate(one))
    met = _met(one.met_ratio)
    estimate = Cell(f"met {met.text}, {_seconds(one.measured_s)}", met.style)
    return Cell(_kept_error(one, kept)), estimate


def _kept_error(one: PlainDocker, kept: Kept) -> str:
    """How much more the model says that the target was met under the recorded limits."""
    if one.replayed_met_ratio is None or kept.met_ratio is None:
        return "-"
    return _points(one.replayed_met_ratio - kept.met_ratio, signed=True)


def _trainings(found: Review) -> Section:
    rows, lines = [], []
    for job in found.jobs:
        one = job.trained
        if one is None:
            continue
        deliver, finish = (_reached(tier, one) for tier in one.tiers)
        value = "-" if one.value is None else f"{one.value:.4g}"
        row = (Cell(job.name), Cell(job.target or "-"), Cell(value), Cell(deliver), Cell(finish))
        rows.append((*row, *_estimate_cells(job)))
        if one.outlook:
            lines.append(Line(f"{job.name}: {one.outlook}"))
    columns = (
        Column("TRAINING", 4, 24),
        Column("TARGET", 6, 28),
        Column("LAST", right=True),
        Column("DELIVER", right=True),
        Column("FINISH", right=True),
        *_ESTIMATE,
    )
    return Section("Trainings", columns, rows, lines)


def _given(found: Review) -> Section:
    rows = [
        (
            Cell(job.name),
            Cell(_core_time(job.fair_core_s)),
            Cell(_core_time(job.used_core_s)),
            Cell(
                _core_time(job.borrowed_core_s),
                "green" if job.borrowed_core_s > job.lent_core_s else "",
            ),
            Cell(_core_time(job.lent_core_s)),
            Cell(f"{job.changes}"),
        )
        for job in sorted(found.jobs, key=lambda one: one.lent_core_s - one.borrowed_core_s)
        if job.ran_s
    ]
    heads = ("FAIR SHARE", "USED", "BORROWED", "LENT", "CHANGES")
    columns = (Column("CPU TIME", 4, 24), *(Column(head, right=True) for head in heads))
    what = "borrowed: used beyond its fair share by weight; lent: used by others of it"
    return Section("Who gave and who got", columns, rows, [Line(what, "dim", 0)])


def _changes(found: Review) -> Section:
    changes = found.changes
    kinds = ", ".join(f"{one.count} {one.what}" for one in changes.kinds)
    title = counted(changes.count, "change") + (f": {kinds}" if kinds else "")
    if changes.failed:
        title += f"; {changes.failed} failed or withheld"
    if changes.left_out:
        title += f"; {changes.left_out} earlier ones are not counted"
    lines = []
    if changes.effects:
        effects = ", ".join(f"{one.count} {one.what}" for one in changes.effects)
        lines.append(Line(f"before and after, of services: {effects}; no cause is claimed"))
    lines += [Line(f"{one.count:>7}  such as: {one.what}") for one in changes.reasons]
    for change in changes.largest[:_LARGEST_MAX]:
        lines.append(Line(f"{_moment(change.wall_time)}  {change.job}  {change.changed}"))
        lines.append(Line(f"{change.effect}: {change.why}", "dim", 6))
    return Section(title, lines=lines)


def _alarms(found: Review) -> Section:
    count, lines = len(found.alarms), []
    for one in found.alarms[:_ALARMS_MAX]:
        length = render_seconds(round(one.lasted_s))
        lasted = f"for {length}" if one.lasted_s >= 1 else "for a moment"
        when = f"{lasted}, first at {_moment(one.since)}{', still raised' if one.raised else ''}"
        lines.append(Line(f"{one.text} ({when})", "yellow" if one.raised else ""))
    if count > _ALARMS_MAX:
        lines.append(Line(f"{count - _ALARMS_MAX} more: --output json has all"))
    return Section(counted(count, "alarm") if count else "no alarm", lines=lines)


# ---------------------------------------------------------------------- words


def _moment(wall_time: str) -> str:
    return wall_time.partition(".")[0].replace("T", " ").removesuffix("Z")


def _reached(tier: TierReached, one: Trained) -> str:
    """When a tier was reached."""
    if tier.before:
        return "before"
    if tier.reached_s is None:
        return "not yet"
    time_s = render_seconds(round(tier.reached_s))
    return f"{time_s} into the range" if one.ran_before else time_s


def _trained_estimate(one: PlainDocker) -> str:
    """When plain Docker would have reached the tiers, in their order."""
    times = (one.deliver_s, one.finish_s)
    return " / ".join(
        "not reached" if time_s is None else render_seconds(round(time_s)) for time_s in times
    )


def _trained_error(job: JobReview) -> str:
    """The model's times under the recorded limits, beside the recorded ones."""
    one, tiers = job.plain_docker, () if job.trained is None else job.trained.tiers
    replayed = (one.replayed_deliver_s, one.replayed_finish_s)
    parts = [
        f"{model_s / tier.reached_s - 1.0:+.0%}"
        for tier, model_s in zip(tiers, replayed, strict=False)
        if model_s is not None and tier.reached_s
    ]
    return " / ".join(parts) or "-"


def _met(ratio: float | None) -> Cell:
    if ratio is None:
        return Cell("-")
    style = "green" if ratio >= _WELL else "red" if ratio < _BADLY else "yellow"
    return Cell(_percent(ratio), style)


def _percent(ratio: float) -> str:
    """Not 100% unless it is all."""
    if 0.995 <= ratio < 1.0:
        return f"{min(100.0 * ratio, 99.9):.1f}%"
    return f"{ratio:.0%}"


def _points(ratio: float, *, signed: bool = False) -> str:
    """A difference of ratios."""
    count = round(100.0 * ratio)
    text = f"{count:+d}" if signed and count else f"{abs(count)}"
    return f"{text} point{'' if abs(count) == 1 else 's'}"


def _seconds(time_s: float | None) -> str:
    return "-" if time_s is None else render_seconds(time_s)


def _length(time_s: float) -> str:
    return render_seconds(round(time_s)) if time_s >= 0.5 else "-"


def _core_time(core_s: float) -> str:
    """CPU time in core-hours where these are many."""
    if core_s >= 36_000.0:
        return f"{core_s / 3600.0:.0f} core-h"
    return f"{core_s / 3600.0:.2f} core-h" if core_s >= 3600.0 else f"{core_s:.0f} core-s"
