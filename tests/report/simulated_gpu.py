"""A GPU that several processes share in time slices, and those processes, in virtual time.

Each process is a thread that runs the true code (a job's loop and its pacing) with the world's
clock and sleep; one thread runs at a time, so a run is the same each time. The device takes turns
between the processes that have work on it, a slice each, as a GPU does without MPS. It tells no
process how much of a step's length was its own: only its own books know.
"""

from __future__ import annotations

import heapq
import itertools
import math
import threading
from collections import deque
from collections.abc import Callable
from types import ModuleType, SimpleNamespace, TracebackType

from dlsched.report.granted import Allotment
from dlsched.report.pacing import Pacer
from dlsched.report.writer import Writer

SLICE_S = 0.002
LAUNCH_S = 0.0002
"""What it costs the host to launch a step."""
MOST_AHEAD = 16
"""So many steps may be launched and not done: a driver's queue has an end."""

_ROUNDING_S = 1e-12


class Over(BaseException):
    """The end of the world: ends a process in the middle of whatever it does."""


class Event:
    """A mark in a process's stream, as `torch.cuda.Event`."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.at_s: float | None = None

    def record(self) -> None:
        """Mark what has been launched so far."""
        self._process.world.device.launch(self._process, self)

    def query(self) -> bool:
        """Whether all of it is done."""
        return self.at_s is not None

    def synchronize(self) -> None:
        """Wait until it is."""
        self._process.wait_for(self)

    def elapsed_time(self, other: Event) -> float:
        """Milliseconds between two marks."""
        if self.at_s is None or other.at_s is None:
            raise RuntimeError("an event was not recorded, or is not done")
        return (other.at_s - self.at_s) * 1e3


class Device:
    """Work in the order of its launch by process, and between processes a slice each."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.busy_s: dict[Process, float] = {}
        self._queues: dict[Process, deque[list[float] | Event]] = {}
        self._order: deque[Process] = deque()
        self._slice_left_s = SLICE_S

    def launch(self, process: Process, work: float | Event) -> None:
        """Seconds of the device, or a mark, behind what the process launched before."""
        queue = self._queues.get(process)
        if queue is None:
            queue = self._queues[process] = deque()
            self.busy_s[process] = 0.0
            self._order.append(process)
        queue.append(work if isinstance(work, Event) else [work])
        self._mark(queue)

    def next_s(self) -> float | None:
        """When something changes by itself."""
        runs = self._runs()
        if runs is None:
            return None
        (left_s,) = self._head(runs)
        alone = sum(map(bool, self._queues.values())) == 1
        return self.now_s + (left_s if alone else min(left_s, self._slice_left_s))

    def advance(self, to_s: float) -> None:
        """Compute until then, which is no later than `next_s`."""
        spent_s, self.now_s = to_s - self.now_s, to_s
        runs = self._runs()
        if runs is None or spent_s <= 0:
            return
        self.busy_s[runs] += spent_s
        self._slice_left_s -= spent_s
        head = self._head(runs)
        head[0] -= spent_s
        if head[0] <= _ROUNDING_S:
            self._queues[runs].popleft()
            self._mark(self._queues[runs])
        if self._slice_left_s <= _ROUNDING_S or not self._queues[runs]:
            self._order.rotate(-1)
            self._slice_left_s = SLICE_S

    def _head(self, process: Process) -> list[float]:
        head = self._queues[process][0]
        assert isinstance(head, list)
        return head

    def _runs(self) -> Process | None:
        for _ in range(len(self._order)):
            if self._queues[self._order[0]]:
                return self._order[0]
            self._order.rotate(-1)
            self._slice_left_s = SLICE_S
        return None

    def _mark(self, queue: deque[list[float] | Event]) -> None:
        while queue and isinstance(queue[0], Event):
            queue[0].at_s = self.now_s
            queue.popleft()


def _closed() -> threading.Lock:
    """A gate: who acquires it waits until another thread releases it, once."""
    gate = threading.Lock()
    gate.acquire()
    return gate


