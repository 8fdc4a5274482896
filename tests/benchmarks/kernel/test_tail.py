"""How the tail of latencies is read from what services print."""

from __future__ import annotations

import pytest

from benchmarks.kernel.tail import BURSTS, SERVICES, Phase, Service, rows, table
from dlsched.config.job import parse_spec
from dlsched.model.spec import Bounds, LatencyTarget

SERVICE = Service("short", 0.3, 0.005, 0.005, 0.5)
PHASES = [
    Phase(0.0, "forward", 0.0, 10.0),
    Phase(0.3, "forward", 20.0, 30.0),
    Phase(0.3, "backward", 40.0, 50.0),
    Phase(0.0, "backward", 60.0, 70.0),
]
TOLD = [
    *[(index / 20, 0.010 + index / 10_000) for index in range(100)],
    (9.99, 5.0),  # answered after its phase
    (15.0, 9.0),  # between two phases
    (25.0, 0.002),
    (45.0, 0.004),
    (65.0, 0.5),
]


def test_requests_count_in_the_phase_that_they_lie_in_and_both_orders_are_added() -> None:
    told = rows(SERVICE, 7, PHASES, TOLD)
    counted = {(row["burst_ratio"], row["order"]): row for row in told}
    assert {key: row["requests"] for key, row in counted.items()} == {
        (0.0, "forward"): 100,
        (0.3, "forward"): 1,
        (0.3, "backward"): 1,
        (0.0, "backward"): 1,
        (0.0, "both"): 101,
        (0.3, "both"): 2,
    }
    first = counted[(0.0, "forward")]
    assert (first["p50_ms"], first["p95_ms"], first["p99_ms"]) == (14.9, 19.4, 19.8)
    assert counted[(0.3, "both")]["p99_ms"] == 4.0
    assert {row["seed"] for row in told} == {7}


def test_the_table_has_a_line_a_burst() -> None:
    told = table(rows(SERVICE, 1, PHASES, TOLD))
    assert [(row["burst, of the quota"], row["requests"]) for row in told] == [
        ("none", 101),
        (0.3, 2),
    ]


def test_a_phase_without_an_answer_is_no_result() -> None:
    with pytest.raises(RuntimeError, match="nothing was answered"):
        rows(SERVICE, 1, PHASES, TOLD[:-1])


@pytest.mark.parametrize("service", SERVICES)
def test_the_services_quota_is_fixed_and_half_used(service: Service) -> None:
    spec = parse_spec(service.spec(seed=1), "tail.yaml")
    assert spec.bounds == Bounds(service.quota_cores, service.quota_cores)
    assert isinstance(spec.target, LatencyTarget)
    used_cores = (service.low_s + service.high_s) / 2 / service.every_s
    assert used_cores == pytest.approx(0.5 * service.quota_cores)


def test_it_is_measured_with_and_without() -> None:
    assert BURSTS[0] == 0.0 and 0.3 in BURSTS
