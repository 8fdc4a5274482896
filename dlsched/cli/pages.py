"""What `ps` and `why` look like.

Owns their tables and words, but for those of GPUs and outlooks. It must not ask anybody: it is
handed the daemon's answers. Beside `gpu_pages`, `forecast_pages` and `texts` nothing imports rich.
Colour never stands alone: a word says the same.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dlsched.api.status import REQUESTS_MIN
from dlsched.cli.forecast_pages import OUTLOOK_COLUMNS, expectation, foretold_cell, outlook_lines
from dlsched.cli.gpu_pages import in_full, in_short, shares, short, show_gpus
from dlsched.cli.output import clean
from dlsched.cli.texts import WIDE_COLUMNS, note, text
from dlsched.model.units import render_cores, render_seconds

PIPED_COLUMNS = 120
"""Width where there is no terminal to ask."""

NARROW_COLUMNS = 76
"""Below, an outlook has no column either."""

SILENT_S = 30.0
"""A sidecar silent for so long is worth a word."""

_STATE_STYLE = {
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


@dataclass(frozen=True, slots=True)
class _Layout:
    """What the table of `ps` has room for beside what one came for."""

    has_target: bool
    name_columns: int
    state_columns: int


_LAYOUTS = (_Layout(True, 18, 10), _Layout(False, 18, 10), _Layout(False, 14, 7))
"""The first that fits; the target itself gives way: how well it is kept is told beside it."""


def console() -> Console:
    """A console on stdout that honours NO_COLOR and COLUMNS, and does not truncate in a pipe."""
    made = Console(highlight=False, markup=False, emoji=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = PIPED_COLUMNS
    return made


_OVER = ("stopping", "stopped", "finished")
"""Nobody waits for these jobs' answers."""


# --------------------------------------------------------------------------- ps


def show_jobs(status: Mapping[str, Any], out: Console) -> None:
    """The table of `ps`, what is wrong, and one line on the whole node."""
    jobs = status["jobs"]
    foretold = any(job["outlook"] for job in jobs) and out.width >= NARROW_COLUMNS
    wide = out.width >= WIDE_COLUMNS + (OUTLOOK_COLUMNS if foretold else 0)
    if jobs:
        unbounded = out.options.update(max_width=10 * WIDE_COLUMNS)
        for layout in _LAYOUTS:
            table = _jobs_table(jobs, foretold, wide=wide, layout=layout)
            if wide or out.measure(table, options=unbounded).maximum <= out.width:
                break
        out.print(table)
    else:
        out.print("no jobs yet: `dlsched submit FILE` adds one")
    if not wide:
        for job in jobs:
            if reason := _reason(job, foretold):
                out.print(note(job["name"], reason, "dim"))
    show_gpus(status["node"]["gpus"], out)
    for alarm in status["alarms"]:
        out.print(note("alarm", alarm, "bold red"))
    for rejected in status["rejected"]:
        for problem in rejected["problems"]:
            out.print(note("rejected", problem, "red"))
    out.print(_footer(status))


def _jobs_table(
    jobs: list[dict[str, Any]], foretold: bool, *, wide: bool, layout: _Layout
) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("NAME", no_wrap=True, max_width=24 if wide else layout.name_columns)
    table.add_column("STATE", no_wrap=True, min_width=7, max_width=layout.state_columns)
    if layout.has_target:
        table.add_column("TARGET", no_wrap=True, max_width=22 if wide else 18)
    table.add_column("MEASURED", no_wrap=True, min_width=8, justify="right")
    table.add_column("OF-TARGET", no_wrap=True, min_width=9)
    if foretold:
        table.add_column("OUTLOOK", no_wrap=True, max_width=OUTLOOK_COLUMNS - 2)
    table.add_column("CPU / LIMIT", no_wrap=True, min_width=12)
    if wide:
        table.add_column("REASON", overflow="fold")
    for job in jobs:
        cells = [text(job["name"]), text(job["state"], _STATE_STYLE.get(job["state"], ""))]
        if layout.has_target:
            cells.append(text(job["target"]["text"] if job["target"] else "-"))
        cells += [_measured(job), _standing(job)]
        if foretold:
            cells.append(foretold_cell(job))
        cells.append(_cpu(job))
        if wide:
            cells.append(text(_reason(job, foretold)))
        table.add_row(*cells)
    return table


