"""`pace`: a job uses as much of a shared GPU's time as the agent grants it.

    from dlsched.report import pace

    for batch in batches:
        train(batch)
        pace()                  # at the end of each step

    for request in requests:    # where much else is done between the steps
        with pace:
            answer = model(request)

It never raises into the job, and never delays one whose GPU is not shared.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import sys
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, List, Optional, Tuple, Union

from dlsched.report.granted import Allotment, Grant
from dlsched.report.turns import PATIENCE_S, Turns, turn_file
from dlsched.report.writer import PERIOD_S, Writer, current

_ASKING = bytes(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
)
"""Other signals (a child's end, a timer) need no reaction."""


class Rest:
    """A context for sleeps."""

    def __init__(self) -> None:
        self._pipe: Optional[Tuple[int, int]] = None

    def __enter__(self) -> Rest:
        with contextlib.suppress(Exception):
            self._pipe = pipe = os.pipe()
            os.set_blocking(pipe[1], False)
            select.select(pipe[:1], (), (), 0.0)
            before = signal.set_wakeup_fd(pipe[1], warn_on_full_buffer=False)
            if before == -1:
                return self
            # An event loop uses the descriptor: leave it.
            signal.set_wakeup_fd(before)
        # Or there are too many descriptors for select(), or this is not the main thread, which is
        # the one that signals interrupt.
        self._close()
        return self

    def sleep(self, seconds: float) -> bool:
        """Sleep at most that long; returns whether a signal came that may need a reaction."""
        if self._pipe is None:
            time.sleep(seconds)
            return False
        until_s = time.monotonic() + seconds
        reading = self._pipe[:1]
        while select.select(reading, (), (), max(0.0, until_s - time.monotonic()))[0]:
            if any(number in _ASKING for number in os.read(reading[0], 64)):
                return True
        return False

    def __exit__(self, *_: object) -> None:
        if self._pipe is not None:
            with contextlib.suppress(Exception):
                signal.set_wakeup_fd(-1)
        self._close()

    def _close(self) -> None:
        pipe, self._pipe = self._pipe, None
        for descriptor in pipe or ():
            with contextlib.suppress(OSError):
                os.close(descriptor)


_FADING = 0.95
"""Decay of the longest step, so that rare long steps are remembered."""


def cuda() -> Optional[Any]:
    """torch's CUDA, if the job has already imported and initialised it."""
    torch = sys.modules.get("torch")
    with contextlib.suppress(Exception):
        if torch is not None and torch.cuda.is_initialized():
            return torch.cuda
    return None


def captures() -> bool:
    """Whether the job is recording a CUDA graph, which events would enter or spoil."""
    found = cuda()
    with contextlib.suppress(Exception):
        return found is not None and bool(found.is_current_stream_capturing())
    return False


class Clocked:
    """Measures by the clock: right for steps that wait for their results."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began_s = clock()

    def step(self) -> None:
        """Do nothing."""

    def so_far_s(self) -> float:
        """Time since the beginning."""
        return self._clock() - self._began_s

    def end_s(self) -> float:
        """Time at the end."""
        return self.so_far_s()


class Timed:
    """Measures by CUDA events, so that the job need not wait for the device."""

    def __init__(self, found: Any, step_s: Optional[float]) -> None:
        """`step_s`: the duration of a long step, if known."""
        self._found = found
        self._done_s = 0.0
        self._pending: Deque[Any] = deque()
        self.step_s = step_s
        self._begin = self._last = self._event()
        self._begin.record()

    def step(self) -> None:
        """Record the launch of a step."""
        self._last = self._event()
        self._last.record()
        self._pending.append(self._last)

    def so_far_s(self) -> float:
        """Time of the steps launched so far; unfinished ones count as long ones."""
        while self._pending and self._pending[0].query():
            before_s = self._done_s
            self._done_s = self._begin.elapsed_time(self._pending.popleft()) / 1e3
            self.step_s = max(self._done_s - before_s, _FADING * (self.step_s or 0.0))
        if self._pending and self.step_s is None:
            # The amount launched is unknown: better wait for it.
            return math.inf
        return self._done_s + (self.step_s or 0.0) * len(self._pending)

    def end_s(self) -> float:
        """Wait for the device; returns the time of all steps."""
        if not self._pending:
            self.step()
        self._last.synchronize()
        self.so_far_s()
        return float(self._begin.elapsed_time(self._last)) / 1e3

    def _event(self) -> Any:
        # Blocking: a wait that spins would spend the job's CPU quota.
        return self._found.Event(enable_timing=True, blocking=True)


IDLE_S = 2.0
"""A job that was idle by itself may make up for it: in any window of this length it may be busy
for its share of it."""
WAITED_S = 60.0
"""The same for a job that had to wait for the device."""
LONGEST_S = 120.0
"""The longest rest, so that one wrong reading cannot stop a job for hours."""


class Budget:
    """A job's remaining time on the device, in seconds; negative: overdrawn.

    It grows by the share of the time that passes and falls by the time that the device was busy;
    overruns of a step or a sleep are made up for by the next. Shares that add up to 1 keep a device
    busy: jobs together gain what the device gives, so they cannot all be out of budget.
    """

    def __init__(self, left_s: float = 0.0) -> None:
        self.left_s = left_s

    def gain(self, passed_s: float, share: float, waited: bool) -> None:
        """Add the share of this time; `waited`: the job wanted the device, but did not get it."""
        most_s = (WAITED_S if waited else IDLE_S) * share * (1.0 - share)
        grown_s = self.left_s + share * max(0.0, passed_s)
        self.left_s = min(grown_s, max(most_s, self.left_s))

    def spend(self, busy_s: float, share: float) -> None:
        """Subtract the time that the device was busy with the job."""
        self.left_s = max(self.left_s - max(0.0, busy_s), -LONGEST_S * share)

    def rest_s(self, level_s: float, share: float) -> float:
        """How long to rest until that much is left."""
        return max(0.0, (level_s - self.left_s) / share)


TURN_S = 0.05
"""Length of a turn of short steps: waiting for the device once in a turn costs little."""
POLL_S = 0.25
"""How often the allotment is polled, also during a rest."""
SPAN_S = 10.0
"""Time that a report of GPU use covers, at least two rests."""

_ROUNDING_S = 1e-9


class Pacer:
    """Paces one process. Threads that compute concurrently take turns, but a thread within `with
    pace` may itself wait for another one, which then no longer waits."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        rest: Callable[[], Any] = Rest,
        writer: Callable[[], Optional[Writer]] = current,
        granted: Optional[Callable[[], Optional[Allotment]]] = None,
        watched: bool = False,
    ) -> None:
        """`granted` returns the allotment (None: this process's own); `watched`: a thread gives
        back a turn that is kept for too long."""
        self._clock = clock
        self._rest = rest
        self._writer = writer
        self._watched = watched
        self._granted = Grant().poll if granted is None else granted
        self.reset()

    def reset(self) -> None:
        """Start over, as a forked child must."""
        self._lock = threading.RLock()
        self._depth = 0
        self._body: Optional[object] = None
        self._outlasted: Optional[object] = None
        self._local = threading.local()
        self._share: Optional[float] = None
        self._turn_paths: Tuple[str, ...] = ()
        self._polled_s = -POLL_S
        self._budget = Budget()
        self._turns = Turns(self._clock, self._watched)
        self._meter: Union[Clocked, Timed, None] = None
        self._step_s: Optional[float] = None
        self._counted_s = 0.0
        self._records: Deque[Tuple[float, float]] = deque()
        self._reported_s = self._clock()

    def __call__(self) -> None:
        """A step has ended: rest, if the job has used more of its GPU's time than its share. All
        the time between two calls counts as the GPU's, except for the rests in between."""
        with contextlib.suppress(Exception):
            if self._is_free() or not self._begins():
                return
            try:
                if self._depth == 0 and not captures():
                    self._step()
            finally:
                self._lock.release()

    def __enter__(self) -> Pacer:
        """Rest until the job may use its GPU. The time until the exit counts as the GPU's."""
        if self._is_free() or not self._begins():
            self._entered().append(False)
            return self
        self._entered().append(True)
        self._depth += 1
        if self._depth == 1:
            try:
                if not captures():
                    self._close()
                    self._open(0.0)
            except Exception:  # noqa: BLE001 - the job must compute in any case
                self._meter = None
            except BaseException:
                # A signal handler raised during the wait: there will be no exit.
                self.__exit__()
                raise
            if self._share is None:
                # Threads of an unpaced job do not wait for each other.
                self.__exit__()
                self._entered().append(False)
            else:
                self._body = object()
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for the GPU, where it is shared, and give up the turn."""
        entered = self._entered()
        if not entered or not entered.pop():
            return
        try:
            if self._depth == 1:
                self._body = None
                with contextlib.suppress(Exception):
                    self._close()
        finally:
            self._depth -= 1
            self._lock.release()

    def after_fork(self) -> None:
        """Reset in the child."""
        with contextlib.suppress(Exception):
            self._turns.forget()
            self.reset()

    def _begins(self) -> bool:
        """Wait for other threads; False: one was in its body for the whole of a long wait."""
        while True:
            body = self._body
            in_vain = body is not None and body is self._outlasted
            if self._lock.acquire(timeout=0.0 if in_vain else PATIENCE_S):
                return True
            if body is not None and body is self._body:
                self._outlasted = body
                return False

    def _is_free(self) -> bool:
        """Whether no share applies, and it is too early to poll again."""
        return self._share is None and self._clock() - self._polled_s < POLL_S

    def _entered(self) -> List[bool]:
        """For each `with` that this thread is in, whether it is paced."""
        try:
            entered: List[bool] = self._local.entered
        except AttributeError:
            entered = self._local.entered = []
        return entered

    def _step(self) -> None:
        share = self._current_share()
        if share is not None and self._meter is not None:
            self._meter.step()
            self._count(share, waited=True)
            if self._budget.left_s > self._meter.so_far_s():
                return
        self._close()
        self._open(TURN_S)

    def _open(self, turn_s: float) -> None:
        """Rest until a turn of that length is affordable, then take it."""
        share = self._current_share()
        if share is None:
            return
        with self._rest() as rest:
            while True:
                self._count(share, waited=False)
                left_s = self._budget.rest_s(turn_s * (1.0 - share), share)
                if left_s <= _ROUNDING_S:
                    break
                asked = rest.sleep(min(left_s, POLL_S))
                share = self._current_share()
                if asked or share is None:
                    return
            self._turns.take(
                self._turn_paths,
                lambda pause_s: rest.sleep(pause_s) or self._current_share() is None,
                others=1.0 - share,
            )
        share = self._current_share()
        if share is None:
            self._turns.give()
            return
        self._count(share, waited=True)
        self._records.append((self._counted_s, 0.0))
        found = cuda()
        self._meter = Clocked(self._clock) if found is None else Timed(found, self._step_s)

    def _close(self) -> None:
        """Wait for the device, and give the turn back."""
        meter, self._meter = self._meter, None
        try:
            if meter is None or self._share is None:
                return
            busy_s = meter.end_s()
            if isinstance(meter, Timed):
                self._step_s = meter.step_s
        finally:
            self._turns.give()
        self._count(self._share, waited=True)
        self._budget.spend(busy_s, self._share)
        self._records.append((self._records.pop()[0], busy_s))
        self._report()

    def _count(self, share: float, waited: bool) -> None:
        now_s = self._clock()
        self._budget.gain(now_s - self._counted_s, share, waited)
        self._counted_s = now_s

    def _current_share(self) -> Optional[float]:
        """The present share; None: the job is not paced."""
        now_s = self._clock()
        if now_s - self._polled_s >= POLL_S:
            self._polled_s = now_s
            allotment = self._granted()
            share = None if allotment is None else _share(allotment)
            if share is not None and self._share is None:
                # It starts with one turn's budget, and without debt.
                self._budget = Budget(TURN_S * (1.0 - share))
                self._counted_s = now_s
                self._records.clear()
            self._share = share
            self._turn_paths = () if allotment is None else _turn_paths(allotment)
        return self._share

    def _report(self) -> None:
        """Report once a second the fraction of time used, over whole turns and their rests."""
        now_s = self._counted_s
        if now_s - self._reported_s < PERIOD_S:
            return
        while len(self._records) > 3 and self._records[1][0] < now_s - SPAN_S:
            self._records.popleft()
        writer = self._writer()
        span_s = self._records[-1][0] - self._records[0][0]
        if writer is not None and span_s > 0:
            self._reported_s = now_s
            used_s = sum(busy_s for _, busy_s in self._records) - self._records[-1][1]
            writer.paced(min(1.0, used_s / span_s))


class Section:
    """The time of a framework's step, whose begin and end are separate calls. It never raises."""

    def __init__(self, pacer: Optional[Pacer] = None) -> None:
        self._pacer = pace if pacer is None else pacer
        self._open = False

    def begin(self) -> None:
        """A step begins; an open one, which failed, ends."""
        self.end()
        with contextlib.suppress(Exception):
            self._pacer.__enter__()
            self._open = True

    def end(self) -> None:
        """The step ends, if one is open."""
        if self._open:
            self._open = False
            with contextlib.suppress(Exception):
                self._pacer.__exit__()


def _share(allotment: Allotment) -> Optional[float]:
    share = allotment.gpu_share
    if share is None or not 0.0 < share < 1.0 or allotment.stop_soon or allotment.checkpoint_wanted:
        return None
    # If ranks rested independently, each would keep the others waiting on the device.
    return None if os.environ.get("WORLD_SIZE", "1").strip() not in ("", "1") else share


def _turn_paths(allotment: Allotment) -> Tuple[str, ...]:
    folder = os.path.dirname(os.environ.get("DLSCHED_ALLOTMENT_FILE", ""))  # noqa: PTH120
    paths: List[str] = [os.path.join(folder, turn_file(gpu)) for gpu in allotment.gpus]  # noqa: PTH118
    return tuple(paths)


pace = Pacer(watched=True)
os.register_at_fork(after_in_child=pace.after_fork)
