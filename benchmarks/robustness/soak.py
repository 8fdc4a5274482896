"""`python -m benchmarks run soak`: half an hour of churn on a real engine, and a month simulated.

Prints what the daemon held after its warm-up and at the end, writes `results/soak.json`; exit code
1 when anything grew.
"""

from __future__ import annotations

from functools import partial

from benchmarks.judge.flatness import judged
from benchmarks.options import end_on_terminate, options
from benchmarks.publish import results
from benchmarks.robustness import soak_real, soak_simulated

SECONDS = 1800.0
DAYS = 30


def main(arguments: list[str] | None = None) -> int:
    chosen = options(
        __doc__,
        arguments,
        only=(("simulated", "real"), "which"),
        seconds=(SECONDS, "of the real soak; fewer: not saved"),
    )
    end_on_terminate()  # an engine and its containers would be left
    tell = partial(print, flush=True)
    tables, rows, grew = {}, [], False
    for name in chosen.only:
        if name == "real":
            samples, facts = soak_real.run(chosen.seconds, tell)
        else:
            samples, facts = soak_simulated.run(DAYS, tell)
        measures = judged(samples)
        title = f"Soak, {name}: " + ", ".join(f"{value} {what}" for what, value in facts.items())
        tables[title] = [one.row() for one in measures]
        rows.append({"part": name, **facts})
        grew = grew or not all(one.flat for one in measures)
    results.show(tables)
    if chosen.seconds == SECONDS:
        # What was not run now stays as it was saved.
        before = results.load("soak") or {"tables": {}, "rows": []}
        others = [row for row in before["rows"] if row["part"] not in chosen.only]
        kept = {
            title: table
            for title, table in before["tables"].items()
            if any(title.startswith(f"Soak, {row['part']}:") for row in others)
        }
        facts = results.host_facts("of its own" if "real" in chosen.only else "none")
        results.save("soak", facts, [0], [*others, *rows], tables=kept | tables)
    return 1 if grew else 0