def _measured(job: Mapping[str, Any]) -> Text:
    if job["metric"] is not None:
        return text(f"{job['metric']:.4g}")
    return text("-" if job["measured_s"] is None else render_seconds(job["measured_s"]))


def _standing(job: Mapping[str, Any]) -> Text:
    ratio, tiers = job["ratio"], job["tiers"]
    if tiers is not None and tiers["delivered"] is not None:
        return text("deliver ok" if tiers["finished"] is None else "finish ok", "green")
    if tiers is not None and job["metric"] is not None:
        return text("under", "yellow")
    if ratio is None:
        return text("-", "dim")
    if job["satisfied_band"]:
        return text(f"{ratio:4.2f} ok", "green")
    if ratio > 1.0:
        return text(f"{ratio:4.2f} slow", "bold red")
    return text(f"{ratio:4.2f} fast")


def _cpu(job: Mapping[str, Any]) -> Text:
    used, limit = job["cpu"]["usage_cores"], job["cpu"]["actual_cores"]
    if job["container"] is None:
        return text("-", "dim")
    left = "?" if used is None else f"{used:.2f}"
    return text(f"{left:>5} / {'none' if limit is None else f'{limit:.2f}'}")


def _reason(job: Mapping[str, Any], foretold: bool) -> str:
    sidecar, target = job["sidecar"], job["target"]
    adopted = "adopted" if job["source"] == "container" else ""
    words = [adopted, _deliverable(job), job["reason"], _blind(job), sidecar["trouble"]]
    words.append(None if job["blind"] else expectation(job, shown=foretold))
    words.append(in_short(job["gpu"]))
    if job["state"] == "running" and target is not None and target["kind"] == "latency":
        words.append(None if job["blind"] else _scarce(job))
        if job["in_flight"] and job["oldest_s"] > target["seconds"] and job["ratio"] is None:
            words.append(f"a request has waited {render_seconds(job['oldest_s'])}")
    if sidecar["bad_lines"]:
        words.append(f"{sidecar['bad_lines']} bad lines")
    if job["errors"]:
        words.append(f"{job['errors']} errors")
    return "; ".join(word for word in words if word)


def _blind(job: Mapping[str, Any]) -> str | None:
    return None if job["blind"] is None else f"blind: {job['blind']}"


def _scarce(job: Mapping[str, Any]) -> str | None:
    """Why so little is known of a service's latency, if so; an idle one may well be silent."""
    age_s = job["sidecar"]["age_s"]
    if age_s is None:
        return "no report yet"
    if age_s > SILENT_S:
        return f"silent for {render_seconds(age_s)}"
    if job["requests"] < REQUESTS_MIN:
        return f"{job['requests']} of {REQUESTS_MIN} requests needed"
    return None


def _deliverable(job: Mapping[str, Any]) -> str:
    delivered = job["tiers"] and job["tiers"]["delivered"]
    if not delivered:
        return ""
    return f"deliverable for {render_seconds(delivered['age_s'])}: {delivered['text']}"


def _footer(status: Mapping[str, Any]) -> Text:
    node, engine = status["node"], status["engine"]
    present = [job for job in status["jobs"] if job["target"] and job["state"] not in _OVER]
    serving = [job for job in present if job["target"]["kind"] == "latency"]
    learning = [job for job in present if job["target"]["kind"] == "accuracy"]
    in_time = sum(job["satisfied_slo"] is True for job in serving)
    in_band = sum(job["satisfied_band"] is True for job in serving)
    delivered = sum(job["tiers"]["delivered"] is not None for job in learning)
    unlimited = f" (and {node['unlimited_jobs']} unlimited)" if node["unlimited_jobs"] else ""
    capacity = render_cores(node["capacity_cores"])
    beside = f", shadow {status['shadow']}" if status["shadow"] else ""
    parts = [
        f"policy {status['policy']}{beside}",
        f"{in_time} of {len(serving)} not slower, {in_band} within 10 %" if serving else "",
        f"{delivered} of {len(learning)} deliverable" if learning else "",
        f"{node['given_cores']:.2f} of {capacity} given{unlimited}, {node['used_cores']:.2f} used",
        "engine ok" if engine["ok"] else "engine does not answer",
    ]
    line = " | ".join(part for part in parts if part)
    return text(line, "" if engine["ok"] else "bold red")


# --------------------------------------------------------------------------- why


