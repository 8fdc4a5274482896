"""Owns the hook that keeps the unit lane pure: no thread, sleep, wait, socket or real clock.

Importing it installs the hook; tests/conftest.py does so before anything of the project, so that
`from time import monotonic` and `clock=time.monotonic` get the watched function, too.

A case answers for what its own thread does from its set-up to its teardown, and for its fixtures,
those of wider scope included. Import of a module does not count. Reading the clock and sleeping
count if the calling line is one of the project: libraries may. Threads, waits and sockets count if
the project is anywhere below them on the stack: who runs a library's client or an event loop asked
for its threads and sockets. Not seen: waits inside C code (`SimpleQueue.get`, `lock.acquire`,
selectors), which have nobody to wait for in a case without threads and sockets.
"""

from __future__ import annotations

import ctypes
import datetime
import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
CODE = tuple(
    f"{ROOT / folder}{os.sep}" for folder in ("dlsched", "tests", "tools", "benchmarks", "examples")
)
"""The folders of the project's own code."""
CLOCKS = (
    *("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"),
    *("process_time", "process_time_ns", "thread_time", "thread_time_ns"),
    *("clock_gettime", "clock_gettime_ns"),
)
READS, SLEEPS, WAITS = "reads the real clock", "sleeps", "waits"
STARTS, OPENS = "starts a thread", "opens a socket"

Acts = dict[str, str]
"""What was done -> the name of the call, and the place of the first one."""

_MAIN = threading.get_ident()
_watched: list[Acts] = []
"""Those of the case or fixture that is running, innermost last."""
_of_wider: dict[pytest.FixtureDef[Any], Acts] = {}
"""Those of the fixtures of wider scope."""


def _is_ours(frame: FrameType) -> bool:
    # Not the code's file: the generated `__init__` of a dataclass has none.
    names = frame.f_globals
    return names is not globals() and str(names.get("__file__")).startswith(CODE)


def _note(frame: FrameType, what: str, name: str) -> None:
    if _watched and what not in _watched[-1]:
        file = Path(frame.f_globals["__file__"]).relative_to(ROOT)
        _watched[-1][what] = f"{name}, {file}:{frame.f_lineno}"


def _called(what: str, name: str, real: Callable[..., Any], *args: Any, **more: Any) -> Any:
    """A call that counts for the line that makes it."""
    # Another thread is noted by its start, and may outlive the case that started it.
    if _watched and threading.get_ident() == _MAIN:
        frame = sys._getframe(1)
        if _is_ours(frame):
            _note(frame, what, name)
    return real(*args, **more)


def _note_below(what: str, name: str) -> None:
    """Note it for the nearest line of the project on the stack."""
    if not _watched or threading.get_ident() != _MAIN:
        return
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not _is_ours(frame):
        frame = frame.f_back
    if frame is not None:
        _note(frame, what, name)


def _audit(event: str, _details: tuple[object, ...]) -> None:
    if event == "socket.__new__":
        _note_below(OPENS, "socket")


def _install() -> None:
    for name in CLOCKS:
        # No function of Python: as a class' attribute it must not become a method.
        setattr(time, name, partial(_called, READS, f"time.{name}", getattr(time, name)))
    time.sleep = partial(_called, SLEEPS, "time.sleep", time.sleep)
    # Of a class in C only the table of its attributes can be changed.
    (attributes,) = gc.get_referents(datetime.datetime.__dict__)
    for name in ("now", "utcnow"):
        attributes[name] = classmethod(_of_class(name, attributes[name]))
    (attributes,) = gc.get_referents(datetime.date.__dict__)
    attributes["today"] = classmethod(_of_class("today", attributes["today"]))
    for changed in (datetime.datetime, datetime.date):
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(changed))
    start, wait = threading.Thread.start, threading.Condition.wait

    def watched_start(self: threading.Thread) -> None:
        _note_below(STARTS, type(self).__name__)
        start(self)

    def watched_wait(self: threading.Condition, timeout: float | None = None) -> bool:
        if timeout is None or timeout > 0:
            _note_below(WAITS, "Condition.wait")
        return wait(self, timeout)

    threading.Thread.start = watched_start
    threading.Condition.wait = watched_wait
    sys.addaudithook(_audit)


def _of_class(name: str, real: Any) -> Callable[..., Any]:
    def read(cls: type, *args: Any, **more: Any) -> Any:
        frame = sys._getframe(1)
        if _watched and threading.get_ident() == _MAIN and _is_ours(frame):
            _note(frame, READS, f"{cls.__name__}.{name}")
        return real.__get__(None, cls)(*args, **more)

    return read


@contextmanager
def watched(acts: Acts) -> Iterator[None]:
    """Note into `acts` what is done inside."""
    _watched.append(acts)
    try:
        yield
    finally:
        _watched.pop()


_install()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Iterator[object]:
    """Keep what a fixture of wider scope does: each case that uses it answers for it."""
    if fixturedef.scope == "function":
        return (yield)
    with watched(_of_wider.setdefault(fixturedef, {})):
        return (yield)


@contextmanager
def pure(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail where a case is not pure: that is what the marker `timed` is for."""
    acts: Acts = {}
    with watched(acts):
        yield
    for fixture in request._fixture_defs.values():
        acts |= _of_wider.get(fixture, {})
    if acts:
        what, call = next(iter(acts.items()))
        pytest.fail(
            f"a case of the unit lane {what} ({call}): give it a fake, or mark it `timed`",
            pytrace=False,
        )
