"""The report as one page: no script, no request, everything escaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from importlib.resources import files

from dlsched.api.review_schema import JobReview, JudgedChange, Review
from dlsched.cli import report_pages as terms
from dlsched.cli import report_plots as plots
from dlsched.cli.report_plots import escaped
from dlsched.model.units import counted

_CHARTS_MAX = 12
"""Services whose course is drawn as a line too: the worst ones."""
_ROWS_MAX = 300
"""Rows of one table; `max_jobs` is at most a few hundred."""
_SECONDS_S = 900.0
"""Below this length, times of day have seconds."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_METHOD = (
    "How it is made: each job's work, requests and starts are taken from the record and simulated "
    "on the same cores without limits. The model's error is what the same simulation under the "
    "recorded limits differs by from the record."
)
_EFFECTS = {
    "helped": "met",
    "slower, still on target": "fast",
    "slower": "slow",
    "no effect": "rest",
    "too few requests": "none",
    "not judged": "none",
    "not yet": "none",
}


def page_of(found: Review) -> str:
    """The whole page."""
    until = found.ends.partition(".")[0].replace("T", " ")
    style = files("dlsched.cli").joinpath("report.css").read_text(encoding="utf-8")
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer"><link rel="icon" href="data:,">'
        f"<title>dlsched report, {escaped(until)}</title><style>{style}</style></head>"
    )
    ticks = _ticks(found)
    parts = (
        plots.hatch(),
        "<main>",
        _top(found),
        _services(found, ticks),
        _charts(found, ticks),
        _trainings(found),
        _node(found, ticks),
        _given(found),
        _changes(found),
        _alarms(found),
        _estimate(found),
        _foot(found),
        "</main>",
    )
    return f"{head}<body>{''.join(parts)}</body></html>\n"


# ---------------------------------------------------------------------- parts


def _top(found: Review) -> str:
    lines = terms.summary(found)
    return (
        '<header><p class="brand">dlsched report</p>'
        f"<h1>{escaped(_title(found))}</h1><p>{escaped(terms.headline(found))}</p></header>"
        f'<div class="cards">{"".join(_cards(found))}</div>'
        + ("" if found.estimate.why_not is None else paragraph(lines[-1], "lead"))
    )


def _title(found: Review) -> str:
    met = terms.met_ratio(found)
    if met is None:
        return "No service reported in this time"
    return f"Targets were met {terms.percent(met)} of the time"


def _cards(found: Review) -> Iterator[str]:
    met, one = terms.met_ratio(found), found.estimate
    if met is not None:
        count = counted(len(terms.reporting(found)), "service")
        yield _card(terms.percent(met), f"of the time with reports on target, {count}")
    if one.plain_met_ratio is not None:
        yield _card(
            terms.percent(one.plain_met_ratio),
            f"plain Docker: an estimate, not measured, {terms.estimated_services(found)}",
            "estimate",
        )
    if one.error_ratio is not None:
        yield _card(
            f"±{terms.points(one.error_ratio)}",
            "error of the estimate for plain Docker, on this node",
            "estimate",
        )
    if found.observed_s and found.capacity_cores:
        used = found.used_core_s / (found.capacity_cores * found.observed_s)
        yield _card(
            terms.percent(min(used, 1.0)), f"of {found.capacity_cores:g} cores used by jobs"
        )
    yield _card(f"{found.changes.count}", "changes of limits, starts and ends")
    raised = sum(alarm.raised for alarm in found.alarms)
    if found.alarms:
        yield _card(f"{len(found.alarms)}", f"alarms, {raised} still raised")


def _card(number: str, label: str, kind: str = "") -> str:
    classes = f"card {kind}".strip()
    return f'<div class="{classes}"><b>{escaped(number)}</b><span>{escaped(label)}</span></div>'


