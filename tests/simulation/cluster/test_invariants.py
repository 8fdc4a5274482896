"""The checks of a simulated cluster find what they are there for."""

from __future__ import annotations

import pytest

from dlsched.cluster.core.records import Record, RecordState
from dlsched.simulation.cluster.agent import SimulatedAgent
from dlsched.simulation.cluster.invariants import BrokenInvariant
from dlsched.simulation.cluster.run import ClusterOptions, SimulatedCluster
from tests.simulation.cluster.test_moves import SCRIPTED
from tests.simulation.cluster.test_thin import three_jobs


def started() -> SimulatedCluster:
    """A cluster whose jobs run."""
    there = SimulatedCluster(three_jobs(), "spread", 1, ClusterOptions())
    there.clock.sleep_until(20.0)
    there.controller.round()
    there.agents.run_until(21.0)
    there.agents.run_until(25.0)
    there.check()
    return there


def test_a_job_that_runs_twice_is_found() -> None:
    there = started()
    there.agents.nodes["right"].assign(there.agents.nodes["right"].jobs["first"].spec)
    there.agents.run_until(30.0)
    with pytest.raises(BrokenInvariant, match="I1 at 30 s: first runs on"):
        there.check()


def test_a_job_that_runs_elsewhere_than_its_record_says_is_found() -> None:
    there = started()
    stored = there.store.records()["second"]
    there.store.put(Record("second", RecordState.PLACED, "left", 2), stored.version)
    with pytest.raises(BrokenInvariant, match=r"I3 .* second runs on right"):
        there.check()


def test_a_source_that_drops_what_it_saved_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedAgent, "keeps", lambda *_: None)
    there = SimulatedCluster(three_jobs(), SCRIPTED, 1, ClusterOptions())
    with pytest.raises(BrokenInvariant, match=r"I2 .* left no longer keeps first"):
        there.run()
