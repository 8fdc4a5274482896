"""Asks the shadow policy after each round, in a thread: one that is slow or hangs holds no round
up."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from threading import Thread

from dlsched.api.cluster_schema import DifferenceRow, ShadowRow
from dlsched.cluster.bounds import line
from dlsched.cluster.core.asking import described
from dlsched.cluster.core.decider import ClusterAnswer
from dlsched.cluster.core.model import ClusterPolicy, ClusterSnapshot
from dlsched.cluster.core.shadow import STAYS, ClusterShadow, Shadowed
from dlsched.cluster.round_report import RoundReport
from dlsched.cluster.rounds import by_host, names_of

WAIT_S = 0.5
"""For its answer, once the round's records are written and its orders sent."""
ROWS_MAX = 20
"""Differences that are shown, the latest."""


class Shadowing:
    """The shadow of this controller, and what it came to since the start."""

    def __init__(self, name: str, policy: ClusterPolicy) -> None:
        self._shadow = ClusterShadow(name, policy)
        self._thread: Thread | None = None
        self._late = 0
        # Written by the thread, of which there is at most one.
        self._rows: deque[DifferenceRow] = deque(maxlen=ROWS_MAX)
        self._row = ShadowRow(name, 0, 0, 0, 0, "", ())
        self._answered: Shadowed | None = None

    def take(self, report: RoundReport, wall_time: str) -> Shadowed | None:
        """Ask about the round, if the acting policy was asked. None: it was not, or the shadow has
        not answered in time; its answer then still counts when it comes."""
        if report.snapshot is None or not report.answer.asked:
            return None
        if not self._is_deciding():
            self._answered = None
            names = names_of(report.members)
            asked = (report.snapshot, report.answer, names, wall_time)
            thread = Thread(target=self._ask, args=asked, name="shadow", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system gives no more threads
                self._late += 1
                return None
            self._thread = thread
            thread.join(WAIT_S)
            if not self._is_deciding():
                return self._answered
        self._late += 1
        return None

    def row(self) -> ShadowRow:
        """What people see of it."""
        if self._is_deciding():
            return replace(self._row, late=self._late, problem="it still decides on a round")
        return replace(self._row, late=self._late)

    def _is_deciding(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _ask(
        self,
        snapshot: ClusterSnapshot,
        acting: ClusterAnswer,
        names: Mapping[str, str],
        wall_time: str,
    ) -> None:
        shadow = self._shadow
        try:
            answered = shadow.ask(snapshot, acting)
        except BaseException as error:  # noqa: BLE001  also of a policy that ends its thread
            shadow.failed += 1
            failure = described(error)
            answered = Shadowed(shadow.name, ClusterAnswer(asked=True, failure=failure))
        for one in answered.new:
            done, would = (_text(what, one.node, names) for what in (one.done, one.would))
            why = line(by_host(one.why, names))
            self._rows.append(DifferenceRow(wall_time, one.job, done, would, why))
        self._row = ShadowRow(
            shadow.name,
            shadow.same,
            shadow.different,
            shadow.failed,
            0,
            answered.answer.failure or "",
            tuple(self._rows),
        )
        self._answered = answered


def _text(action: str, node: str | None, names: Mapping[str, str]) -> str:
    """The action, as what is done to the job."""
    if action == STAYS:
        return "left waiting" if node is None else f"left on {names.get(node, node)}"
    what, _, target = action.rpartition(" ")
    how = {"": "placed on", ">": "moved to", "back >": "moved back to"}[what]
    return f"{how} {names.get(target, target)}"
