"""Counters of one process grow; of several that answer in turn nothing is believed."""

from __future__ import annotations

from collections.abc import Iterable

from dlsched.runtime.progress.cumulative import TURN_PAGES, Cumulative, PageGrowth

LABELS = (("a", "b"),)


def counted(
    growth: PageGrowth, *counts: float, process_s: Iterable[float | None] = ()
) -> list[object]:
    """The requests added by each page; None: several processes answer."""
    started = [*process_s] or [None] * len(counts)
    found: list[object] = []
    for page, (count, process) in enumerate(zip(counts, started, strict=True)):
        compared = growth.take({LABELS: Cumulative(count, count)}, process, 1000.0 + page)
        if compared is None:
            found.append(None)
        else:
            found.append(sum(now.requests - old.requests for now, old in compared.values()))
    return found


def test_one_process_adds_what_is_new() -> None:
    assert counted(PageGrowth(None), 100, 103, 103, 110) == [0, 3, 0, 7]
    assert counted(PageGrowth({}), 100, 103) == [100, 3]


def test_two_processes_in_turn_are_found_and_no_history_is_news() -> None:
    pages = [100, 40, 101, 41, 102, 42, 103]
    found = counted(PageGrowth(None), *pages)
    assert found[3:] == [None] * 4
    assert not any(found[:3]), "nothing of either history"


def test_by_its_start_a_process_is_known_at_once() -> None:
    growth = PageGrowth(None)
    found = counted(growth, 40, 100, 101, 41, process_s=[500.0, 500.3, 500.3, 500.0])
    assert found == [0, None, None, None]


def test_a_restart_counts_from_zero_where_the_page_dates_it() -> None:
    assert counted(PageGrowth(None), 100, 4, 9, process_s=[500.0, 1000.5, 1000.5]) == [0, 4, 5]


def test_a_restart_that_is_not_dated_goes_on_from_its_first_page() -> None:
    assert counted(PageGrowth(None), 100, 4, 9, 30, 60, 99, 130) == [0, 0, 5, 21, 30, 39, 31]


def test_after_a_while_without_turns_it_is_believed_again() -> None:
    growth = PageGrowth(None)
    counted(growth, 100, 40, 101, 41)
    found = counted(growth, *range(50, 50 + TURN_PAGES + 3))
    assert found[0] is None and found[-1] == 1


def test_a_series_that_one_process_lacks_is_not_new_when_it_returns() -> None:
    growth, other = PageGrowth(None), (("x", "y"),)
    growth.take({LABELS: Cumulative(5, 5), other: Cumulative(50, 50)}, None, 1.0)
    growth.take({LABELS: Cumulative(6, 6)}, None, 2.0)
    compared = growth.take({LABELS: Cumulative(7, 7), other: Cumulative(51, 51)}, None, 3.0)
    now, before = compared[other]
    assert now.requests - before.requests == 1
