"""Result files as Markdown, a block each: what the documentation's results pages show.

No number is written by hand. What a block means is said beside it, on the page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.judge.satisfaction import READINGS, Reading
from benchmarks.publish import blocks_cluster, hardware, results
from benchmarks.simulated.adaptive_inference import (
    CALLED,
    COUNTS,
    PUBLISHED,
    Measured,
    best_published,
    mean,
    of_best,
)
from dlsched.simulation.scoring import PLAIN


def adaptive_services(saved: Mapping[str, Any]) -> str:
    """By reading, a line a scenario and a column a policy: of the clairvoyant's, n = 10/20/40."""
    found = [Measured(**row) for row in saved["rows"]]
    parts = []
    for reading in READINGS:
        told = (
            f"**{reading.words}**, of the clairvoyant's count, n = {'/'.join(map(str, COUNTS))}, "
            f"mean of {len(saved['seeds'])} seeds (in brackets, how many jobs are so for less of "
            "the time than under plain Docker):"
        )
        lines = [_line(found, reading, words) for words in _scenarios(found)]
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


def adaptive_trainings(saved: Mapping[str, Any]) -> str:
    """By scenario, a line a policy: times of plain Docker's, n = 10/20/40; then the figures."""
    table = saved["table"]
    parts = []
    for scenario in dict.fromkeys(row["scenario"] for row in table):
        mine = [row for row in table if row["scenario"] == scenario and row["policy"] != PLAIN]
        lines = []
        for policy in dict.fromkeys(row["policy"] for row in mine):
            own = [row for row in mine if row["policy"] == policy]
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
        parts += [told, results.markdown(lines)]
    missed = [line for line in saved["headlines"] if "NOT reached" in line]
    parts.append("\n".join(f"- {line}" for line in missed) or "All figures asked for are reached.")
    return "\n\n".join(parts)


