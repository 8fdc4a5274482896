"""Changes of a container's limits: what becomes of one, and what is left as it is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from dlsched.model.actions import Memory, Outcome, Resize
from dlsched.model.errors import DlschedError
from dlsched.runtime.machine.calls import Ended, Examine, GiveBack, SetLimits
from dlsched.runtime.machine.inspected import Inspected
from dlsched.runtime.machine.outcomes import GivenBack, Untouchable, Waits

AGAIN_S = 10.0
"""A container that could not be changed is retried after this time, or after a restart."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a container is left as it is, or did not get back what it had."""

    job: str
    why: str
    start: tuple[int, str]
    at_s: float
    not_given_back: str | None = None
    """How giving back what it had failed; then it is not left alone, but tried again."""

    def bars(self, described: Inspected, now_s: float) -> bool:
        """Whether that start of the container must not be changed now."""
        return self.not_given_back is None and not self._is_over(described, now_s)

    def after(self, described: Inspected, now_s: float, *, altered: bool) -> Refused | None:
        """What is left of it; `altered`: the container does not have what it had."""
        given_back = self.not_given_back is not None and not altered
        if given_back or self._is_over(described, now_s):
            return None
        if self.not_given_back is not None or now_s - self.at_s <= AGAIN_S:
            return self
        return replace(self, at_s=now_s)  # examined again; until then the reason stays

    def _is_over(self, described: Inspected, now_s: float) -> bool:
        if self.start != described.start or not described.alive:
            return True
        return described.adopted is None and now_s - self.at_s > AGAIN_S


def without_call(
    action: Resize, refused: Refused | None, now_s: float, *, altered: bool
) -> Outcome | None:
    """The outcome of a change that needs no call; None: it needs one."""
    if not action.gives_back:
        return None
    if not altered:
        return Outcome(action, "done")
    if refused is None or refused.not_given_back is None or now_s - refused.at_s > AGAIN_S:
        return None
    return Outcome(action, "failed", refused.not_given_back)


def refused_after(refused: Refused | None, ended: Ended) -> Refused | None:
    """What is refused after the end of a call."""
    call, error = ended.call, ended.error
    if isinstance(call, Examine) and error is None:
        why = None if ended.result is None else f"limits not changed: {ended.result}"
        return None if why is None else _refused(call.described, why, ended.at_s)
    if isinstance(call, GiveBack) and isinstance(back := ended.result, GivenBack):
        if back.failure is None:
            return None
        why = f"limits not given back: {back.failure}"
        return replace(_refused(call.described, why, ended.at_s), not_given_back=back.failure)
    if isinstance(call, SetLimits):
        if isinstance(error, Untouchable):
            return _refused(call.described, str(error), ended.at_s)
        return refused if error is not None else None
    return refused


def outcome(action: Resize | Memory, ended: Ended) -> Outcome:
    """The outcome of a change whose call has ended. Raises what no engine is to be blamed for."""
    error = ended.error
    if error is None:
        if isinstance(ended.result, GivenBack) and ended.result.failure is not None:
            return Outcome(action, "failed", ended.result.failure)
        return Outcome(action, "done", engine_s=ended.took_s)
    if not isinstance(error, DlschedError | OSError | ValueError):
        raise error
    status: Literal["withheld", "failed"] = "withheld" if isinstance(error, Waits) else "failed"
    return Outcome(action, status, str(error))


def _refused(described: Inspected, why: str, at_s: float) -> Refused:
    return Refused(described.job, why, described.start, at_s)
