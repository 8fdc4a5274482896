"""How what the rest of the host waits is told, by the weight of all jobs together."""

from __future__ import annotations

from benchmarks.kernel.bystander import Phase, rows, table

PHASES = [
    Phase(1.0, "forward", tuple(ms / 1000 for ms in (*range(1, 100), 500)), (0.004,)),
    Phase(8.0, "forward", (3.0, 0.3), (2.0, 0.1)),
    Phase(8.0, "backward", (0.1,), (5.0,)),
]


def test_both_orders_of_a_weight_are_told_together() -> None:
    told = {(row["group_weight"], row["order"]): row for row in rows(7, PHASES)}
    assert set(told) == {
        (1.0, "forward"),
        (8.0, "forward"),
        (8.0, "backward"),
        (1.0, "both"),
        (8.0, "both"),
    }
    assert told[8.0, "both"] == {
        "seed": 7,
        "group_weight": 8.0,
        "order": "both",
        "wakes": 3,
        "p99_late_ms": 3000.0,
        "most_late_ms": 3000.0,
        "wakes_late_by_200_ms": 2,
        "engine_answers": 3,
        "engine_p99_ms": 5000.0,
        "engine_most_ms": 5000.0,
    }
    assert told[1.0, "both"]["p99_late_ms"] == 99.0
    assert told[1.0, "both"]["most_late_ms"] == 500.0


def test_the_table_has_one_line_a_weight() -> None:
    lines = table(rows(7, PHASES))
    assert [line["group_weight"] for line in lines] == [1.0, 8.0]
    assert lines[1]["by more than 200 ms"] == "2 of 3"
