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
TRAFFIC = "six services beside two trainings"
"""The scenario of open-loop-real.json."""


def measured() -> str:
    """Three rows beside plain Docker, and what the agent itself costs."""
    rows = [*_services(), _traffic()]
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
    """Of each service its p95 in the median run."""
    saved = results.must_load("open-loop-real")["rows"]
    rows = [row for row in saved if row.get("scenario") == TRAFFIC]
    found = {name: [row for row in rows if row["policy"] == name] for name in (PLAIN, OURS)}
    by_run = [{row["run"]: row["trainings_core_s"] for row in found[one]} for one in found]
    spent = statistics.median(by_run[1][run] / by_run[0][run] for run in by_run[0])

    def p95(rows: Sequence[Mapping[str, Any]]) -> str:
        services = results.grouped(rows, lambda row: row["service"]).values()
        medians = (statistics.median(row["p95_ms"] for row in mine) for mine in services)
        return f"{statistics.fmean(medians):.1f} ms"

    return {
        "on real containers": f"HTTP: {TRAFFIC}: mean of their p95",
        **_columns(p95, found),
        "the price": f"{spent:.2f} of the CPU time for the trainings",
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


def _median(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    return f"{statistics.median(row[name] for row in rows):g}"


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
