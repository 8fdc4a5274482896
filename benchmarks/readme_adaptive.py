"""README's tables on `adaptive` in the simulator: services beside the peers, and the ablation.

Owns how these results are told in little room. `readme` puts them between the markers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import results
from benchmarks.adaptive_inference import COUNTS
from benchmarks.inference_tables import CALLED, PUBLISHED, Measured, best_published, mean, of_best
from benchmarks.satisfaction import READINGS, Reading


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


def ablation(saved: Mapping[str, Any]) -> str:
    """The tables of the ablation as they are, each under its title."""
    return "\n\n".join(
        f"**{title}**\n\n{results.markdown(table)}" for title, table in saved["tables"].items()
    )


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
