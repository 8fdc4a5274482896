"""Result files as Markdown, a block each: what the documentation's results pages show.

No number is written by hand. What a block means is said beside it, on the page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from operator import itemgetter
from typing import Any

from benchmarks.gpu import pacing
from benchmarks.publish import blocks_cluster, hardware, results
from benchmarks.publish.results import grouped
from benchmarks.simulated import adaptive_inference, adaptive_training
from dlsched.simulation.scoring import Row

Saved = Mapping[str, Any]


def adaptive_services(saved: Saved) -> str:
    """The bench's own tables of what was measured; earlier results have more than it has now."""
    columns = [one.name for one in fields(adaptive_inference.Measured)]
    measured = [
        adaptive_inference.Measured(**{name: row[name] for name in columns})
        for row in saved["rows"]
        if row["policy"] in adaptive_inference.POLICIES
    ]
    return _tables({"tables": adaptive_inference.tables_of(measured)})


def adaptive_trainings(saved: Saved) -> str:
    """The bench's own tables, and the figures that are missed."""
    tables = adaptive_training.tables_of([Row(**row) for row in saved["rows"]])
    missed = [line for line in saved["headlines"] if "NOT reached" in line]
    figures = "\n".join(f"- {line}" for line in missed) or "All figures asked for are reached."
    return f"{_tables({'tables': tables})}\n\n{figures}"


_GOALS = (("tier1", "tier 1"), ("tier2", "tier 2"), ("jct", "completion"))


def real_trainings(saved: Saved) -> str:
    """A table a schedule, everything as a ratio of plain Docker."""
    parts = []
    for schedule, mine in grouped(saved["table"], itemgetter("schedule")).items():
        plain = next(row for row in mine if row["policy"] == "none")
        parts += [
            (
                f"**{schedule}** (plain Docker: tier 1 after {plain['tier 1 mean s']:.0f} s in the "
                f"mean, tier 2 after {plain['tier 2 mean s']:.0f} s, completion after "
                f"{plain['completion mean s']:.0f} s, makespan {plain['makespan s']:.0f} s; "
                f"of the optimum {_of_optimum(plain)}):"
            ),
            results.markdown([_beside_plain(row) for row in mine if row is not plain]),
        ]
    return "\n\n".join(parts)


def _beside_plain(row: Mapping[str, Any]) -> dict[str, str]:
    cells = {"policy": f"`{row['policy']}`", "runs": str(row["runs"])}
    for _, words in _GOALS:
        mean, best, worst = (
            row[f"{words} {which} of plain"] for which in ("mean", "best job", "worst job")
        )
        worse = row[f"{words} jobs worse"]
        cells[f"{words}: mean (best, worst job; jobs worse)"] = (
            f"{mean:.2f} ({best:.2f}, {worst:.2f}; {worse:.2g})"
        )
    return cells | {
        "makespan": f"{row['makespan of plain']:.2f}",
        "CPU time": f"{row['CPU of plain']:.2f}",
        "of the optimum: tier 1, tier 2, completion, makespan": _of_optimum(row),
        "updates": f"{row['updates']:.0f}",
    }


def _of_optimum(row: Mapping[str, Any]) -> str:
    parts = [row.get(f"{words} of optimum") for words in (*(w for _, w in _GOALS), "makespan")]
    return ", ".join("-" if part is None else f"{part:.2f}" for part in parts)


def _tables(saved: Saved) -> str:
    tables = saved.get("tables") or {saved["title"]: saved["table"]}
    parts = (f"**{title}**\n\n{results.markdown(rows)}" for title, rows in tables.items())
    return "\n\n".join(parts)


def _table(saved: Saved) -> str:
    return results.markdown(saved["table"])


def _rows(saved: Saved) -> str:
    return results.markdown(saved["rows"])


def _figures(saved: Saved) -> str:
    return "\n".join(f"- {line}" for line in saved.get("headlines", ()))


def _pacing(saved: Saved) -> str:
    return _figures({"headlines": pacing.summary(saved["table"])})


def _said(saved: Saved) -> str:
    return "\n\n".join(saved["headlines"])


def _host(saved: Saved) -> str:
    host = saved["host"]
    seeds = f"Seeds {', '.join(str(seed) for seed in saved['seeds'])}. " if saved["seeds"] else ""
    return (
        f"{seeds}Host: {host['cpu']}, {host['cores']} cores, kernel {host['kernel']}, "
        f"cgroup {host['cgroup']}, engine {host['engine']}."
    )


def _of(name: str, *parts: Callable[[Saved], str]) -> Callable[[], str]:
    """A block of these parts of what is saved under that name."""

    def told() -> str:
        saved = results.must_load(name)
        return "\n\n".join(filter(None, (part(saved) for part in parts)))

    return told


BLOCKS: Mapping[str, Callable[[], str]] = {
    **{
        name: _of(name, _figures, _host)
        for name in ("verdicts", "open-loop", "open-changes", "no-harm", "cluster-moves")
    },
    **{
        name: _of(name, _tables, _figures, _host)
        for name in (
            "adaptive-real", "demo", "full-host", "open-loop-real", "mixed",
            "loop", "cluster-torture", "soak", "wire", "first-minute", "threads", "spinning",
        )
    },
    "adaptive-inference": _of("adaptive-inference", adaptive_services),
    "adaptive-training": _of("adaptive-training", adaptive_trainings),
    "real-trainings": _of("training-real", real_trainings, _figures, _host),
    "sim-vs-real": _of("sim-vs-real", _figures),
    "torture": _of("torture", _rows, _host),
    "cluster-simulated": _of("cluster-simulated", blocks_cluster.worlds, _host),
    "cluster-real": _of("cluster-real", blocks_cluster.hosts, _host),
    "fuzz": _of("fuzz", _table, _host),
    "readings": _of("readings", _table, _figures, _host),
    hardware.NAME: hardware.block,
    "gpu-placement": _of("gpu-placement", _tables, _said, _host),
    "gpu-pacing": _of("gpu-pacing", _pacing, _host),
    "gpu-move": _of("gpu-move", _table, _host),
}  # fmt: skip
