"""The measurements of open loops: what counts as harm, and how rows become tables."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.real.http_services import Measured, harmed, headlines, real_table

ROW = Measured("beside", "none", 1, "a", 25.0, 100, 0, 10.0, 20.0, 0, 0.0, 0.0)


def test_harm_is_more_than_a_tenth_and_two_milliseconds() -> None:
    for mean_ms, found in ((12.9, []), (13.1, ["a (mean 13.1 ms, plain 10 ms)"])):
        rows = [ROW, replace(ROW, policy="adaptive", mean_ms=mean_ms)]
        assert harmed(real_table(rows)) == found
    slow = [ROW, replace(ROW, policy="adaptive", p95_ms=24.1)]
    assert harmed(real_table(slow)) == ["a (p95 24.1 ms, plain 20 ms)"]


def test_a_service_that_answers_nothing_is_harmed() -> None:
    rows = [ROW, replace(ROW, policy="adaptive", mean_ms=None, p95_ms=None)]
    assert len(harmed(real_table(rows))) == 2


def test_runs_count_in_their_median() -> None:
    rows = [replace(ROW, policy="adaptive", run=n, mean_ms=ms) for n, ms in enumerate((5, 7, 90))]
    (line,) = real_table([ROW, *rows])
    assert line["mean, adaptive"] == 7
    told = headlines([{**line, "cycles with a ceiling": 3}])
    assert "none of 1" in told[0]
    assert "1 of 1" in told[1]
