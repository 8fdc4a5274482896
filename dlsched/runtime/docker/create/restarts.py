"""Restores restart policies that a stop has set to `no` and an agent that ended left so."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future

from dlsched.model.spec import Restart
from dlsched.runtime.docker.background import begin
from dlsched.runtime.docker.create.containers import restart_update
from dlsched.runtime.docker.engine import Engine
from dlsched.runtime.docker.identity.labels import Inspected

AFTER_S = 5.0
"""A stop that is still wanted has begun again by then. Also the time between two attempts."""


class Restarts:
    """Running containers whose restart policy differs, and since when."""

    def __init__(self, engine: Engine, want: Callable[[str | None], None]) -> None:
        """`want` is called, from a thread, with the container to inspect again."""
        self._engine = engine
        self._want = want
        self._since_s: dict[str, float] = {}

    def set_back(self, idle: Iterable[Inspected], now_s: float) -> dict[str, Future[None]]:
        """Begin to restore policies that have differed for a while; `idle`: without an operation.
        Returns the calls by container, which must not be stopped until its call is done."""
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
