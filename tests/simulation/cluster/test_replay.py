"""Recorded rounds asked again: the recorded policy decides the same, another one otherwise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest

from dlsched.cluster.core.model import ClusterDecision, ClusterMemory, ClusterSnapshot
from dlsched.cluster.journal import RecordedRound, RoundJournal, RoundReader
from dlsched.model.errors import PolicyError
from dlsched.simulation.cluster.replay import ClusterReplay, Difference
from dlsched.simulation.cluster.run import ClusterOptions, simulate_cluster
from tests.simulation.cluster.test_thin import three_jobs

pytestmark = pytest.mark.timed

HERE = "tests.simulation.cluster.test_replay"


@dataclass(frozen=True, slots=True)
class Parameters:
    first: int = 0


@dataclass(frozen=True, slots=True)
class Count:
    asked: int


class InTurn:
    """Places on one node after the other: what it remembers decides."""

    Parameters: ClassVar[type[Parameters]] = Parameters
    Memory: ClassVar[type[Count]] = Count

    def __init__(self, parameters: Parameters) -> None:
        self._first = parameters.first

    def decide(self, snapshot: ClusterSnapshot, memory: ClusterMemory | None) -> ClusterDecision:
        asked = memory.asked if isinstance(memory, Count) else self._first
        node = snapshot.nodes[asked % len(snapshot.nodes)].name if snapshot.nodes else ""
        place = {job.name: node for job in snapshot.queue}
        return ClusterDecision(
            place, why=dict.fromkeys(place, f"turn {asked}"), memory=Count(asked + 1)
        )


class Secretive(InTurn):
    """It does not say the type of its memory."""

    Memory = None  # type: ignore[assignment]


def recorded(tmp_path: Path, policy: str, **options: object) -> list[RecordedRound]:
    """The rounds of a simulated cluster."""
    path = tmp_path / "rounds.db"
    journal = RoundJournal(path, policy, options)

    def keep(report: object) -> None:
        journal.take(report, "2026-01-01T00:00:00.000Z")  # type: ignore[arg-type]
        journal.flush()

    spelled = policy + "".join(f"?{key}={value}" for key, value in options.items())
    simulate_cluster(three_jobs(), spelled, 1, ClusterOptions(publish=keep))
    journal.close()
    with RoundReader(path) as reader:
        found = list(reader.rounds())
        assert reader.problem is None
    return found


def replayed(
    rounds: list[RecordedRound], policy: str | None = None
) -> tuple[ClusterReplay, list[Difference]]:
    again = ClusterReplay(policy)
    return again, [row for one in rounds for row in again.take(one)]


@pytest.mark.parametrize("policy", ["adaptive", "specon", "least-work", "spread", f"{HERE}:InTurn"])
def test_the_recorded_policy_decides_the_same(tmp_path: Path, policy: str) -> None:
    again, differences = replayed(recorded(tmp_path, policy))
    assert differences == []
    assert again.rounds == again.same > again.acted >= 3


def test_the_recorded_memory_and_parameters_are_used(tmp_path: Path) -> None:
    rounds = recorded(tmp_path, f"{HERE}:InTurn", first=1)
    assert replayed(rounds)[1] == []
    without = [replace(one, memory=None) for one in rounds]
    again, differences = replayed(without)
    assert again.same < again.rounds
    assert "turn 1" in {one.why for one in differences}
    assert replayed([replace(one, options={}) for one in rounds])[1] != []


def test_another_policy_shows_where_it_differs_and_keeps_its_own_memory(tmp_path: Path) -> None:
    rounds = recorded(tmp_path, "spread")
    again, differences = replayed(rounds, f"{HERE}:InTurn?first=1")
    assert (again.rounds, again.acted, again.failures) == (len(rounds), 3, 0)
    assert 0 < len(differences) == again.rounds - again.same
    first = differences[0]
    assert (first.done, first.would) in (("left", "right"), ("right", "left"))
    turns = [int(one.why.split()[1]) for one in differences]
    assert turns == sorted(set(turns))
    assert replayed(rounds, "spread")[1] == []


def test_a_reason_alone_counts_for_the_recorded_policy_only(tmp_path: Path) -> None:
    rounds = recorded(tmp_path, "spread")
    placed = next(one for one in rounds if one.decided.place)
    job = next(iter(placed.decided.place))
    other = replace(placed, decided=replace(placed.decided, why={job: "because"}))
    (row,) = replayed([other])[1]
    assert (row.job, row.done == row.would, row.row) == (job, True, placed.row)
    assert replayed([other], "spread")[1] == []


def test_a_policy_that_cannot_be_asked_is_counted(tmp_path: Path) -> None:
    rounds = recorded(tmp_path, f"{HERE}:Secretive")
    again, _ = replayed(rounds)
    ((why, times),) = again.unasked.items()
    assert (again.rounds, times) == (1, len(rounds) - 1)  # the first one had no memory
    assert why.endswith("does not say the type of its Memory")
    again, _ = replayed([replace(one, policy="gone") for one in rounds])
    assert (again.rounds, sum(again.unasked.values())) == (0, len(rounds))
    with pytest.raises(PolicyError):
        ClusterReplay("gone")