def _number(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else "-"


def _scenarios(found: Sequence[Measured]) -> list[str]:
    return list(dict.fromkeys(one.scenario for one in found))


def _line(found: Sequence[Measured], reading: Reading, scenario: str) -> dict[str, object]:
    line: dict[str, object] = {"scenario": scenario}
    cells: dict[str, list[str]] = {}
    for n in COUNTS:
        by_policy: dict[str, list[Measured]] = {}
        for one in found:
            if (one.scenario, one.n) == (scenario, n):
                by_policy.setdefault(one.policy, []).append(one)
        published = best_published(by_policy, reading)
        for policy, runs in by_policy.items():
            if policy in PUBLISHED and policy != published:
                continue
            ratio = of_best(runs, reading)
            worse = mean(runs, f"{reading.name}_worse_jobs")
            told = f"{ratio:.2f}" + (f" ({worse:.2g})" if worse else "")
            cells.setdefault(CALLED.get(policy, policy), []).append(told)
    return line | {f"`{policy}`": "/".join(told) for policy, told in cells.items()}


_GOALS = (("tier1", "tier 1"), ("tier2", "tier 2"), ("jct", "completion"))


def real_trainings() -> str:
    """A table a schedule, everything as a ratio of plain Docker, and the papers' headlines."""
    saved = _saved("training-real")
    parts = []
    for schedule in dict.fromkeys(row["schedule"] for row in saved["table"]):
        mine = [row for row in saved["table"] if row["schedule"] == schedule]
        plain = next(row for row in mine if row["policy"] == "none")
        parts += [
            (
                f"**{schedule}** (plain Docker: tier 1 after {plain['tier 1 mean s']:.0f} s in the "
                f"mean, tier 2 after {plain['tier 2 mean s']:.0f} s, completion after "
                f"{plain['completion mean s']:.0f} s, makespan {plain['makespan s']:.0f} s; "
                f"of the optimum {_of_optimum(plain)}):"
            ),
            _table([_beside_plain(row) for row in mine if row is not plain]),
        ]
    lines = "\n".join(f"- {line}" for line in saved["headlines"])
    return "\n\n".join([*parts, lines, _host(saved)])


def _all_of(name: str) -> Callable[[], str]:
    """A block of every table that is saved under that name, and its headlines."""

    def told() -> str:
        saved = _saved(name)
        tables = saved.get("tables") or {saved["title"]: saved["table"]}
        parts = [f"**{title}**\n\n{_table(rows)}" for title, rows in tables.items()]
        parts += ["\n".join(f"- {line}" for line in saved.get("headlines", ()))]
        return "\n\n".join([*filter(None, parts), _host(saved)])

    return told


def _table_of(name: str) -> Callable[[], str]:
    """A block of the one table that is saved under that name, without its title."""

    def shown() -> str:
        saved = _saved(name)
        return f"{_table(saved['table'])}\n\n{_host(saved)}"

    return shown


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
    cells["makespan"] = f"{row['makespan of plain']:.2f}"
    cells["CPU time"] = f"{row['CPU of plain']:.2f}"
    cells["of the optimum: tier 1, tier 2, completion, makespan"] = _of_optimum(row)
    cells["updates"] = f"{row['updates']:.0f}"
    return cells


def _of_optimum(row: Mapping[str, Any]) -> str:
    parts = [row.get(f"{words} of optimum") for words in (*(w for _, w in _GOALS), "makespan")]
    return ", ".join("-" if part is None else f"{part:.2f}" for part in parts)


def sim_vs_real() -> str:
    """How far simulated times and counts are from real ones."""
    return "\n".join(f"- {line}" for line in _saved("sim-vs-real")["headlines"])


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


def torture() -> str:
    """How many points a kill -9 was tried at, by kind, and what was lost."""
    saved = _saved("torture")
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
    return f"{_table(list(kinds.values()))}\n\n{_host(saved)}"


def gpu_placement() -> str:
    """How fast jobs are placed, how well, and how a queue fares, beside naive rules."""
    saved = _saved("gpu-placement")
    parts = [f"**{title}**\n\n{_table(rows)}" for title, rows in saved["tables"].items()]
    return "\n\n".join([*parts, *saved["headlines"], _host(saved)])


def gpu_pacing() -> str:
    """The worst of all shares and kinds of steps, with turns and without."""
    saved = _saved("gpu-pacing")
    rows = saved["table"]
    table = []
    for key in dict.fromkeys((row["device"], row["turns"]) for row in rows):
        mine = [row for row in rows if (row["device"], row["turns"]) == key]
        together = [row[_TOGETHER] for row in mine if row[_TOGETHER] != "-"]
        table.append(
            {
                "device": key[0],
                "turns": key[1],
                "cases": str(len(mine)),
                "worst error, points": f"{max(row['worst error, points'] for row in mine):.1f}",
                "two jobs together, of exclusive throughput": f"{min(together):.3f} or more",
            }
        )
    return f"{_table(table)}\n\n{_host(saved)}"


_TOGETHER = "together, of exclusive"


def headlines(name: str) -> str:
    """How far each figure of that bench is; its tables are in the result file."""
    saved = _saved(name)
    lines = "\n".join(f"- {line}" for line in saved["headlines"])
    return f"{lines}\n\n{_host(saved)}"


def _by(name: str, told: Callable[[Mapping[str, Any]], str]) -> Callable[[], str]:
    """A block that another module makes of what is saved under that name."""

    def shown() -> str:
        saved = _saved(name)
        return f"{told(saved)}\n\n{_host(saved)}"

    return shown


BLOCKS: Mapping[str, Callable[[], str]] = {
    "verdicts": lambda: headlines("verdicts"),
    "adaptive-real": _all_of("adaptive-real"),
    "adaptive-schedules": _all_of("adaptive-schedules"),
    "open-loop": lambda: headlines("open-loop"),
    "full-host": _all_of("full-host"),
    "open-changes": lambda: headlines("open-changes"),
    "no-harm": lambda: headlines("no-harm"),
    "open-loop-real": _all_of("open-loop-real"),
    "adaptive-inference": lambda: adaptive_services(_saved("adaptive-inference")),
    "adaptive-training": lambda: adaptive_trainings(_saved("adaptive-training")),
    "mixed": _all_of("mixed"),
    "loop": _all_of("loop"),
    "real-trainings": real_trainings,
    "sim-vs-real": sim_vs_real,
    "torture": torture,
    "cluster-simulated": _by("cluster-simulated", blocks_cluster.worlds),
    "cluster-moves": lambda: headlines("cluster-moves"),
    "cluster-real": _by("cluster-real", blocks_cluster.hosts),
    "cluster-torture": _all_of("cluster-torture"),
    "fuzz": _table_of("fuzz"),
    "soak": _all_of("soak"),
    hardware.NAME: hardware.block,
    "gpu-placement": gpu_placement,
    "gpu-pacing": gpu_pacing,
    "gpu-move": _table_of("gpu-move"),
}


def _table(rows: Sequence[Mapping[str, str]]) -> str:
    return results.markdown(rows)


def _host(saved: Mapping[str, Any]) -> str:
    host = saved["host"]
    seeds = f"Seeds {', '.join(str(seed) for seed in saved['seeds'])}. " if saved["seeds"] else ""
    return (
        f"{seeds}Host: {host['cpu']}, {host['cores']} cores, kernel {host['kernel']}, "
        f"cgroup {host['cgroup']}, engine {host['engine']}."
    )


def _saved(name: str) -> dict[str, Any]:
    saved = results.load(name)
    if saved is None:
        raise ValueError(
            f"benchmarks/results/{name}.json is missing: make bench or make torture writes it"
        )
    return saved
