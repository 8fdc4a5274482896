"""Restart policies that are not what the spec says, set back.

A stop sets the policy to `no` first; where the agent ends in the middle of it, and the job is
wanted again, nothing else would undo that. Owns that repair. It must not know what is wanted:
it takes containers that nobody is stopping, and gives whoever wants to time to say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future

from dlsched.model.spec import Restart
from dlsched.runtime.docker.background import begin
from dlsched.runtime.docker.create.containers import restart_update
from dlsched.runtime.docker.engine import Engine
from dlsched.runtime.docker.identity.labels import Inspected

AFTER_S = 5.0
"""A stop that is still wanted has begun again by then. Also the time between two tries."""


class Restarts:
    """The running containers whose restart policy strays, and since when."""

    def __init__(self, engine: Engine, want: Callable[[str | None], None]) -> None:
        """`want` is told, from a thread, which container to look at again."""
        self._engine = engine
        self._want = want
        self._since_s: dict[str, float] = {}

    def set_back(self, idle: Iterable[Inspected], now_s: float) -> dict[str, Future[None]]:
        """Begin to set back what strays for a while; `idle`: nothing is being done to these.

        Returns the calls by container: until its call is done a container must not be stopped.
        """
        since_s, calls = {}, {}
        for one in idle:
            strays = one.restart is not None and one.restart_strays and one.alive
            if one.restart is None or not strays or one.risks_gpus:
                continue
            since_s[one.container_id] = self._since_s.get(one.container_id, now_s)
            if now_s - since_s[one.container_id] >= AFTER_S:
                since_s[one.container_id] = now_s
                calls[one.container_id] = self._begin(one.container_id, one.job, one.restart)
        self._since_s = since_s
        return calls

    def _begin(self, container: str, job: str, restart: Restart) -> Future[None]:
        def update() -> None:
            try:
                self._engine.update(container, restart_update(restart))
            finally:
                self._want(container)

        return begin(update, f"restart-policy-{job}")
