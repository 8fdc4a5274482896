"""The pages of `cluster status` and `cluster why`."""

from __future__ import annotations

import time

from dlsched.api.cluster import OLD_S, age_s
from dlsched.api.cluster_schema import (
    ClusterStatus,
    JobRow,
    MoveRow,
    NodeRow,
    QueueRow,
)
from dlsched.cli.pages.layout import Cell, Column, Page
from dlsched.cluster.status_file import host_names
from dlsched.model.units import counted, render_seconds

_STATES = {
    "ready": "green",
    "running": "green",
    "finished": "green",
    "drain": "yellow",
    "silent": "yellow",
    "unknown": "yellow",
    "down": "bold red",
    "failed": "bold red",
    "starting": "cyan",
    "saving": "cyan",
    "leaving": "cyan",
    "moving": "cyan",
    "returning": "cyan",
    "undoing": "red",
}


def show_cluster(status: ClusterStatus, page: Page) -> None:
    """Nodes, jobs, queue, problems, and how old all of it is."""
    names = node_names(status)
    if status.nodes:
        page.table(_NODES, [_node(one, names[one.name]) for one in status.nodes])
    if status.jobs:
        page.line("")
        page.table(_JOBS, [_job(one, names) for one in status.jobs])
    if status.queue:
        page.line("")
        page.table(_QUEUE, [_waiting(one) for one in status.queue])
    remarks = [*status.rejected, *status.alarms]
    remarks += [f"{names[one.name]}: {one.problem}" for one in status.nodes if one.problem]
    if remarks or status.asked:
        page.line("")
    for line in status.asked:
        page.note("asked", line, "yellow")
    for line in status.rejected:
        page.note("rejected", line, "red")
    for line in remarks[len(status.rejected) :]:
        page.note("alarm", line, "red")
    if status.nodes or remarks or status.asked:
        page.line("")
    for line, style in _ends(status):
        page.line(line, style)


def show_job(row: JobRow | QueueRow, status: ClusterStatus, page: Page) -> None:
    names = node_names(status)
    if isinstance(row, QueueRow):
        page.line(f"{row.name} waits for a node since {render_seconds(row.waits_s)}")
        page.note("why", row.why)
    else:
        node = names.get(row.node, row.node)
        there = "" if row.target is None else f", moves to {names.get(row.target, row.target)}"
        page.line(f"{row.name} is {row.state} on {node}{there}, for {render_seconds(row.since_s)}")
        for label, text in _facts(row):
            page.note(label, text)
        for one in row.moved:
            move = f"{names.get(one.source, one.source)}>{names.get(one.target, one.target)}"
            page.note(one.at, f"{move}: {_came_of(one)}")
        for other in row.alternatives:
            page.note(f"not to {names.get(other.node, other.node)}", other.refused)
        for event in row.events:
            page.note(event.at, event.text)
    for line, style in _ends(status):
        page.line(line, style)


def node_names(status: ClusterStatus) -> dict[str, str]:
    """The nodes as people know them."""
    return host_names({one.name: one.host for one in status.nodes})


def _came_of(one: MoveRow) -> str:
    """What was expected of a move, and what came of it."""
    parts = [] if one.forecast_s is None else [f"forecast {one.forecast_s:+.0f} s"]
    if one.measured_s is not None:
        so_far = " so far" if one.pending else ""
        parts.append(f"measured {one.measured_s:+.0f} s{so_far}")
    elif one.outcome == "completed":
        parts.append("effect: not measured yet" if one.pending else "effect: not measured")
    if one.forecast_s is not None or one.measured_s is not None:
        parts[0] = f"the job's end against staying: {parts[0]}"
    if one.outcome != "completed":
        parts.append(f"{one.outcome}: {one.problem}" if one.problem else one.outcome)
    return ", ".join(parts)


def _facts(row: JobRow) -> list[tuple[str, str]]:
    left = row.left_core_s
    facts = [
        ("why", row.why),
        ("target", row.goal),
        ("measured", "" if row.measured is None else f"{row.measured:.4g}"),
        ("used", "" if row.granted_cores is None else f"{row.granted_cores:.3g} cores"),
        ("left", "" if left is None else f"about {render_seconds(left)} of work on one core"),
        ("moves", f"{row.moves} so far" if row.moves else ""),
        ("cannot be moved", row.unmovable),
    ]
    return [(label, text) for label, text in facts if text]


_NODES = (
    Column("NODE", most=30),
    Column("STATE"),
    Column("JOBS", right=True),
    Column("CPU", right=True),
    Column("ENDS IN", right=True),
    Column("REPORT"),
)
_JOBS = (
    Column("NAME", most=24),
    Column("NODE", most=30),
    Column("STATE"),
    Column("TARGET", most=24),
    Column("MEASURED", right=True),
    Column("MOVES", right=True),
    Column("REASON", wraps=True),
)
_QUEUE = (
    Column("WAITING", most=24),
    Column("SINCE", right=True),
    Column("REASON", wraps=True),
)


def _node(row: NodeRow, name: str) -> list[Cell]:
    cpu = "?"
    if row.used_cores is not None and row.capacity_cores is not None:
        cpu = f"{row.used_cores:.1f} / {row.capacity_cores:g}"
    ends = "-" if row.report_age_s is not None else "?"
    if row.ends_in_s is not None:
        ends = render_seconds(row.ends_in_s)
    report = "none yet" if row.report_age_s is None else f"{render_seconds(row.report_age_s)} old"
    return [
        Cell(name),
        Cell(row.state, _STATES.get(row.state, "")),
        Cell(str(row.jobs)),
        Cell(cpu),
        Cell(ends),
        Cell(report),
    ]


def _job(row: JobRow, names: dict[str, str]) -> list[Cell]:
    node = names.get(row.node, row.node)
    moves = "" if row.target is None else f">{names.get(row.target, row.target)}"
    return [
        Cell(row.name),
        Cell(f"{node}{moves}"),
        Cell(row.state, _STATES.get(row.state, "")),
        Cell(row.goal or "-"),
        Cell("-" if row.measured is None else f"{row.measured:.4g}"),
        Cell(str(row.moves)),
        Cell(row.why),
    ]


def _waiting(row: QueueRow) -> list[Cell]:
    return [Cell(row.name), Cell(render_seconds(row.waits_s)), Cell(row.why)]


def _ends(status: ClusterStatus) -> list[tuple[str, str]]:
    """The last lines: who leads, and how old this is."""
    if status.leader == status.manager:
        jobs, waiting = counted(len(status.jobs), "job"), len(status.queue)
        head = f"{counted(len(status.nodes), 'node')}, {jobs}, {waiting} waiting"
        lines = [(f"{head}; policy {status.policy}", "")]
    elif status.leader:
        lines = [(f"manager {status.leader} leads: ask there; this is {status.manager}", "")]
    else:
        lines = [("it is not known which manager leads", "yellow")]
    now_s = time.time()
    written_s, observed_s = age_s(status.written_at, now_s), age_s(status.observed_at, now_s)
    if written_s is None or written_s > OLD_S:
        old = "an unknown time" if written_s is None else render_seconds(written_s)
        lines.append(
            (
                f"the status is {old} old: the controller on this host has ended, or hangs",
                "bold red",
            )
        )
    elif observed_s is not None:
        lines.append((f"{render_seconds(observed_s)} old", "yellow" if observed_s > OLD_S else ""))
    return lines
