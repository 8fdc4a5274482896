"""How long no report of this node has come to a manager, and which jobs it ends because of that.

A request for a report alone is no contact: the answer may be lost, or come too late to count.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from dlsched.cluster.agent.assignments import Assignment
from dlsched.cluster.core.following import RUNNING
from dlsched.cluster.core.leases import LEASE_S, is_leased
from dlsched.cluster.core.records import Phase
from dlsched.model.spec import JobSpec
from dlsched.store.atomic import clear_unfinished, write_whole

UNCONFIRMED = f"no manager has confirmed for {LEASE_S:.0f} s that the job is on this node"
CUT_OFF = (
    f"no manager has read this node's report for {LEASE_S:.0f} s, so another node may get the job"
)
KEPT_S = 10.0
"""How much older the file may be: the lease is the shorter for the next agent."""


class Contact:
    """It outlives the agent, so that the next one does not begin a lease again, but not the host's
    start. Thread-safe."""

    def __init__(self, file: Path, boot: str, now_s: Callable[[], float]) -> None:
        """`boot` differs at each start of the host, `now_s` counts from there, also while it
        sleeps."""
        self._file, self._boot, self._now_s = file, boot, now_s
        clear_unfinished(file.parent)
        self._last_s = self._kept_s = _read(file, boot, now_s())
        self.host_started = self._last_s == -math.inf
        """Whether the host has started since, or no contact is known."""

    def renew(self, age_s: float = 0.0) -> None:
        """There was contact so long ago."""
        self._last_s = max(self._last_s, self._now_s() - age_s)

    def age_s(self) -> float:
        """Infinite if none is known."""
        return self._now_s() - self._last_s

    def keep(self) -> None:
        """Write it down, now and then. Where that fails, the next agent's leases are shorter."""
        last_s = self._last_s
        if last_s < self._kept_s + KEPT_S:
            return
        with suppress(OSError):
            text = json.dumps({"boot": self._boot, "at_s": last_s})
            write_whole(self._file, text, to_disk=False)
            self._kept_s = last_s


class Leases:
    """Which of this node's jobs another node may get, as no manager has been here for so long."""

    def __init__(self, contact: Contact, spec_of: Callable[[Assignment], JobSpec | None]) -> None:
        """`spec_of`: None: this version of dlsched cannot read the job's file."""
        self._contact, self._spec_of = contact, spec_of

    def binds(self, own: Assignment) -> bool:
        """Whether it has a lease at all."""
        spec = self._spec_of(own)
        return not own.confirmed if spec is None else is_leased(spec, confirmed=own.confirmed)

    def is_over(self, own: Assignment) -> bool:
        return self.binds(own) and self._contact.age_s() > LEASE_S

    def ended(self, own: Assignment) -> bool:
        """Whether the agent that begins must not start it, nor start it again: an arrival, one that
        ended with the host, and one that an earlier agent was to end. Any other may still save
        itself."""
        may_save = own.confirmed and own.phase is not Phase.SAVING
        may_save = may_save and not self._contact.host_started
        return own.phase in RUNNING and not may_save and self.is_over(own)


def cut_off(own: Assignment) -> str:
    """Why a job whose lease is over does not run here."""
    return CUT_OFF if own.confirmed else UNCONFIRMED


def _read(file: Path, boot: str, now_s: float) -> float:
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        at_s, kept_boot = float(kept["at_s"]), str(kept["boot"])
    except (OSError, ValueError, TypeError, KeyError):
        return -math.inf
    return at_s if kept_boot == boot and at_s <= now_s else -math.inf