def show_why(name: str, answer: Mapping[str, Any], out: Console) -> None:
    """A job's state, its last changes, oldest first, and what it waits for now."""
    job, now = answer["job"], answer["now"]
    if job is None:
        out.print(text(f"{name}: gone; this is what is remembered", "bold"))
    else:
        out.print(_headline(job))
        for label, words in in_full(job["gpu"]):
            out.print(note(label, words, ""))
    # Within a cycle what became of the job comes before what was done about it.
    told = [(event["cycle"], _event(event)) for event in reversed(answer["events"])]
    told += [(change["cycle"], _change(change)) for change in reversed(answer["changes"])]
    if not told:
        out.print("  no change is recorded yet")
    for _, lines in sorted(told, key=lambda one: int(one[0])):
        for line in lines:
            out.print(line)
    if job is not None:
        for found in _waits(job, now):
            out.print(note("now", found, "bold"))
        for line in outlook_lines(job):
            out.print(line)
        if (shadow := now["shadow"]) is not None:
            out.print(note(f"shadow {shadow['policy']}", _would(shadow), "dim"))


def _headline(job: Mapping[str, Any]) -> Text:
    line = Text.assemble(text(job["name"], "bold"), f": {clean(job['state'])}")
    if job["source"] == "container":
        line.append(", adopted by its labels")
    if job["target"]:
        line.append(f", target {clean(job['target']['text'])}")
    if job["ratio"] is not None:
        measured = render_seconds(job["measured_s"])
        line.append(f", measured {measured} over {job['requests']} requests, ")
        line.append_text(_standing(job))
        line.append(" of target")
    if deliverable := _deliverable(job):
        line.append(f", {clean(deliverable)}")
    return line


def _change(change: Mapping[str, Any]) -> list[Padding]:
    cores = _ceiling(change["after_cores"])
    if change["kind"] == "resize":
        told_only = change["before_cores"] == change["after_cores"] and shares(change)
        cores = "" if told_only else f"{_ceiling(change['before_cores'])} -> {cores}"
    elif change["kind"] != "start":
        cores = ""
    gpus = ", ".join(short(uuid) for uuid in change["gpus"].split(",") if uuid)
    words = (change["wall_time"], change["kind"], cores, shares(change), gpus, change["status"])
    lines = [Padding(text("  ".join(word for word in words if word)), (0, 0, 0, 2), expand=False)]
    for label, key in (("", "why"), ("guard: ", "guard"), ("outcome: ", "detail")):
        if change[key]:
            lines.append(Padding(text(f"{label}{change[key]}", "dim"), (0, 0, 0, 6), expand=False))
    return lines


def _event(event: Mapping[str, Any]) -> list[Padding]:
    words = event["kind"]
    if event["kind"] == "state":
        words = f"{event['before']} -> {event['after']}"
    reason = f": {event['reason']}" if event["reason"] else ""
    return [Padding(text(f"{event['wall_time']}  {words}{reason}"), (0, 0, 0, 2), expand=False)]


def _waits(job: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    blind = None if job["blind"] and job["blind"] in (now["guard"] or "") else _blind(job)
    foretold = any(outlook["why"] == now["why"] for outlook in job["outlook"])
    lines = [one for one in (job["reason"], None if foretold else now["why"], blind) if one]
    if now["guard"]:
        lines.append(f"guard: {now['guard']}")
    lines += [
        f"{out['action']['kind']} {out['status']}: {out['detail']}"
        for out in now["outcomes"]
        if out["status"] != "done"
    ]
    if not lines and foretold:
        return []
    if not lines and job["state"] == "running":
        lines.append("waits for the policy's next decision")
    return lines or [job["state"]]


def _would(shadow: Mapping[str, Any]) -> str:
    """What the shadow would give, and why; nothing of it is done."""
    limits, words = shadow["limits"], []
    if limits is not None:
        because = f" because {shadow['why']}" if shadow["why"] else ""
        share = f" and a GPU share of {limits['gpu_share']:g}" if limits["gpu_share"] else ""
        words.append(f"would give {_ceiling(limits['cpu_cores'])}{share}{because}")
        if shadow["guard"]:
            words.append(f"guard: {shadow['guard']}")
    if shadow["trouble"]:
        words.append(shadow["trouble"])
    return "; ".join(words) or "would give nothing: the job does not run"


def _ceiling(cores: float | None) -> str:
    return "no limit" if cores is None else f"{cores:.3f} cores"
