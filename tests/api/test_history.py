"""`/v1/history`: what it answers, and every bad question."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlsched.api.client import Daemon
from dlsched.api.history_schema import History
from dlsched.api.reading import read
from tests.status_source import FakeSource, example_report
from tests.store.journal.hours import BEGIN_S, cycle, view, write


@pytest.fixture
def source(tmp_path: Path) -> FakeSource:
    """Ten minutes of `alpha`, which is silent in the last five, and `beta`."""
    source = FakeSource(replace(example_report(), wall_time="2025-11-21T09:50:00Z"))
    source.journal = tmp_path / "journal.db"
    write(
        source.journal,
        (
            cycle(
                number,
                view("alpha", ratio=2.0 if number < 300 else None),
                view("beta", limit_cores=None),
                changed=["alpha"] if number == 100 else [],
            )
            for number in range(1, 600)
        ),
    )
    return source


def asked(daemon: Daemon, query: str) -> dict[str, Any]:
    return daemon._status.ask("GET", f"/v1/history?{query}")


def test_a_range_is_answered_in_columns_with_its_changes(daemon: Daemon) -> None:
    found = asked(daemon, f"from={BEGIN_S:.0f}&to={BEGIN_S + 600:.0f}")
    history = read(History, found)
    assert history.step_s == 60
    assert history.times == tuple(BEGIN_S + 60 * n for n in range(10))
    alpha = history.jobs["alpha"]
    assert alpha.ratio[:5] == pytest.approx([2.0] * 5, rel=0.02)
    assert alpha.ratio[5:] == (None,) * 5
    assert alpha.limit_cores == (1.0,) * 10
    assert history.jobs["beta"].limit_cores == (None,) * 10
    assert history.node.capacity_cores == (4.0,) * 10
    assert history.node.used_cores == (1.0,) * 10
    assert history.node.given_cores == (1.0,) * 10
    assert history.node.foreign_cores == (0.25,) * 10
    assert history.node.memory_bytes == pytest.approx((2.0 * (1 << 20),) * 10, rel=1e-5)
    (change,) = history.changes
    assert (change.job, change.before_cores, change.after_cores) == ("alpha", 0.5, 0.75)
    assert (change.why, change.status) == ("late", "done")
    assert [one.kind for one in history.events] == ["arrived", "arrived"]
    assert (history.changes_left_out, history.events_left_out, history.notes) == (0, 0, ())