def _services(found: Review, ticks: Sequence[tuple[float, str]]) -> str:
    jobs = [job for job in terms.worst_first(found) if job.kept is not None][:_ROWS_MAX]
    if not jobs:
        return ""
    rows = [_service_row(job) for job in jobs]
    shown = ticks[::2] if found.recorded_s < _SECONDS_S else ticks
    axis = f'<tr class="axis"><td colspan="5"></td><td>{plots.time_axis(shown)}</td></tr>'
    heads = (
        "Service", "n:Measured", "Share of time", "n:Met", "Plain Docker, estimate", "Over time",
    )  # fmt: skip
    marks = legend(
        (
            ("fast", "at most half of the target"), ("met", "on target"),
            ("near", "up to 10% slower"), ("slow", "slower"), ("bad", "more than twice"),
            ("silent", "silent, too few requests, or unclear"), ("none", "did not run"),
            ("plain", "plain Docker, an estimate"),
        )
    )  # fmt: skip
    lead = "Worst first. The hatched bar is an estimate; its whisker is the model's error."
    return section("Targets", lead, f"{table(heads, (*rows, axis))}{marks}")


def _service_row(job: JobReview) -> str:
    kept, plain = job.kept, job.plain_docker
    assert kept is not None
    met = "-" if kept.met_ratio is None else terms.percent(kept.met_ratio)
    error = terms.kept_error(plain, kept)
    times = {
        "slow": kept.slow_s,
        "failing": kept.failing_s,
        "silent": kept.silent_s,
        "unclear": kept.unclear_s,
    }
    beside = [f"{what} {terms.length(time_s)}" for what, time_s in times.items() if time_s >= 0.5]
    measured = escaped(terms.seconds(kept.measured_s))
    bar = plots.kept_bar(kept.met_ratio, plain.met_ratio, error)
    return (
        f"<tr>{_named(job)}"
        f'<td class="n">{measured}<small class="soft">{kept.requests} requests</small></td>'
        f'<td class="bar">{bar}</td>'
        f'<td class="n">{met}<small class="soft">{escaped(", ".join(beside))}</small></td>'
        f"{_estimated(job, error)}"
        f'<td class="course">{plots.strip(job, f"{job.name} over time")}</td></tr>'
    )


def _named(job: JobReview) -> str:
    adopted = ", adopted" if job.adopted else ""
    below = f"{job.target or 'no target'}{adopted}"
    return f'<td class="name">{escaped(job.name)}<small>{escaped(below)}</small></td>'


def _estimated(job: JobReview, error: float | None) -> str:
    plain = job.plain_docker
    if plain.why_not is not None:
        return f'<td class="why">no estimate: {escaped(plain.why_not)}</td>'
    met = "-" if plain.met_ratio is None else terms.percent(plain.met_ratio)
    off = "" if error is None else f"model error {terms.points(error, signed=True)}"
    return (
        f"<td>about {met}, {escaped(terms.seconds(plain.measured_s))}"
        f'<small class="soft">{escaped(off)}</small></td>'
    )


def _charts(found: Review, ticks: Sequence[tuple[float, str]]) -> str:
    jobs = [job for job in terms.worst_first(found) if any(job.ratio)][:_CHARTS_MAX]
    if not jobs:
        return ""
    few = (ticks[0], ticks[-1]) if len(ticks) > 1 else tuple(ticks)
    figures = [
        f"<figure><figcaption>{escaped(job.name)} <span>{escaped(job.target or '')}</span>"
        f"</figcaption>{plots.ratio_chart(job.ratio, few, f'{job.name}: measured over target')}"
        "</figure>"
        for job in jobs
    ]
    lead = (
        "Measured over target, logarithmic; above the dashed line it is slower than its target. "
        "A gap is silence."
    )
    return section("Latency over target", lead, f'<div class="small">{"".join(figures)}</div>')


