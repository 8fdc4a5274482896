"""What top shows, taken from the stream in a thread of its own, over restarts of the daemon."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic

from dlsched.api.client import Daemon, StreamMessage
from dlsched.api.codec import SchemaMismatch, read
from dlsched.api.schema import Status
from dlsched.api.stream_schema import CyclePoint
from dlsched.cli.top.curves import Curves
from dlsched.model.errors import DaemonUnavailable, Refused

AGAIN_S = 1.0
"""Time between two attempts to reach a daemon that has gone."""

LATE_PERIODS = 3.0
"""Without a cycle for as many periods of the daemon, there is no news."""

LATE_S = 3.0
"""The shortest time without a cycle that is reported."""


@dataclass(frozen=True)
class View:
    """One cycle as top shows it."""

    status: Status
    means: Mapping[str, float]
    trends: Mapping[str, Sequence[float | None]]
    heard_s: float
    """When it came, by this process's clock."""
    period_s: float
    """Time between the last two cycles; 0: there is only one."""

    def silence(self, now_s: float) -> float | None:
        """How long there has been no news; None: the next cycle is not late yet."""
        age_s = now_s - self.heard_s
        return age_s if age_s > max(LATE_S, LATE_PERIODS * self.period_s) else None


class Feed:
    """Follows the stream, and hands each cycle over as a View."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.problem: str | None = None
        """Why no stream is followed now, in one line."""
        self._curves = Curves()
        self._last_id = ""
        self._now_s: float | None = None
        self._period_s = 0.0
        self._ended = threading.Event()

    def start(self, news: Callable[[View], object]) -> None:
        """Call `news` with each cycle, from another thread."""
        threading.Thread(target=self._follow, args=(news,), name="feed", daemon=True).start()

    def stop(self) -> None:
        self._ended.set()

    def _follow(self, news: Callable[[View], object]) -> None:
        while not self._ended.is_set():
            try:
                for message in self.daemon.cycles(self._last_id):
                    self.problem = None
                    view = self._take(message)
                    if self._ended.is_set():
                        return
                    if view is not None:
                        news(view)
                self.problem = "the daemon has ended the stream"
            except (DaemonUnavailable, Refused, SchemaMismatch) as error:
                self.problem = str(error)
            except ValueError as error:
                self.problem = f"the daemon does not answer in JSON: {error}"
            self._ended.wait(AGAIN_S)

    def _take(self, message: StreamMessage) -> View | None:
        """The view that this message completes."""
        if message.kind == "point":
            point = read(CyclePoint, json.loads(message.data))
            self._curves.add(point)
            if self._now_s is not None:
                self._period_s = max(0.0, point.now_s - self._now_s)
            self._now_s = point.now_s
        self._last_id = message.id or self._last_id
        if message.kind != "status":
            return None
        status = read(Status, json.loads(message.data))
        return View(
            status, self._curves.means(), self._curves.trends(), monotonic(), self._period_s
        )
