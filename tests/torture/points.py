"""Fault points: where a process is about to change something outside itself, and dying there.

Owns counting them and the death. A point is one such call; it is named by what it does, to whom,
and the how-manieth it is, so that another run of the same act can be told to die at the same one.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

Phase = Literal["before", "inside", "after", "lost", "slow"]
"""Inside: the request is sent and its answer never read, or half of a text is written. A call that
the kernel does whole or not at all has no inside. Lost and slow are for requests alone: nobody
dies, but the answer never comes, or late."""

REQUEST = "engine: "
"""Begins the names of actions that are requests."""

_ORDER = "order.json"


@dataclass(frozen=True, slots=True)
class Point:
    """One call that changes something outside the process."""

    action: str
    whose: str
    ordinal: int
    has_inside: bool = False

    @property
    def deaths(self) -> tuple[Phase, ...]:
        """Where one has to die around it.

        After a call is before the next one; a request's effects go on by themselves meanwhile.
        """
        inside: tuple[Phase, ...] = ("inside",) if self.has_inside else ()
        return ("before", *inside, "after") if self._is_request else ("before", *inside)

    @property
    def delays(self) -> tuple[Phase, ...]:
        """What else can go wrong with it."""
        return ("lost", "slow") if self._is_request else ()

    @property
    def _is_request(self) -> bool:
        return self.action.startswith(REQUEST)

    def __str__(self) -> str:
        return f"{self.action} ({self.whose or 'agent'}, {self.ordinal})"


@dataclass(frozen=True, slots=True)
class Order:
    """What the process under test is told: to list its points, or to die at one of them."""

    round: int
    """Counting begins anew with each."""
    list_to: str | None = None
    point: Point | None = None
    phase: Phase = "before"
    pid: int = 0
    """Of the process that dies there; 0: the one that comes to the point."""


def give_order(folder: Path, order: Order) -> None:
    """Tell the process that looks into that folder; in force from its next point on."""
    fresh = folder / f"{_ORDER}.new"
    fresh.write_text(json.dumps(asdict(order)))
    fresh.replace(folder / _ORDER)


def withdraw_order(folder: Path) -> None:
    """Nothing is counted and nobody dies from now on."""
    (folder / _ORDER).unlink(missing_ok=True)


def listed(file: Path) -> list[Point]:
    """The points that a process listed, in the order in which it came to them."""
    if not file.exists():
        return []
    return [Point(**json.loads(line)) for line in file.read_text().splitlines()]


class Points:
    """The points of this process. Uses nothing of what is wrapped, so that it counts nothing."""

    def __init__(self, folder: Path) -> None:
        self._order_file = str(folder / _ORDER)
        self._lock = threading.RLock()
        self._order: Order | None = None
        self._raw = b""
        self._counts: Counter[tuple[str, str]] = Counter()
        self._open, self._read, self._close = os.open, os.read, os.close
        self._write = os.write

    @contextmanager
    def around(
        self, action: str, whose: str, *, has_inside: bool = False
    ) -> Iterator[Phase | None]:
        """A point around one call; what is handed out is ordered for the inside of it."""
        phase = self._reached(action, whose, has_inside)
        if phase == "before":
            self.die()
        yield phase
        if phase == "after":
            self.die()

    def die(self) -> None:
        """End the process that was ordered to die, and come back only where it is another one."""
        order = self._order
        if order is None or not order.pid:
            die()
            return
        with suppress(ProcessLookupError):
            os.kill(order.pid, signal.SIGKILL)

    def _reached(self, action: str, whose: str, has_inside: bool) -> Phase | None:
        with self._lock:
            order = self._look()
            if order is None:
                return None
            self._counts[action, whose] += 1
            point = Point(action, whose, self._counts[action, whose], has_inside)
            if order.list_to is not None:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
                descriptor = self._open(order.list_to, flags, 0o600)
                self._write(descriptor, json.dumps(asdict(point)).encode() + b"\n")
                self._close(descriptor)
            wanted = order.point
            if wanted is None or (wanted.action, wanted.whose, wanted.ordinal) != (
                point.action,
                point.whose,
                point.ordinal,
            ):
                return None
            return order.phase

    def _look(self) -> Order | None:
        try:
            descriptor = self._open(self._order_file, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self._raw, self._order = b"", None
            return None
        raw = self._read(descriptor, 4096)
        self._close(descriptor)
        if raw != self._raw:
            plain = json.loads(raw)
            point = plain.pop("point")
            order = Order(**plain, point=None if point is None else Point(**point))
            if self._order is None or order.round != self._order.round:
                self._counts.clear()
            self._raw, self._order = raw, order
        return self._order


def die() -> None:
    """Here and now, with every thread."""
    os.kill(os.getpid(), signal.SIGKILL)
