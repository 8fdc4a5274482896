"""Result files as Markdown, a block each: what the documentation's results pages show.

No number is written by hand. What a block means is said beside it, on the page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from operator import itemgetter
from typing import Any

from benchmarks.publish import blocks_cluster, hardware, results
from benchmarks.publish.results import grouped
from benchmarks.simulated.adaptive_inference import (
    CALLED,
    COUNTS,
    PUBLISHED,
    READINGS,
    Measured,
    Reading,
    best_published,
    mean,
    of_best,
)
from dlsched.simulation.scoring import PLAIN

Saved = Mapping[str, Any]


_COLUMNS = tuple(one.name for one in fields(Measured))


def adaptive_services(saved: Saved) -> str:
    """By reading, a line a scenario and a column a policy: of the clairvoyant's, n = 10/20/40."""
    # Earlier results have more columns.
    found = [Measured(**{name: row[name] for name in _COLUMNS}) for row in saved["rows"]]
    scenarios = dict.fromkeys(one.scenario for one in found)
    parts = []
    for reading in READINGS:
        told = (
            f"**{reading.words}**, of the clairvoyant's count, n = {'/'.join(map(str, COUNTS))}, "
            f"mean of {len(saved['seeds'])} seeds (in brackets, how many jobs are so for less of "
            "the time than under plain Docker):"
        )
        lines = [_line(found, reading, words) for words in scenarios]
        parts += [told, results.markdown(lines)]
    return "\n\n".join(parts)


_TRAINING_CELLS = {
    "tier 1": "tier 1 of plain",
    "tier 2": "tier 2 of plain",
    "completion": "completion of plain",
    "mean of the three": "mean of three of plain",
    "makespan": "makespan of plain",
    "jobs worse to tier 1": "tier 1 jobs worse",
    "true time in the 80 % interval": "in the 80 % interval",
}
"""Columns as they are shown, and as they are saved."""


def adaptive_trainings(saved: Saved) -> str:
    """By scenario, a line a policy: times of plain Docker's, n = 10/20/40; then the figures."""
    parts = []
    for scenario, mine in grouped(saved["table"], itemgetter("scenario")).items():
        lines = []
        for policy, own in grouped(mine, itemgetter("policy")).items():
            cells = {
                words: "/".join(_number(row.get(key)) for row in own)
                for words, key in _TRAINING_CELLS.items()
            }
            lines.append({"policy": f"`{policy.removeprefix('benchmarks.peers.')}`", **cells})
        counts = "/".join(str(n) for n in dict.fromkeys(row["n"] for row in mine))
        told = (
            f"**{scenario}**, of plain Docker's (lower is better), n = {counts}, "
            f"mean of {len(saved['seeds'])} seeds:"
        )
        parts += [told, results.markdown([one for one in lines if one["policy"] != f"`{PLAIN}`"])]
    missed = [line for line in saved["headlines"] if "NOT reached" in line]
    parts.append("\n".join(f"- {line}" for line in missed) or "All figures asked for are reached.")
    return "\n\n".join(parts)


def _number(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else "-"


def _line(found: Sequence[Measured], reading: Reading, scenario: str) -> dict[str, object]:
    cells: dict[str, list[str]] = {}
    for n in COUNTS:
        here = [one for one in found if (one.scenario, one.n) == (scenario, n)]
        by_policy = grouped(here, lambda one: one.policy)
        published = best_published(by_policy, reading)
        for policy, runs in by_policy.items():
            if policy not in PUBLISHED or policy == published:
                worse = mean(runs, f"{reading.name}_worse_jobs")
                told = f"{of_best(runs, reading):.2f}" + (f" ({worse:.2g})" if worse else "")
                cells.setdefault(CALLED.get(policy, policy), []).append(told)
    return {"scenario": scenario, **{f"`{name}`": "/".join(told) for name, told in cells.items()}}


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


_STEPS = {
    "record of": "records: originals, ends, deliveries, names",
    "allotment": "jobs' allotments and directories",
    "directory": "jobs' allotments and directories",
    "journal": "journal commits",
    "sock": "sockets and lock",
    "lock": "sockets and lock",
    "released": "word of a release",
    "of the group": "weight of the group",
}
"""What the torture's actions are called together, by a word in them; engine calls stand alone."""


def torture(saved: Saved) -> str:
    """How many points a kill -9 was tried at, by kind, and what was lost."""
    kinds: dict[str, dict[str, Any]] = {}
    for row in saved["table"]:
        action = row["action"]
        words = (kind for word, kind in _STEPS.items() if word in action)
        kind = action if action.startswith("engine: ") else next(words, action)
        sums = kinds.setdefault(kind, {"action": kind})
        for name, value in row.items():
            if isinstance(value, int):
                sums[name] = sums.get(name, 0) + value
        lost = {sums.get("lost", "nothing"), row["lost"]} - {"nothing"}
        sums["lost"] = "; ".join(sorted(lost)) or "nothing"
    return results.markdown(list(kinds.values()))


def gpu_pacing(saved: Saved) -> str:
    """The worst of all shares and kinds of steps, with turns and without."""
    table = []
    by_device = grouped(saved["table"], itemgetter("device", "turns"))
    for (device, turns), mine in by_device.items():
        together = [row[_TOGETHER] for row in mine if row[_TOGETHER] != "-"]
        table.append(
            {
                "device": device,
                "turns": turns,
                "cases": str(len(mine)),
                "worst error, points": f"{max(row['worst error, points'] for row in mine):.1f}",
                "two jobs together, of exclusive throughput": f"{min(together):.3f} or more",
            }
        )
    return results.markdown(table)


_TOGETHER = "together, of exclusive"


def _tables(saved: Saved) -> str:
    tables = saved.get("tables") or {saved["title"]: saved["table"]}
    parts = (f"**{title}**\n\n{results.markdown(rows)}" for title, rows in tables.items())
    return "\n\n".join(parts)


def _table(saved: Saved) -> str:
    return results.markdown(saved["table"])


def _figures(saved: Saved) -> str:
    return "\n".join(f"- {line}" for line in saved.get("headlines", ()))


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
            "adaptive-real", "adaptive-schedules", "demo", "full-host", "open-loop-real", "mixed",
            "loop", "cluster-torture", "soak", "wire", "first-minute", "threads",
        )
    },
    "adaptive-inference": _of("adaptive-inference", adaptive_services),
    "adaptive-training": _of("adaptive-training", adaptive_trainings),
    "real-trainings": _of("training-real", real_trainings, _figures, _host),
    "sim-vs-real": _of("sim-vs-real", _figures),
    "torture": _of("torture", torture, _host),
    "cluster-simulated": _of("cluster-simulated", blocks_cluster.worlds, _host),
    "cluster-real": _of("cluster-real", blocks_cluster.hosts, _host),
    "fuzz": _of("fuzz", _table, _host),
    "readings": _of("readings", _table, _figures, _host),
    hardware.NAME: hardware.block,
    "gpu-placement": _of("gpu-placement", _tables, _said, _host),
    "gpu-pacing": _of("gpu-pacing", gpu_pacing, _host),
    "gpu-move": _of("gpu-move", _table, _host),
}  # fmt: skip
