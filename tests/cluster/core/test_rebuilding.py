"""Records from what the nodes hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.cluster.core.job_memory import DesiredJob
from dlsched.cluster.core.ledger import ClusterFacts
from dlsched.cluster.core.rebuilding import held_twice, rebuilt
from dlsched.cluster.core.records import (
    Holding,
    Phase,
    Record,
    RecordState,
    Saved,
    file_version,
)
from dlsched.cluster.core.reports import NodeReport
from dlsched.cluster.core.snapshot import NodeState
from tests.doubles import job_spec

SAVED = Saved(120, "a" * 64, 4096)
DESIRED = DesiredJob(replace(job_spec("job"), digest="d"), text="new")


def held(epoch: int, phase: Phase, saved: Saved | None = None) -> Holding:
    return Holding("job", epoch, phase, saved=saved)


@pytest.mark.parametrize(
    ("holdings", "expected"),
    [
        (
            {"a": held(3, Phase.RUNNING), "b": held(3, Phase.PREPARED)},
            Record("job", RecordState.PLACED, "a", 3, first=3),
        ),
        (
            {"a": held(3, Phase.FENCED), "b": held(4, Phase.ENDED)},
            Record("job", RecordState.PLACED, "b", 4, first=4),
        ),
        (
            {"a": held(3, Phase.AWAY, SAVED)},
            Record("job", RecordState.PLACED, "a", 3, first=3),
        ),
        (
            {"a": held(3, Phase.AWAY, SAVED), "b": held(4, Phase.RUNNING)},
            Record("job", RecordState.MOVING, "b", 4, source="a", saved=SAVED),
        ),
        (
            {"a": held(3, Phase.AWAY, SAVED), "b": held(4, Phase.FAILED)},
            Record("job", RecordState.UNDOING, "b", 4, source="a"),
        ),
    ],
)
def test_the_highest_epoch_tells_the_owner(holdings: dict[str, Holding], expected: Record) -> None:
    assert rebuilt("job", DESIRED, holdings) == expected


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.ENDED])
def test_a_node_that_goes_by_the_file_that_is_desired_has_its_digest(phase: Phase) -> None:
    same, other = (replace(held(3, phase), file=file_version(text)) for text in ("new", "old"))
    assert rebuilt("job", DESIRED, {"a": same}).digest == "d"
    assert rebuilt("job", DESIRED, {"a": same}).ends_s > 0
    assert rebuilt("job", DESIRED, {"a": other}).digest == ""


def test_a_job_that_no_node_has_is_placed_above_all_known_epochs() -> None:
    record = rebuilt("job", DESIRED, {"a": held(6, Phase.FENCED), "b": held(5, Phase.FENCED)})
    assert (record.state, record.epoch) == (RecordState.ENDED, 6)
    assert record.wants_place("d")


def test_a_job_that_another_node_runs_at_an_unknown_epoch_is_told() -> None:
    def told(phase: Phase, epoch: int, state: RecordState = RecordState.PLACED) -> list[str]:
        reports = {"b": NodeReport("b", 8.0, holdings=(held(epoch, phase),))}
        record = Record("job", state, "a", 2)
        nodes = {"a": NodeState.READY, "b": NodeState.READY}
        return list(held_twice(ClusterFacts(0.0, nodes, {"job": record}, reports, {})))

    assert told(Phase.RUNNING, 5) == [
        (
            "job: b runs the job at epoch 5, the job's record names a at epoch 2: remove the job's "
            "file to "
            "end both"
        )
    ]
    assert len(told(Phase.ARRIVING, 2)) == 1
    assert told(Phase.PREPARED, 2) == [], "room that is kept"
    assert told(Phase.RUNNING, 1) == [], "it is ordered to end it"
    assert told(Phase.RUNNING, 5, RecordState.ENDED) == []
