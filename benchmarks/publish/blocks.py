"""Result files as Markdown, a block each: what the documentation's results pages show.

No number is written by hand. What a block means is said beside it, on the page.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.kernel import idle_class
from benchmarks.publish import blocks_adaptive, blocks_cluster, hardware, results

_GOALS = (("tier1", "tier 1"), ("tier2", "tier 2"), ("jct", "completion"))
_COUNTS = (10, 20, 40)


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


def simulated_trainings() -> str:
    """Ratios to the clairvoyant and to plain Docker at every n, all jobs at once and at random."""
    rows = _saved("simulated")["rows"]
    parts = []
    for scenario in ("training-burst", "training-random"):
        mine = [row for row in rows if row["scenario"] == scenario]
        table = []
        for policy in dict.fromkeys(row["policy"] for row in mine):
            own = [row for row in mine if row["policy"] == policy]
            cells = {"policy": f"`{policy}`"}
            for goal, words in _GOALS:
                cells[words] = _by_count(own, f"{goal}_mean_s", "of_optimum")
            cells["makespan"] = _by_count(own, "makespan_s", "of_optimum")
            for goal, words in (("tier1", "tier 1"), ("jct", "completion")):
                if policy != "none":
                    parts_of_plain = (
                        _by_count(own, f"{goal}_{which}_s", "of_plain")
                        for which in ("best", "mean", "worst")
                    )
                    cells[f"{words} of plain: best job; mean; worst job"] = "; ".join(
                        parts_of_plain
                    )
            table.append(cells)
        seeds = len({row["seed"] for row in mine})
        parts += [
            (
                f"**{scenario}**, n = 10/20/40, mean of {seeds} seeds, times as ratios of what a "
                "clairvoyant reaches (lower is better):"
            ),
            _table(table),
        ]
    return "\n\n".join(parts)


def simulated_services() -> str:
    """Satisfied services as a part of the clairvoyant's, at every n."""
    rows = _saved("simulated")["rows"]
    mine = [row for row in rows if row["scenario"].startswith("inference")]
    table = []
    for policy in dict.fromkeys(row["policy"] for row in mine):
        cells = {"policy": f"`{policy}`"}
        for scenario in dict.fromkeys(row["scenario"] for row in mine):
            own = [r for r in mine if (r["policy"], r["scenario"]) == (policy, scenario)]
            load = scenario.partition("-")[2]
            cells[f"{load}: within 10 %"] = _by_count(own, "satisfied_mean_ratio", "of_optimum")
            cells[f"{load}: not slower"] = _by_count(own, "met_mean_ratio", "of_optimum")
        table.append(cells)
    return _table(table)


def sim_vs_real() -> str:
    """How far simulated times and counts are from real ones."""
    return "\n".join(f"- {line}" for line in _saved("sim-vs-real")["headlines"])


def simulator_cost() -> str:
    """What simulating costs."""
    table = [
        {
            "trace": row["trace"],
            "policy": f"`{row['policy']}`",
            "cycles": str(row["cycles"]),
            "CPU, s": f"{row['cpu_s']:.1f}",
            "memory, MiB": f"{row['memory_mib']:.0f}",
        }
        for row in _saved("simulator")["rows"]
    ]
    return _table(table)


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
    "satisfied": _all_of("satisfied"),
    "mends": _all_of("mends"),
    "reaction": _all_of("reaction"),
    "verdicts": lambda: headlines("verdicts"),
    "adaptive-real": _all_of("adaptive-real"),
    "adaptive-schedules": _all_of("adaptive-schedules"),
    "open-loop": lambda: headlines("open-loop"),
    "full-host": _all_of("full-host"),
    "open-changes": lambda: headlines("open-changes"),
    "numbers": lambda: headlines("numbers"),
    "no-harm": lambda: headlines("no-harm"),
    "cfs-periods": lambda: headlines("cfs-periods"),
    "open-loop-real": _all_of("open-loop-real"),
    "adaptive-inference": lambda: blocks_adaptive.services(_saved("adaptive-inference")),
    "adaptive-training": lambda: blocks_adaptive.trainings(_saved("adaptive-training")),
    "mixed": _all_of("mixed"),
    "ablation": lambda: blocks_adaptive.ablation(_saved("ablation")),
    "loop": _all_of("loop"),
    "real-trainings": real_trainings,
    "simulated-trainings": simulated_trainings,
    "simulated-services": simulated_services,
    "sim-vs-real": sim_vs_real,
    "simulator-cost": simulator_cost,
    "tail": _table_of("tail"),
    "bystander": _all_of("bystander"),
    idle_class.NAME: _all_of(idle_class.NAME),
    "torture": torture,
    "cluster-simulated": _by("cluster-simulated", blocks_cluster.worlds),
    "cluster-each-move": lambda: headlines("cluster-each-move"),
    "cluster-moves": lambda: headlines("cluster-moves"),
    "cluster-real": _by("cluster-real", blocks_cluster.hosts),
    "cluster-round": lambda: headlines("cluster-round"),
    "cluster-torture": _all_of("cluster-torture"),
    "fuzz": _table_of("fuzz"),
    "soak": _all_of("soak"),
    hardware.NAME: hardware.block,
    "gpu-placement": gpu_placement,
    "gpu-pacing": gpu_pacing,
    "gpu-move": _table_of("gpu-move"),
}


def _by_count(rows: Sequence[Mapping[str, Any]], metric: str, of: str) -> str:
    """The means over the seeds, where every seed has a value: the others' alone would flatter."""
    means = []
    for n in _COUNTS:
        mine = [row for row in rows if row["n"] == n]
        values = [row[of] for row in mine if row["metric"] == metric and row[of] is not None]
        whole = values and len(values) == len({row["seed"] for row in mine})
        means.append(f"{statistics.fmean(values):.2f}" if whole else "-")
    return "/".join(means)


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
