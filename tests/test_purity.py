"""What the hook notes of a case, and what it lets pass."""

from __future__ import annotations

import datetime as dates
import queue
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import monotonic

import pytest

from dlsched.cli.top import feed
from tests.purity import OPENS, READS, SLEEPS, STARTS, WAITS, Acts, watched

pytestmark = pytest.mark.timed


@dataclass
class Clocked:
    now_s: Callable[[], float] = time.monotonic
    made_s: float = field(default_factory=time.monotonic)


def noted(act: Callable[[], object]) -> Acts:
    acts: Acts = {}
    with watched(acts):
        act()
    return acts


def executed() -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int)


@pytest.mark.parametrize(
    ("act", "what", "name"),
    [
        (time.time, READS, "time.time"),
        (time.monotonic_ns, READS, "time.monotonic_ns"),
        (monotonic, READS, "time.monotonic"),
        (lambda: Clocked(made_s=0.0).now_s(), READS, "time.monotonic"),
        (Clocked, READS, "time.monotonic"),
        (lambda: dates.datetime.now(dates.UTC), READS, "datetime.now"),
        (dates.date.today, READS, "date.today"),
        (lambda: time.sleep(0.0), SLEEPS, "time.sleep"),
        (lambda: threading.Event().wait(0.001), WAITS, "Condition.wait"),
        (lambda: queue.Queue[int]().put(1, timeout=1.0), None, ""),
        (lambda: threading.Event().wait(0.0), None, ""),
        (lambda: threading.Thread(target=int).start(), STARTS, "Thread"),
        (executed, STARTS, "Thread"),
        (lambda: socket.socket().close(), OPENS, "socket"),
    ],
)
def test_what_is_noted(act: Callable[[], object], what: str | None, name: str) -> None:
    acts = noted(act)
    assert list(acts)[:1] == ([what] if what else [])
    if what:
        found, _, place = acts[what].partition(", ")
        assert found == name
        assert place.startswith("tests/test_purity.py:")


def test_a_name_that_the_product_imported_is_watched() -> None:
    assert feed.monotonic is time.monotonic is monotonic
    assert dates.datetime.now(dates.UTC).tzinfo is dates.UTC


def test_the_clock_of_a_library_is_its_own() -> None:
    library = compile("def read():\n    return time.monotonic()", "library.py", "exec")
    names = {"time": time, "__file__": "/usr/lib/library.py"}
    exec(library, names)
    assert noted(names["read"]) == {}  # type: ignore[arg-type]


def test_what_another_thread_does_is_noted_by_its_start_alone() -> None:
    begun = threading.Event()

    def reads() -> None:
        begun.wait()
        time.monotonic()

    thread = threading.Thread(target=reads)
    thread.start()

    def let_it_read() -> None:
        begun.set()
        while thread.is_alive():
            pass

    assert noted(let_it_read) == {}
    thread.join()
