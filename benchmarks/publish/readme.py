"""The one table of README, and its sentence on GPUs: from the result files, no number by hand.

python -m benchmarks run readme               rewrites the parts between the markers in README
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.options import options
from benchmarks.places import ROOT
from benchmarks.publish import hardware, results

README = ROOT / "README.md"
BEGIN, END = "<!-- measured:begin -->", "<!-- measured:end -->"
GPU_BEGIN, GPU_END = "<!-- gpu:begin -->", "<!-- gpu:end -->"

PLAIN, OURS = "none", "adaptive"
SERVICES = {PLAIN: "none", OURS: "adaptive?mode=slo"}
"""Policies as adaptive-real.json calls them."""


def measured() -> str:
    """Four rows beside plain Docker, and what the agent itself costs."""
    rows = [*_services(), _traffic(), _trainings()]
    return f"{results.markdown(rows)}\n\n{_own_cost()}"


def _services() -> Iterator[dict[str, str]]:
    saved = results.must_load("adaptive-real")["rows"]
    for demand in sorted({row["demand"] for row in saved}):
        found = {
            policy: [row for row in saved if (row["demand"], row["policy"]) == (demand, name)]
            for policy, name in SERVICES.items()
        }
        of = found[PLAIN][0]["jobs"]
        worse = sum(row["worse_slo"] for row in found[OURS])
        yield {
            "on real containers": (
                f"{of} services that need {demand:g} of the capacity: how many keep their targets"
            ),
            **_columns(lambda rows, of=of: f"{_median(rows, 'satisfied_slo')} of {of}", found),
            "the price": f"{worse} of {of * len(found[OURS])} miss by more than under plain Docker",
        }


def _traffic() -> dict[str, str]:
    found = _by_policy(results.must_load("demo-traffic")["rows"])
    spent = {policy: rows[0]["trainings_core_s"] for policy, rows in found.items()}
    names = [row["service"] for row in found[PLAIN]]
    return {
        "on real containers": f"{len(names)} HTTP services beside a training: mean of their p95",
        **_columns(lambda rows: f"{statistics.fmean(r['p95_ms'] for r in rows):.1f} ms", found),
        "the price": f"{spent[OURS] / spent[PLAIN]:.2f} of the CPU time for the training",
    }


def _trainings() -> dict[str, str]:
    saved = results.must_load("adaptive-schedules")["rows"]
    counts = sorted({row["n"] for row in saved})
    found = _by_policy(saved)

    def told(rows: Sequence[Mapping[str, Any]]) -> str:
        return ", ".join(f"{_mean(rows, n, 'tier1_mean_s'):.1f} s" for n in counts)

    def ratio(metric: str) -> str:
        parts = (_mean(found[OURS], n, metric) / _mean(found[PLAIN], n, metric) for n in counts)
        return ", ".join(f"{part:.2f}" for part in parts)

    return {
        "on real containers": (
            f"{' and '.join(map(str, counts))} trainings: mean time until a model can be delivered"
        ),
        **_columns(told, found),
        "the price": f"{ratio('makespan_s')} of the time until all have ended",
    }


def _own_cost() -> str:
    loop = {row["kind"]: row for row in results.must_load("loop")["rows"]}
    idle, reporting = loop["idle"], loop["reporting"]
    return (
        f"The daemon uses "
        f"{100 * idle['core_ratio']:.1f} % of one core with {idle['containers']} idle containers "
        f"and {100 * reporting['core_ratio']:.1f} % with {reporting['containers']} that report "
        "every second."
    )


def _columns(told: Any, found: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, str]:
    return {"plain Docker": told(found[PLAIN]), "dlsched": told(found[OURS])}


def _by_policy(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    return {name: [row for row in rows if row["policy"] == name] for name in (PLAIN, OURS)}


def _median(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    return f"{statistics.median(row[name] for row in rows):g}"


def _mean(rows: Sequence[Mapping[str, Any]], n: int, metric: str) -> float:
    return statistics.fmean(
        row["value"] for row in rows if (row["n"], row["metric"]) == (n, metric)
    )


def filled(text: str) -> str:
    """README's text with its parts written again. Raises ValueError for a missing marker."""
    text = _between(text, BEGIN, END, measured())
    return _between(text, GPU_BEGIN, GPU_END, hardware.for_readme())


def _between(text: str, begin: str, end: str, part: str) -> str:
    head, begun, rest = text.partition(begin)
    _, ended, tail = rest.partition(end)
    if not begun or not ended:
        raise ValueError(f"README has no {begin} with {end} after it")
    return f"{head}{begin}\n{part}\n{end}{tail}"


def main(arguments: list[str] | None = None) -> int:
    options(__doc__, arguments)
    try:
        README.write_text(filled(README.read_text()))
    except ValueError as error:
        print(f"readme: {error}", file=sys.stderr)
        return 1
    return 0
