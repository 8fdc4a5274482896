"""A machine whose calls are written down, and end when the test says so."""

from __future__ import annotations

from typing import Any

from dlsched.runtime.machine.calls import Call
from dlsched.runtime.machine.container import Container, Ended, Event, Listed, Machine, validate
from dlsched.runtime.machine.inspected import Inspected
from tests.runtime.machine.described import RUNNING


class Table:
    """One container, on a clock of numbers."""

    def __init__(self) -> None:
        self.made: list[Call] = []
        self.machine = Machine(self.made.append)
        self.now_s = 100.0

    def post(self, event: Event, at_s: float | None = None) -> Container:
        self.now_s = self.now_s if at_s is None else at_s
        one = self.machine.post("c", event, self.now_s)
        validate(one)
        return one

    def see(self, described: Inspected | None, at_s: float | None = None, **more: Any) -> Container:
        """The container in a listing of that moment."""
        at_s = self.now_s if at_s is None else at_s
        return self.post(Listed(described, at_s, **more), at_s)

    def end(self, at_s: float | None = None, error: Exception | None = None) -> Container:
        """The oldest call under way ends."""
        at_s = self.now_s if at_s is None else at_s
        (call, *_) = self.machine.of("c").calls
        return self.post(Ended(call, at_s, error), at_s)

    @property
    def calls(self) -> list[str]:
        """What was asked for, in order."""
        return [type(call).__name__ for call in self.made]

    @property
    def operation(self) -> str:
        return str(self.machine.of("c").operation(RUNNING, self.now_s) or "")
