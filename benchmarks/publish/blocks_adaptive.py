"""Tables on `adaptive` in the simulator: services beside the peers, and trainings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.judge.satisfaction import READINGS, Reading
from benchmarks.publish import results
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


def services(saved: Mapping[str, Any]) -> str:
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


def trainings(saved: Mapping[str, Any]) -> str:
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
