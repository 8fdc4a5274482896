"""What of an engine does not change while it runs, asked once: who it is, and how it counts.

Owns those facts. It must not know containers.
"""

from __future__ import annotations

import re
from contextlib import suppress

from dlsched.model.errors import DlschedError
from dlsched.runtime.cgroup.limits import DEFAULT_SHARES, OLDER_DEFAULT_SHARES
from dlsched.runtime.docker.engine import Engine

_NEWER_RUNC = (1, 3, 2)
"""From this version on 1024 shares are weight 100 on cgroup v2."""


class EngineFacts:
    """One engine's. May be used from any thread; raises what the engine's calls raise."""

    def __init__(self, engine: Engine) -> None:
        """Nothing is asked before it is needed."""
        self._engine = engine
        self.driver: str | None = None
        """As `cgroup_driver`; None: not asked yet."""
        self._cores: int | None = None
        self._identity = ""
        self._newer_runc: bool | None = None

    def identity(self, *, fresh: bool = False) -> str:
        """Its own id; empty: it does not say. `fresh`: another may answer by now. Never raises."""
        if fresh or not self._identity:
            self._identity = ""
            with suppress(DlschedError):
                self._identity = str(self._engine.info().get("ID") or "")
        return self._identity

    def cgroup_driver(self) -> str:
        """systemd or cgroupfs."""
        if self.driver is None:
            self.driver = str(self._engine.info().get("CgroupDriver", "cgroupfs"))
        return self.driver

    def cores(self) -> int:
        """Of the host, as it counts them."""
        if self._cores is None:
            self._cores = int(self._engine.info().get("NCPU") or 1)
        return self._cores

    def default_shares(self) -> int:
        """What a container that does not run must be given to have the default weight later."""
        if str(self._engine.info().get("CgroupVersion", "1")) != "2":
            return DEFAULT_SHARES
        return DEFAULT_SHARES if self.has_newer_runc() else OLDER_DEFAULT_SHARES

    def has_newer_runc(self) -> bool:
        """Whether its runc turns shares into weights as later ones do."""
        if self._newer_runc is None:
            parts = self._engine.version().get("Components") or ()
            versions = [
                str(part.get("Version", "")) for part in parts if part.get("Name") == "runc"
            ]
            numbers = tuple(int(number) for number in re.findall(r"\d+", "".join(versions))[:3])
            self._newer_runc = numbers >= _NEWER_RUNC
        return self._newer_runc
