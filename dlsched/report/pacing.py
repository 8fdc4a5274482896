"""`pace`: a job uses as much of a shared GPU's time as the agent grants it.

    from dlsched.report import pace

    for batch in batches:
        train(batch)
        pace()                  # at the end of each step

    for request in requests:    # where much else is done between the steps
        with pace:
            answer = model(request)

Owns when a job rests. What it may use is `budget`'s, how long it was busy `busy`'s, and whose
turn it is `turns`'s. It must not raise into the job, nor hold up one whose GPU is its own.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, List, Optional, Tuple, Union

from dlsched.report.budget import Budget
from dlsched.report.busy import Clocked, Timed, captures, cuda
from dlsched.report.granted import Allotment, Grant
from dlsched.report.resting import Rest
from dlsched.report.turns import PATIENCE_S, Turns, turn_file
from dlsched.report.writer import PERIOD_S, Writer, current

TURN_S = 0.05
"""Short steps are made in turns of about so long: waiting for the device once each costs little."""
LOOK_S = 0.25
"""The allotment is looked at this often, also in the middle of a rest."""
SPAN_S = 10.0
"""What is told of the time used covers about so long, and two rests at least."""

_ROUNDING_S = 1e-9


class Pacer:
    """Paces one process. Threads that compute at the same time are made to do it in turn, but who
    is within `with pace` may itself wait for another thread: that one then waits no longer."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        rest: Callable[[], Any] = Rest,
        told: Callable[[], Optional[Writer]] = current,
        granted: Optional[Callable[[], Optional[Allotment]]] = None,
        watched: bool = False,
    ) -> None:
        """`granted` looks at the allotment (None: at this process's own); `watched`: a thread
        sees to it that a turn is not kept for too long."""
        self._clock = clock
        self._rest = rest
        self._told = told
        self._watched = watched
        self._granted = Grant().look if granted is None else granted
        self.begin_anew()

    def begin_anew(self) -> None:
        """As if nothing had happened: what a forked child must do first."""
        self._lock = threading.RLock()
        self._depth = 0
        self._body: Optional[object] = None
        self._outlasted: Optional[object] = None
        self._local = threading.local()
        self._share: Optional[float] = None
        self._turn_paths: Tuple[str, ...] = ()
        self._looked_s = -LOOK_S
        self._budget = Budget()
        self._turns = Turns(self._clock, self._watched)
        self._meter: Union[Clocked, Timed, None] = None
        self._step_s: Optional[float] = None
        self._counted_s = 0.0
        self._records: Deque[Tuple[float, float]] = deque()
        self._reported_s = self._clock()

    def __call__(self) -> None:
        """A step has ended: rest, if the job has used more of its GPU's time than its share.

        All the time between two calls counts as the GPU's, except for the rests in between.
        """
        with contextlib.suppress(Exception):
            if self._is_free() or not self._begins():
                return
            try:
                if self._depth == 0 and not captures():
                    self._step()
            finally:
                self._lock.release()

    def __enter__(self) -> Pacer:
        """Rest until the job may use its GPU. What follows counts as the GPU's time."""
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
            except Exception:  # noqa: BLE001 - the job computes, with us or without
                self._meter = None
            except BaseException:
                # A signal's handler has ended the job's wait: there is no body to come back from.
                self.__exit__()
                raise
            if self._share is None:
                # Threads of a job that is not paced do not wait for each other.
                self.__exit__()
                self._entered().append(False)
            else:
                self._body = object()
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for the GPU, where it is shared, and leave it to others."""
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
        """In the child: nothing of what the parent does is the child's."""
        with contextlib.suppress(Exception):
            self._turns.forget()
            self.begin_anew()

    def _begins(self) -> bool:
        """Wait for other threads; False: one has been in its body for the whole of a long wait."""
        while True:
            body = self._body
            in_vain = body is not None and body is self._outlasted
            if self._lock.acquire(timeout=0.0 if in_vain else PATIENCE_S):
                return True
            if body is not None and body is self._body:
                self._outlasted = body
                return False

    def _is_free(self) -> bool:
        """Whether nothing is to be kept to, and it is too early to ask again."""
        return self._share is None and self._clock() - self._looked_s < LOOK_S

    def _entered(self) -> List[bool]:
        """For each `with` that this thread is in, whether it is paced."""
        try:
            entered: List[bool] = self._local.entered
        except AttributeError:
            entered = self._local.entered = []
        return entered

    def _step(self) -> None:
        share = self._look()
        if share is not None and self._meter is not None:
            self._meter.step()
            self._count(share, waited=True)
            if self._budget.left_s > self._meter.so_far_s():
                return
        self._close()
        self._open(TURN_S)

    def _open(self, turn_s: float) -> None:
        """Rest until a turn of so long is affordable, then take it."""
        share = self._look()
        if share is None:
            return
        with self._rest() as rest:
            while True:
                self._count(share, waited=False)
                left_s = self._budget.rest_s(turn_s * (1.0 - share), share)
                if left_s <= _ROUNDING_S:
                    break
                asked = rest.sleep(min(left_s, LOOK_S))
                share = self._look()
                if asked or share is None:
                    return
            self._turns.take(
                self._turn_paths,
                lambda pause_s: rest.sleep(pause_s) or self._look() is None,
                others=1.0 - share,
            )
        share = self._look()
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

    def _look(self) -> Optional[float]:
        """The share to keep to now; None: the job is not to be held up."""
        now_s = self._clock()
        if now_s - self._looked_s >= LOOK_S:
            self._looked_s = now_s
            told = self._granted()
            share = None if told is None else _share(told)
            if share is not None and self._share is None:
                # It begins with a turn, and with nothing to make up for.
                self._budget = Budget(TURN_S * (1.0 - share))
                self._counted_s = now_s
                self._records.clear()
            self._share = share
            self._turn_paths = () if told is None else _turn_paths(told)
        return self._share

    def _report(self) -> None:
        """Tell once a second how much of the time was used, over whole turns and their rests."""
        now_s = self._counted_s
        if now_s - self._reported_s < PERIOD_S:
            return
        while len(self._records) > 3 and self._records[1][0] < now_s - SPAN_S:
            self._records.popleft()
        writer = self._told()
        span_s = self._records[-1][0] - self._records[0][0]
        if writer is not None and span_s > 0:
            self._reported_s = now_s
            used_s = sum(busy_s for _, busy_s in self._records) - self._records[-1][1]
            writer.paced(min(1.0, used_s / span_s))