class Process:
    """One process of the world, and what its code may call."""

    def __init__(self, world: World, body: Callable[[Process], None]) -> None:
        self.world = world
        self.steps = 0
        self.error: BaseException | None = None
        self.at_end: Callable[[], None] = lambda: None
        """Gives back what the system takes back from a process that ends."""
        self._body = body
        self._go = _closed()
        self._launched: deque[Event] = deque()
        self._ended = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def clock(self) -> float:
        """Seconds since the world began."""
        return self.world.now_s

    def sleep(self, seconds: float) -> bool:
        """Let so much time pass; no signal comes."""
        at_s = self.world.now_s + max(0.0, seconds)
        if seconds <= 0 or not self.world.passes_alone(lambda: self.world.now_s >= at_s, at_s):
            self.world.wake(self, at_s)
            self.wait()
        return False

    def step(self, device_s: float, host_s: float = LAUNCH_S) -> None:
        """Launch so much work, and go on as soon as not too much lies ahead of the device."""
        self.sleep(host_s)
        self.world.device.launch(self, device_s)
        self.steps += 1
        end = Event(self)
        end.record()
        self._launched.append(end)
        if len(self._launched) > MOST_AHEAD:
            self.wait_for(self._launched.popleft())

    def finish(self) -> None:
        """Wait for all that was launched, as reading a loss does."""
        end = Event(self)
        end.record()
        self.wait_for(end)

    def wait_for(self, event: Event) -> None:
        """Wait for the device to come to a mark."""
        if not self.world.passes_alone(lambda: event.at_s is not None):
            self.world.waiting.append((self, event))
            self.wait()

    @property
    def busy_s(self) -> float:
        """Device time that it has had, by the device's own books."""
        return self.world.device.busy_s.get(self, 0.0)

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        """A process stands for its own rests."""

    def resume(self) -> None:
        """Run it until it waits again."""
        if self._ended:
            return
        if self._thread.ident is None:
            self._thread.start()
        self._go.release()
        self.world.back.acquire()

    def wait(self) -> None:
        """Let the others run, until the world wakes it."""
        if not self.world.over:
            self.world.back.release()
            self._go.acquire()
        if self.world.over:
            raise Over

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self.world.over:
                self._body(self)
        except Over:
            pass
        except Exception as error:  # noqa: BLE001 - it is raised by `World.run`
            self.error = error
        self._ended = True
        self.world.back.release()


class World:
    """Virtual time, one device and its processes."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.device = Device()
        self.waiting: list[tuple[Process, Event]] = []
        self.back = _closed()
        self.over = False
        self.running: Process | None = None
        self._processes: list[Process] = []
        self._wakes: list[tuple[float, int, Process]] = []
        self._numbers = itertools.count()
        self._until_s = 0.0

    def start(self, body: Callable[[Process], None]) -> Process:
        """A process that runs this from now on."""
        process = Process(self, body)
        self._processes.append(process)
        self.wake(process, self.now_s)
        return process

    def wake(self, process: Process, at_s: float) -> None:
        """Let it run on then."""
        heapq.heappush(self._wakes, (at_s, next(self._numbers), process))

    def run(self, until_s: float) -> None:
        """Let time pass until then; raises what a process raised."""
        self._until_s = until_s
        while self._wakes or self.waiting:
            if (ready := self._ready()) is not None:
                self.waiting.remove(ready)
                self._resume(ready[0])
            elif self._wakes and self._wakes[0][0] <= self.now_s:
                self._resume(heapq.heappop(self._wakes)[2])
            else:
                wakes_s = self._wakes[0][0] if self._wakes else until_s
                self._advance(min(self._changes_s(), wakes_s, until_s))
                if self.now_s >= until_s:
                    return

    def passes_alone(self, done: Callable[[], bool], at_s: float = math.inf) -> bool:
        """Let time pass until that is so, at `at_s` at the latest, in the thread that waits for it.

        False: somebody else comes first, or the run ends. That a thread need not be changed for
        each moment of a process that looks again and again is most of a run's speed.
        """
        if self.over:
            return False
        while not done():
            next_s = min(self._changes_s(), at_s)
            if next_s >= self._until_s or (self._wakes and self._wakes[0][0] <= next_s):
                return False
            if self._ready() is not None:
                return False
            self._advance(next_s)
        return self._ready() is None

    def end(self) -> None:
        """End all processes, wherever they are."""
        self.over = True
        for process in self._processes:
            process.resume()
            process.at_end()

    def _changes_s(self) -> float:
        """When the device changes something by itself."""
        changes_s = self.device.next_s()
        return math.inf if changes_s is None else changes_s

    def _advance(self, to_s: float) -> None:
        self.device.advance(to_s)
        self.now_s = to_s

    def _ready(self) -> tuple[Process, Event] | None:
        """Who waits first for a mark that the device has come to."""
        return next((one for one in self.waiting if one[1].at_s is not None), None)

    def _resume(self, process: Process) -> None:
        self.running = process
        process.resume()
        if process.error is not None:
            raise process.error


def torch(world: World) -> ModuleType:
    """As much of torch as pacing looks at; its events are the running process's."""

    def event(enable_timing: bool, blocking: bool) -> Event:
        assert enable_timing
        assert blocking
        assert world.running is not None
        return Event(world.running)

    module = ModuleType("torch")
    module.cuda = SimpleNamespace(  # type: ignore[attr-defined]
        Event=event, is_initialized=lambda: True, is_current_stream_capturing=lambda: False
    )
    return module


def paced(
    process: Process,
    granted: Callable[[], Allotment | None],
    writer: Callable[[], Writer | None] = lambda: None,
) -> Pacer:
    """The true pacer, in a process's time."""
    pacer = Pacer(clock=process.clock, rest=lambda: process, writer=writer, granted=granted)
    process.at_end = pacer.after_fork
    return pacer
