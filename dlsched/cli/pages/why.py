"""The page of `why`: a job's state, its history, what it waits for, and its forecasts."""

from __future__ import annotations

from dlsched.api.host_cpu import state_text, user_text
from dlsched.api.schema import JobStatus
from dlsched.api.why_schema import Explanation, NowStatus, ShadowStatus
from dlsched.api.wire_status import measurements
from dlsched.cli.pages.gpus import in_full, short
from dlsched.cli.pages.layout import GAP, Page
from dlsched.cli.pages.ps import (
    CPU_LABEL,
    blindness,
    delivered,
    latency,
    print_forecasts,
    result,
    sources,
)
from dlsched.model.bottleneck import Cause
from dlsched.model.units import render_seconds
from dlsched.store.journal.rows import Change, Event

_Row = tuple[str, str, int]
"""Text, style and indent."""


def show_why(name: str, answer: Explanation, page: Page) -> None:
    """Print the page of `why`. Changes and events are printed oldest first."""
    job, now = answer.job, answer.now
    if job is None:
        page.line(f"{name}: this job exists no longer; its history:", "bold")
    else:
        page.line(_headline(job), "bold")
        if job.bottleneck is not None:
            page.line(job.bottleneck.text, "bold red", 2)
        for label, text in in_full(job.gpu):
            page.note(label, text)
    # A job's event in a cycle is printed before the actions of that cycle.
    history = [
        (one.cycle, [(f"{one.wall_time}{GAP}{event_text(one)}", "", 2)])
        for one in reversed(answer.events)
    ]
    effects = {effect.cycle: effect.text for effect in answer.effects}
    history += [
        (one.cycle, _change(one, effects.get(one.cycle))) for one in reversed(answer.changes)
    ]
    if not history:
        page.line("no change is recorded yet", indent=2)
    for _, lines in sorted(history, key=lambda one: one[0]):
        for line in lines:
            page.line(*line)
    if job is not None:
        for reason in _reasons(job, now):
            page.note("now", reason, "bold")
        if answer.host_cpu is not None:
            page.note(CPU_LABEL, state_text(answer.host_cpu), "yellow")
            for one in answer.host_cpu.users:
                page.line(user_text(one), indent=6)
        if job.memory.text:
            page.note("memory", job.memory.text, "yellow" if job.memory.filling else "")
        if job.threads.spinning and not _says_threads(job):
            page.note("threads", job.threads.spinning, "yellow")
        print_forecasts(job, page)
        if now.shadow is not None:
            page.note(f"shadow {now.shadow.policy}", _would(now.shadow), "dim")


def _says_threads(job: JobStatus) -> bool:
    return job.bottleneck is not None and job.bottleneck.cause == Cause.THREADS


_HIDES_FAILURES = (
    "failures unknown: the job's source does not say which requests failed; if it has such a "
    "label, name it by metrics.failed; if it has a counter of failures, by metrics.errors"
)


def _headline(job: JobStatus) -> str:
    parts = [f"{job.name}: {job.state}"]
    if job.source == "container":
        parts.append("adopted")
    if job.background:
        parts.append("background")
    if job.target is not None:
        parts.append(f"target {job.target.text}")
    if job.ratio is not None or job.failing is not None or job.uncertain == "unclear":
        measured = f"measured {latency(job)} over {measurements(job.requests, job.target)}"
        parts.append(f"{measured}: {result(job).text}")
    if reached := delivered(job):
        parts.append(reached)
    return ", ".join(parts)


def _change(change: Change, effect: str | None) -> list[_Row]:
    lines = [(GAP.join((change.wall_time, *change_cells(change))), "", 2)]
    lines += [(part, "dim", 6) for part in change_reasons(change)]
    seconds = change.expected_s
    measured = effect if change.kind == "resize" else None
    expected = "" if seconds is None else f"expected {render_seconds(seconds)}"
    if shown := "; ".join(part for part in (measured, expected) if part):
        lines.append((shown, "", 6))
    return lines


def change_cells(change: Change) -> list[str]:
    """What changed, GPUs and result of a change, without what it has not. A changed limit is
    named by what it was."""
    kind = "" if change.kind in ("resize", "memory") and change.changed else change.kind
    gpus = ", ".join(short(uuid) for uuid in change.gpus.split(",") if uuid)
    cells = (kind, change.changed, gpus, change.status)
    return [cell for cell in cells if cell]


def change_reasons(change: Change) -> list[str]:
    """Why it was decided, what a guard altered, and what came of it."""
    parts = (("", change.why), ("guard: ", change.guard), ("outcome: ", change.detail))
    return [f"{label}{sentence}" for label, sentence in parts if sentence]


def event_text(event: Event) -> str:
    """What happened, and why."""
    what = f"{event.before} -> {event.after}" if event.kind == "state" else event.kind
    return f"{what}: {event.reason}" if event.reason else what


def _reasons(job: JobStatus, now: NowStatus) -> list[str]:
    """Why the job is in its present state, without what a forecast already says."""
    blind = None if job.blind and job.blind in (now.guard or "") else blindness(job)
    in_forecast = any(forecast.why == now.why for forecast in job.outlook)
    diverged = None if job.diverged is None else f"diverged: {job.diverged}"
    why = None if in_forecast else now.why
    lines = [one for one in (diverged, job.reason, job.failing, why, blind, *sources(job)) if one]
    wire = job.sidecar.wire
    if wire is not None and (job.sidecar.trouble is None or job.sidecar.trouble not in wire.text):
        lines.append(f"sockets: {wire.text}")
    if wire is not None and wire.called_by is not None:
        lines.append(f"called by: {wire.called_by}")
    if job.sidecar.hides_failures:
        lines.append(_HIDES_FAILURES)
    if now.guard:
        lines.append(f"guard: {now.guard}")
    lines += [
        f"{out.action['kind']} {out.status}: {out.detail}"
        for out in now.outcomes
        if out.status != "done"
    ]
    if not lines and in_forecast:
        return []
    if not lines and job.state == "running":
        lines.append("the job waits for the policy's next decision")
    return lines or [job.state]


def _would(shadow: ShadowStatus) -> str:
    """The limits that the shadow policy would set, and why. None of it is applied."""
    limits, parts = shadow.limits, []
    if limits is not None:
        because = f" because {shadow.why}" if shadow.why else ""
        share = f" and a GPU share of {limits.gpu_share:g}" if limits.gpu_share else ""
        parts.append(f"would give {_ceiling(limits.cpu_cores)}{share}{because}")
        if shadow.guard:
            parts.append(f"guard: {shadow.guard}")
    if shadow.trouble:
        parts.append(shadow.trouble)
    return "; ".join(parts) or "would give nothing: the job does not run"


def _ceiling(cores: float | None) -> str:
    """A limit in cores; None: there is none."""
    return "no limit" if cores is None else f"{cores:.3f} cores"
