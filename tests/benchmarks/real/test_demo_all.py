"""The long comparison: its set, its tables, and its scene of real traffic."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.real.comparison import draw, spec_text
from benchmarks.real.demo_all import TRAFFIC, traffic_cost, traffic_table
from benchmarks.real.http_services import Measured
from dlsched.config.job import parse_spec
from dlsched.model.spec import LatencyTarget


def test_the_job_files_are_valid():
    for job in draw(3):
        spec = parse_spec(spec_text(job, 0.0421), "job.yaml")
        assert spec.target == LatencyTarget(0.0421)
        assert spec.name == job.name


PLAIN = [
    Measured(
        "real traffic",
        "none",
        1,
        one.name,
        1000 * one.target_s,
        912,
        0,
        9.0,
        21.0,
        0,
        0.0,
        64.2,
    )
    for one in TRAFFIC.services
]
OWN = [replace(row, policy="adaptive", updates_per_min=3.0, trainings_core_s=61.0) for row in PLAIN]


def test_it_says_that_nobody_is_slower_and_what_it_cost() -> None:
    text = traffic_cost([*PLAIN, *OWN])
    assert "10 % + 2 ms: none of 6" in text
    assert "64.2 s and 61 s" in text
    assert "updates a minute: 0 and 3" in text


def test_who_is_slower_and_what_was_never_answered_are_named() -> None:
    slow = replace(OWN[0], mean_ms=12.1)
    lost = replace(OWN[1], requests=0, failed=912, mean_ms=None, p95_ms=None)
    found = [*PLAIN, slow, lost, *OWN[2:]]
    text = traffic_cost(found)
    assert f"{slow.service} (mean 12.1 ms, plain 9 ms)" in text
    assert "requests that failed: 912" in text
    line = traffic_table(found)[1]
    assert (line["requests"], line["p95, none"], line["p95, adaptive"]) == ("912 / 0", 21.0, None)