def _trainings(found: Review) -> str:
    jobs = [job for job in found.jobs if job.trained is not None][:_ROWS_MAX]
    if not jobs:
        return ""
    times = [
        time_s
        for job in jobs
        for time_s in (*_recorded(job), job.plain_docker.deliver_s, job.plain_docker.finish_s)
        if time_s is not None
    ]
    longest_s = max(times, default=0.0)
    rows = []
    for job in jobs:
        one, plain = job.trained, job.plain_docker
        assert one is not None
        deliver, finish = (terms.reached(tier, one) for tier in one.tiers)
        outlook = one.outlook or terms.trained_value(one)
        if plain.why_not is None:
            estimate = (
                f"<td>{escaped(terms.trained_estimate(plain))}"
                f'<small class="soft">model error {escaped(terms.trained_error(job))}</small></td>'
            )
        else:
            estimate = f'<td class="why">no estimate: {escaped(plain.why_not)}</td>'
        chart = plots.reached_chart(_recorded(job), (plain.deliver_s, plain.finish_s), longest_s)
        rows.append(
            f'<tr>{_named(job)}<td class="n">{escaped(deliver)}</td><td class="n">{escaped(finish)}'
            f'</td>{estimate}<td class="course">{chart}'
            f'<small class="soft">{escaped(outlook)}</small></td></tr>'
        )
    lead = (
        f"Time from its start to the two tiers, on a scale of {terms.length(longest_s)}."
        if longest_s
        else "No training reached a tier in this time."
    )
    heads = ("Training", "n:Deliver", "n:Finish", "Plain Docker, estimate", "When")
    marks = legend(
        (
            ("fast", "deliver (circle)"),
            ("met", "finish (diamond)"),
            ("hollow", "plain Docker, an estimate"),
        )
    )
    return section("Trainings", lead, f"{table(heads, rows)}{marks}")


def _recorded(job: JobReview) -> tuple[float | None, ...]:
    """Times from its start, where that is known."""
    assert job.trained is not None
    if job.trained.ran_before:
        return (None, None)
    return tuple(tier.reached_s for tier in job.trained.tiers)


def _node(found: Review, ticks: Sequence[tuple[float, str]]) -> str:
    jobs = sorted((job for job in found.jobs if job.used_core_s), key=lambda one: -one.used_core_s)
    if not jobs:
        return ""
    named = [(kind, job.name) for kind, job in zip(plots.LAYERS, jobs, strict=False)]
    if len(jobs) > len(plots.LAYERS):
        named.append(("rest", f"{len(jobs) - len(plots.LAYERS)} others"))
    lead = "Used cores, the largest users below; the dashed line is the node's capacity for jobs."
    chart = plots.stacked(jobs, found.capacity_cores, ticks)
    return section("Who used the CPU", lead, f"{chart}{legend(named)}")


def _given(found: Review) -> str:
    jobs = sorted(
        (job for job in found.jobs if job.ran_s),
        key=lambda one: one.lent_core_s - one.borrowed_core_s,
    )[:_ROWS_MAX]
    if not jobs:
        return ""
    most = max(max(job.borrowed_core_s, job.lent_core_s) for job in jobs)
    rows = [
        f'<tr>{_named(job)}<td class="n">{terms.core_time(job.fair_core_s)}</td>'
        f'<td class="n">{terms.core_time(job.used_core_s)}</td>'
        f'<td class="n">{terms.core_time(job.lent_core_s)}</td>'
        f'<td class="course">{plots.diverging(job.borrowed_core_s, job.lent_core_s, most)}</td>'
        f'<td class="n">{terms.core_time(job.borrowed_core_s)}</td></tr>'
        for job in jobs
    ]
    heads = ("Job", "n:Fair share", "n:Used", "n:Lent", "", "n:Borrowed")
    lead = (
        "The fair share is the node divided by weight among the jobs that run, within floors and "
        "ceilings. Borrowed: used beyond it. Lent: used by others of it."
    )
    return section("Who gave and who got", lead, table(heads, rows))


