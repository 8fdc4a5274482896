"""A runtime that reads and never writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from dlsched.model.actions import Action, Memory, Outcome, Resize
from dlsched.runtime.docker.runtime import DockerRuntime
from dlsched.runtime.machine.outcomes import GivenBack

DRY_RUN = "dry run"


class DryRun:
    """Wraps a runtime: what reads passes through, what would write does nothing and says so."""

    held = DRY_RUN
    """Why nothing is changed, as for every runtime that is held."""

    def __init__(self, runtime: DockerRuntime) -> None:
        self._runtime = runtime
        self.observe = runtime.observe
        self.read_from = runtime.read_from
        self.examine = runtime.examine
        self.logs = runtime.logs
        self.alarms = runtime.alarms
        self.check_engine = runtime.check_engine
        self.refresh = runtime.refresh

    def close(self) -> None:
        self._runtime.close(keep_group=True)

    def resume(self, _now_s: float) -> None:
        """List them alone: a move that an earlier agent began would never go on."""
        self.refresh()

    def advance(self, now_s: float) -> None:
        """Nothing was begun."""

    def apply(self, action: Action, _now_s: float) -> Outcome:
        return Outcome(action, "withheld", DRY_RUN)

    def apply_all(self, actions: Sequence[Resize | Memory], now_s: float) -> tuple[Outcome, ...]:
        return tuple(self.apply(action, now_s) for action in actions)

    def release(self, _ceilings: Mapping[str, float | None]) -> tuple[GivenBack, ...]:
        """Nothing was changed, so nothing is given back."""
        return ()

    def expect(self, ceilings: Mapping[str, float | None], managed: Set[str]) -> None:
        """Give nothing back."""

    def hold(self, why: str | None) -> None:
        """It is held for ever."""

    def report_deliverable(self, job: str, deliverable: bool) -> None:
        """Tell the job nothing."""
