"""The recorded limits as a policy: a simulation of the recorded load under it differs from the
record by the model's error alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dlsched.model.decision import Decision, PolicyMemory
from dlsched.model.spec import Limits
from dlsched.model.state import Snapshot
from dlsched.model.units import CORES_MIN
from dlsched.simulation.review.tally import Given

PLAYBACK = "recorded limits"


@dataclass(frozen=True, slots=True)
class PlaybackParameters:
    """It has no parameters."""


class Playback:
    """Gives each job the mean limits of the recorded slice. One that has no record has no limit."""

    Parameters: ClassVar[type[PlaybackParameters]] = PlaybackParameters
    Memory: ClassVar[type[Any] | None] = None
    reserves: ClassVar[bool] = False
    heeds_progress: ClassVar[bool] = False
    observes_only: ClassVar[bool] = False
    per_device: ClassVar[bool] = False

    def __init__(
        self,
        given: Mapping[str, Mapping[int, Given]],
        slice_s: float,
        cycle_s: float,
        names: Mapping[str, str],
    ) -> None:
        """`given`: by recorded name and slice. `names`: the recorded names of simulated jobs."""
        self._given = given
        self._ahead_s = cycle_s / 2.0
        """To the middle of the time for which a decision is valid."""
        self._slice_s = slice_s
        self._names = names
        self._last: dict[str, Given] = {}

    def decide(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Decision:  # noqa: ARG002
        number = int((snapshot.now_s + self._ahead_s) / self._slice_s)
        limits: dict[str, Limits] = {}
        weights: dict[str, float] = {}
        for job in snapshot.running:
            recorded = self._given.get(self._names.get(job.name, job.name), {})
            # A simulated job may run where the recorded one did not: what it had last, then.
            given = recorded.get(number) or self._last.get(job.name)
            if given is None:
                limits[job.name], weights[job.name] = Limits(), 1024.0
                continue
            self._last[job.name] = given
            ceiling = given.ceiling_cores
            limits[job.name] = Limits(None if ceiling is None else max(CORES_MIN, ceiling))
            weights[job.name] = 0.0 if given.idle and job.may_idle else max(2.0, given.cpu_shares)
        return Decision(limits=limits, weights=weights)