def _changes(found: Review) -> str:
    changes = found.changes
    body = []
    if changes.effects:
        kinds = [_EFFECTS.get(one.what, "rest") for one in changes.effects]
        body.append("<h3>Measured before and after, of services</h3>")
        body.append(plots.effects_bar(changes.effects, kinds))
        body.append(
            legend(
                (kind, f"{one.count} {one.what}")
                for kind, one in zip(kinds, changes.effects, strict=True)
            )
        )
    if changes.reasons:
        rows = [
            f'<tr><td class="n">{one.count}</td><td>{escaped(one.what)}</td></tr>'
            for one in changes.reasons
        ]
        body.append(f"<h3>Reasons, by an example each</h3>{table(('n:Changes', 'Such as'), rows)}")
    if changes.largest:
        rows = [_largest(one) for one in changes.largest]
        heads = ("n:Time", "Job", "Before and after")
        body.append(f"<h3>The largest differences</h3>{table(heads, rows)}")
    lead = (
        f"{terms.changes_line(found)}. What was measured in the 30 s before and from 10 to 40 s "
        "after a change; no cause is claimed."
    )
    return section("Changes", lead, "".join(body))


def _largest(one: JudgedChange) -> str:
    return (
        f'<tr><td class="n">{escaped(_clock(one.wall_time))}</td>'
        f'<td class="name">{escaped(one.job)}<small>{escaped(one.changed)}</small></td>'
        f'<td>{escaped(one.effect)}<small class="soft">{escaped(one.why)}</small></td></tr>'
    )


def _alarms(found: Review) -> str:
    if not found.alarms:
        return section("Alarms", "None in this time.", "")
    rows = [
        f'<p class="alarm{" raised" if one.raised else ""}">{escaped(one.text)}'
        f'<small class="soft">{escaped(terms.alarm_time(one))}</small></p>'
        for one in found.alarms
    ]
    return section("Alarms", "", "".join(rows))


def _estimate(found: Review) -> str:
    lines = (*terms.estimate_lines(found), _METHOD, *terms.guesses(found))
    body = bullets(lines)
    if found.remarks:
        body += f"<h3>What limits this report</h3>{bullets(found.remarks)}"
    return section("About the estimate of plain Docker", "", body, _TAG)


def _foot(found: Review) -> str:
    return (
        f"<footer>{escaped(found.begins)} to {escaped(found.ends)}, {found.cycles} cycles, "
        f"slices of {found.slice_s:g} s. Times of day are UTC.</footer>"
    )


# ---------------------------------------------------------------------- times


def _clock(wall_time: str) -> str:
    return wall_time.partition("T")[2].partition(".")[0] or wall_time


def _ticks(found: Review) -> list[tuple[float, str]]:
    """Times of day at fractions of the range; seconds for a short one."""
    try:
        begins = datetime.fromisoformat(found.begins)
    except ValueError:
        return []
    form = "%H:%M:%S" if found.recorded_s < _SECONDS_S else "%H:%M"
    return [
        (part, (begins + timedelta(seconds=part * found.recorded_s)).strftime(form))
        for part in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]


_TAG = '<span class="tag">estimate</span>'


def section(title: str, lead: str, body: str, tag: str = "") -> str:
    text = paragraph(lead, "lead") if lead else ""
    return f"<section><h2>{escaped(title)}{tag}</h2>{text}{body}</section>"


def paragraph(text: str, kind: str) -> str:
    return f'<p class="{kind}">{escaped(text)}</p>'


def bullets(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{escaped(line)}</li>" for line in lines)
    return f'<ul class="plain-list">{items}</ul>'


def table(heads: Sequence[str], rows: Iterable[str]) -> str:
    """`n:` before a heading: its column is aligned to the right."""
    cells = "".join(
        f'<th class="n" scope="col">{escaped(head[2:])}</th>'
        if head.startswith("n:")
        else f'<th scope="col">{escaped(head)}</th>'
        for head in heads
    )
    body = f"<thead><tr>{cells}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<div class="scroll"><table>{body}</table></div>'


def legend(named: Iterable[tuple[str, str]]) -> str:
    items = []
    for kind, label in named:
        mark = plots.svg(12, 12, [plots.rect(0.5, 0.5, 11, 11, kind, 2)], label)
        items.append(f"<li>{mark}{escaped(label)}</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'
