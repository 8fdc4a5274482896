"""The agent that is played with: its process, its orders, its answers.

Owns one agent at a time, and the commands beside it. It must not judge what they do.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from dlsched.model.errors import DaemonUnavailable, Refused
from tests.torture.launcher import run_agent, run_release
from tests.torture.points import Order, Point, give_order, listed, withdraw_order
from tools.session import Session

PERIOD = "100ms"
WITHIN_S = 60.0
"""So long the world may take to become what is wished for. On a host at rest that is a second or
two, or the 5 s that a start which failed rests and that a restart policy that strays is left."""

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.torture.launcher"])


class Agent:
    """Agents of one instance, one after the other."""

    def __init__(self, session: Session, policy: str) -> None:
        """Writes its settings; starts nothing."""
        self._root = session.root
        self.orders = session.root / "orders"
        self.orders.mkdir(exist_ok=True)
        self.log = session.root / "daemon.log"
        self._settings = session.configure(policy, more={"period": PERIOD})
        self._client = session.client
        self._round = 0
        self._process: Any = None
        self.last_code: int | None = 0
        """How the last process ended."""

    def start(self) -> None:
        """A new agent; does not wait for it."""
        self._process = self._fork(run_agent)

    def stop(self, within_s: float = WITHIN_S) -> int | None:
        """SIGTERM, and wait; the exit code, None: it did not end."""
        if self._process is None:
            return self.last_code
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGTERM)
        return self.gone(within_s)

    def gone(self, within_s: float = WITHIN_S) -> int | None:
        """Wait for the agent's end; its exit code, None: it lives on."""
        if self._process is None:
            return self.last_code
        self._process.join(within_s)
        self.last_code = self._process.exitcode
        if self.last_code is not None:
            self._process = None
        return self.last_code

    def release(self) -> int | None:
        """`dlsched release` as after an agent's end; its exit code, None: it did not end."""
        command = self._fork(run_release)
        command.join(WITHIN_S)
        self.last_code = command.exitcode
        if self.last_code is None:
            command.kill()
        return self.last_code

    def _fork(self, what: Callable[..., None]) -> Any:
        process = _FORKS.Process(
            target=what, args=(str(self._settings), str(self.orders), str(self.log))
        )
        process.start()
        return process

    @property
    def alive(self) -> bool:
        """Whether the agent lives."""
        return self._process is not None and self._process.exitcode is None

    def kill(self) -> None:
        """SIGKILL, wherever it is."""
        if self._process is not None:
            self._process.kill()
            self._process.join(WITHIN_S)
            self._process = None

    def list_points(self) -> Callable[[], list[Point]]:
        """Have the agent list its points from now on; call what is returned to end that."""
        self._round += 1
        file = self._root / f"points-{self._round}.jsonl"
        give_order(self.orders, Order(self._round, list_to=str(file)))

        def end() -> list[Point]:
            withdraw_order(self.orders)
            return listed(file)

        return end

    def order(self, point: Point, phase: Any) -> None:
        """Have the agent die there."""
        self._round += 1
        give_order(self.orders, Order(self._round, point=point, phase=phase))

    def no_orders(self) -> None:
        """Nobody dies any more."""
        withdraw_order(self.orders)

    def status(self) -> dict[str, Any] | None:
        """What the agent says; None: nothing."""
        try:
            return self._client.jobs()
        except (DaemonUnavailable, Refused):
            return None

    @property
    def client(self) -> Any:
        """The agent's client, for requests that need not be answered."""
        return self._client

    def ask(self, request: Callable[[Any], object]) -> bool:
        """Ask the agent for something; whether it has answered: it may die over it.

        One that just began may not know the job yet.
        """
        until_s = time.monotonic() + WITHIN_S
        while True:
            try:
                request(self._client)
            except DaemonUnavailable:
                return False
            except Refused:
                if time.monotonic() > until_s:
                    raise
                time.sleep(0.05)
            else:
                return True

    def answers(self, within_s: float = WITHIN_S) -> bool:
        """Wait until the agent answers."""
        until_s = time.monotonic() + within_s
        while time.monotonic() < until_s:
            if self.status() is not None:
                return True
            time.sleep(0.02)
        return False
