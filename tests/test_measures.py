"""Reports from sources that tell of more than a second at once."""

from __future__ import annotations

from dataclasses import replace

from dlsched.measures import Measures
from dlsched.model import Limits, Report
from tests.doubles import running, sketch


def test_what_may_have_begun_before_a_change_of_limits_is_recent_and_not_measured() -> None:
    measures = Measures()
    measures.fold(running("a", actual=Limits(1.0)), 0.0, 30.0)
    changed = running("a", actual=Limits(2.0))
    measures.fold(changed, 10.0, 30.0)
    one_second = Report(13.0, latency=sketch(0.1))
    five_seconds = replace(one_second, span_s=5.0)
    measures.fold(replace(changed, reports=(one_second, five_seconds)), 13.0, 30.0)
    told = measures.progress(changed, 13.0)
    assert (told.window.count, told.recent.count) == (1, 2)


def test_a_flood_of_reports_spans_as_much_as_the_longest() -> None:
    measures = Measures()
    measures.fold(running("a", actual=Limits(1.0)), 0.0, 30.0)
    changed = running("a", actual=Limits(2.0))
    measures.fold(changed, 10.0, 30.0)
    flood = tuple(Report(13.0, latency=sketch(0.1), span_s=5.0) for _ in range(100))
    measures.fold(replace(changed, reports=flood), 13.0, 30.0)
    told = measures.progress(changed, 13.0)
    assert (told.window.count, told.recent.count) == (0, 100)
