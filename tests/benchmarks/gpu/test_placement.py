"""The placement bench: the same jobs for every rule, nobody left behind, and what tables make."""

from __future__ import annotations

import pytest

from benchmarks.gpu import placement as bench
from dlsched.control.gpus import queue as gpu_queue
from dlsched.control.gpus.placement import PlacementOptions, place

AUTO = PlacementOptions()


@pytest.mark.parametrize("rule", bench.rules(1))
def test_under_every_rule_each_job_of_the_queue_runs_in_the_end(rule):
    on = bench.node(16, 1)
    coming = bench.arrivals(40, on, 1.0, 1)
    choose, options = bench.rules(1)[rule]
    with bench.placing(choose):
        begun = bench.queued(coming, on, options)
    assert gpu_queue.place is place
    assert set(begun) == {one.spec.name for one in coming}
    assert all(one.waited_s >= 0 for one in begun.values())


@pytest.mark.timed
def test_a_whole_queue_is_placed_no_slower_than_by_first_fit():
    on, queue = bench.node(bench.DEVICES, 1), bench.jobs(bench.QUEUED, 1)
    ours = bench.least_ms(lambda: bench.place_all(queue, on, place))
    naive = bench.least_ms(lambda: bench.place_all(queue, on, bench.first_fit))
    assert ours < naive


def test_who_got_worse_is_counted_against_first_fit_job_by_job():
    begun = {
        "a": bench.Begun(10.0, mixed=False, beside=0.5), "b": bench.Begun(0.0, True, None),
        "c": bench.Begun(5.2, False, 0.1),
    }  # fmt: skip
    naive = {name: bench.Begun(5.0, False, 0.0) for name in begun}
    figures = bench._figures(begun, naive)
    assert (figures["wait longer"], figures["wait shorter"], figures["mixed"]) == (1, 1, 1)
    assert figures["beside"] == pytest.approx(0.3)
    rows = [
        {"load": 1.0, "seed": 1, "rule": "first fit", **bench._figures(naive, naive)},
        {"load": 1.0, "seed": 1, "rule": "ours", **figures},
    ]
    first, ours = bench.queue_table(rows)
    told = "of first fit's (best, worst seed)"
    assert (first[told], ours[told]) == ("1.00 (1.00, 1.00)", "1.01 (1.01, 1.01)")
    assert (first["seeds worse"], ours["seeds worse"]) == ("0 of 1", "1 of 1")
