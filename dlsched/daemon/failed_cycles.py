"""Control cycles that raised: what is shown of them, and when everything is given back."""

from __future__ import annotations

import logging
import traceback

from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.errors import unexpected
from dlsched.model.units import counted

log = logging.getLogger(__name__)

IN_A_ROW_MAX = 10
"""Failed cycles in a row after which the daemon only observes. With periods of 1 s, a fault that
goes away by itself (a restart of the engine, a full disk) is mostly gone by then, and no container
keeps limits for long without being adapted."""


class FailedCycles:
    """Counts failed cycles, in the loop's thread only; after SIGHUP another one counts from 0. The
    alarm may be asked for by other threads."""

    def __init__(self) -> None:
        self._in_a_row = 0
        self._what = ""
        """The last failure, and where; empty: the cycle before this one succeeded."""
        self._logged = ""
        self.hold: str | None = None
        """Why no limit may be changed any more; None: changes are allowed."""

    def failed(self, error: Exception) -> bool:
        """Count one, and log each new kind with its traceback. Returns whether everything is to be
        given back now."""
        self._in_a_row += 1
        self._what = f"{unexpected(error)}, {_place(error)}"
        if self._what != self._logged:
            log.critical("a control cycle failed: %s", self._what, exc_info=error)
        self._logged = self._what
        if self.hold is not None or self._in_a_row < IN_A_ROW_MAX:
            return False
        self.hold = (
            f"{IN_A_ROW_MAX} control cycles in a row failed; dlsched only observes until SIGHUP"
        )
        log.critical("all limits are given back: %s", self.hold)
        return True

    def succeeded(self) -> None:
        """End the row."""
        self._in_a_row, self._what = 0, ""

    def alarm(self) -> Alarm | None:
        """What failed in the cycle before, or that everything was given back."""
        what = f" Last failure: {self._what}." if self._what else ""
        if self.hold is not None:
            text = f"All limits were given back, since {self.hold}.{what}"
            return Alarm("cycle", AlarmKey.OBSERVES_ONLY, text)
        if not self._what:
            return None
        failed = counted(self._in_a_row, "control cycle")
        text = f"{failed} in a row failed; limits are not changed.{what}"
        return Alarm("cycle", AlarmKey.CYCLE_FAILED, text)


def _place(error: Exception) -> str:
    """The line of dlsched, or else the last line, that raised it: `config/yaml.py:181`."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/dlsched/" in frame.filename]
    if not frames:
        return "nowhere"
    last = (own or frames)[-1]
    return f"{last.filename.rpartition('/dlsched/')[2]}:{last.lineno}"