class Section:
    """The time of a framework's step, which begins and ends in calls of their own."""

    def __init__(self, pacer: Optional[Pacer] = None) -> None:
        self._pacer = pace if pacer is None else pacer
        self._open = False

    def begin(self) -> None:
        """A step begins; one that is still open, since it failed, has ended."""
        self.end()
        self._pacer.__enter__()
        self._open = True

    def end(self) -> None:
        """It has ended, if it had begun."""
        if self._open:
            self._open = False
            self._pacer.__exit__()


def _share(told: Allotment) -> Optional[float]:
    share = told.gpu_share
    if share is None or not 0.0 < share < 1.0 or told.stop_soon or told.checkpoint_wanted:
        return None
    # Ranks that rest each for itself keep all the others waiting, on the device.
    return None if os.environ.get("WORLD_SIZE", "1").strip() not in ("", "1") else share


def _turn_paths(told: Allotment) -> Tuple[str, ...]:
    folder = os.path.dirname(os.environ.get("DLSCHED_ALLOTMENT_FILE", ""))  # noqa: PTH120
    paths: List[str] = [os.path.join(folder, turn_file(gpu)) for gpu in told.gpus]  # noqa: PTH118
    return tuple(paths)


pace = Pacer(watched=True)
os.register_at_fork(after_in_child=pace.after_fork)
