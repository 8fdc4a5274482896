"""The operator's command for deliverable jobs, run as an unprivileged user.

Has a queue, one thread, and the process with all its children. It never slows the loop: deliveries
are offered, and results are collected later. `deliveries` decides what is due.
"""

from __future__ import annotations

import errno
import logging
import os
import pwd
import selectors
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from dlsched.config.settings import DeliverHook
from dlsched.model.cycle import HookRun
from dlsched.model.errors import Problem, SettingsError
from dlsched.model.state import Delivered
from dlsched.report.lines import PATH_CHARACTERS

log = logging.getLogger(__name__)

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The command's PATH, whatever the agent's own is."""

OUTPUT_BYTES = 4096
"""Number of bytes of its output that are logged; it may write more."""

QUEUE_MOST = 64
"""Maximum length of the queue. Further deliveries are offered again later."""

_CHUNK_BYTES = 1 << 16
"""Capacity of a pipe."""
_KILLED_WITHIN_S = 5.0
_UMASK = 0o077


class Hook:
    """Runs the command once for each delivery, one at a time, in a thread of its own."""

    def __init__(self, options: DeliverHook, wake: Callable[[str], None] = lambda _: None) -> None:
        """`wake` is called from the hook's thread when a run has ended. Raises SettingsError."""
        self._options = _possible(options)
        self._wake = wake
        self._queue: deque[Delivered] = deque()
        self._ended: deque[HookRun] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread: threading.Thread | None = None

    @property
    def wanted(self) -> bool:
        return self._options.command is not None

    def use(self, options: DeliverHook) -> None:
        """Switch commands from the next run on. Raises SettingsError, and keeps the old one."""
        self._options = _possible(options)

    def offer(self, delivery: Delivered) -> bool:
        """Add a delivery to the queue; False if the queue is full or no thread can start."""
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="hook", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the host has no thread to spare now
                return False
            self._thread = thread
        with self._changed:
            if len(self._queue) >= QUEUE_MOST:
                return False
            self._queue.append(delivery)
            self._changed.notify_all()
        return True

    def ended(self) -> tuple[HookRun, ...]:
        """Runs that ended since the last call."""
        with self._changed:
            runs = tuple(self._ended)
            self._ended.clear()
        return runs

    def close(self) -> None:
        """Kill the running command with its process group, and run no more. Idempotent."""
        with self._changed:
            if self._closing:
                return
            self._closing = True
            self._changed.notify_all()
        os.eventfd_write(self._stop, 1)
        if self._thread is not None:
            self._thread.join(2 * _KILLED_WITHIN_S)
        if self._thread is None or not self._thread.is_alive():
            os.close(self._stop)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closing)
                if self._closing:
                    break
                delivery, options = self._queue.popleft(), self._options
            try:
                run = _run(options, delivery, self._stop)
            except Exception as error:  # noqa: BLE001  the thread must survive any error
                run = _logged(
                    HookRun(delivery, "unstarted", f"{type(error).__name__}: {error}"), b""
                )
            with self._changed:
                self._ended.append(run)
            self._wake(f"hook of {delivery.name}: {run.status}")


def environment(delivery: Delivered) -> dict[str, str]:
    """The command's whole environment.

    A checkpoint path that a container reported is left out if it could forge lines or steer a
    terminal. It is only text: the path is inside the container, not on the host.
    """
    variables = {
        "PATH": PATH,
        "DLSCHED_JOB": delivery.name,
        "DLSCHED_METRIC": delivery.metric,
        "DLSCHED_DELIVER": repr(delivery.deliver),
        "DLSCHED_CONTAINER": delivery.container_id,
    }
    reached, checkpoint = delivery.tiers.delivered, delivery.checkpoint
    if reached is not None:
        variables["DLSCHED_VALUE"] = repr(reached.value)
        if reached.step is not None:
            variables["DLSCHED_STEP"] = str(reached.step)
    if checkpoint is not None and _plain(checkpoint.path):
        variables["DLSCHED_CHECKPOINT_PATH"] = checkpoint.path
        variables["DLSCHED_CHECKPOINT_STEP"] = str(checkpoint.step)
    return variables


def _plain(path: str) -> bool:
    return 0 < len(path) <= PATH_CHARACTERS and path.isprintable()


def _possible(options: DeliverHook) -> DeliverHook:
    if options.command is not None and os.geteuid() != 0:
        what = (
            f"only root can run the command as user {options.user}: dlsched runs as uid "
            f"{os.geteuid()}"
        )
        raise SettingsError((Problem("deliver_hook", 0, 0, "", what),))
    return options


# ---------------------------------------------------------------------- one run


def _run(options: DeliverHook, delivery: Delivered, stop: int) -> HookRun:
    began_s = time.monotonic()
    if options.command is None:
        return _logged(
            HookRun(
                delivery, "done", "no command was run: the setting deliver_hook has none any more"
            ),
            b"",
        )
    try:
        child = _started(options.command, options.user, delivery)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return _logged(HookRun(delivery, "unstarted", _refused(options, error)), b"")
    try:
        output, verdict = _followed(child, began_s + options.timeout_s, stop)
    finally:
        # The process is not reaped yet, so its group's number cannot be reused.
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.stdout.close()  # type: ignore[union-attr]
        code = child.wait(_KILLED_WITHIN_S)
    took_s = time.monotonic() - began_s
    if verdict == "stopped":
        run = HookRun(delivery, "aborted", "the command was killed, as dlsched ended")
    elif verdict == "late":
        run = HookRun(delivery, "failed", f"killed after {options.timeout_s:g} s")
    elif code:
        how = f"exit code {code}" if code > 0 else f"killed by signal {-code}"
        run = HookRun(delivery, "failed", f"{how} after {took_s:.1f} s")
    else:
        run = HookRun(delivery, "done", f"exit code 0 after {took_s:.1f} s")
    return _logged(run, output)


def _started(command: Sequence[str], name: str, delivery: Delivered) -> subprocess.Popen[bytes]:
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        raise ValueError("there is no user of that name") from None
    if user.pw_uid == 0:
        raise ValueError("the user is root")
    return subprocess.Popen(
        command,
        bufsize=0,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment(delivery),
        cwd="/",
        user=user.pw_uid,
        group=user.pw_gid,
        extra_groups=(),
        umask=_UMASK,
        start_new_session=True,
    )


def _followed(child: subprocess.Popen[bytes], end_s: float, stop: int) -> tuple[bytes, str]:
    """Its first output, and how it ended: `ended` by itself, `late`, or `stopped`."""
    assert child.stdout is not None
    output, pipe, process = b"", child.stdout.fileno(), os.pidfd_open(child.pid)
    os.set_blocking(pipe, False)
    try:
        with selectors.DefaultSelector() as waits:
            for each in (pipe, process, stop):
                waits.register(each, selectors.EVENT_READ)
            while (left_s := end_s - time.monotonic()) > 0:
                ready = {key.fd for key, _ in waits.select(left_s)}
                if stop in ready:
                    return output, "stopped"
                if pipe in ready:
                    # Output beyond the kept part is read too, as a full pipe would block it.
                    chunk = os.read(pipe, _CHUNK_BYTES)
                    output += chunk[: OUTPUT_BYTES - len(output)]
                    if not chunk:
                        waits.unregister(pipe)
                if process in ready:
                    with suppress(BlockingIOError):
                        output += os.read(pipe, _CHUNK_BYTES)[: OUTPUT_BYTES - len(output)]
                    return output, "ended"
        return output, "late"
    finally:
        os.close(process)


def _refused(options: DeliverHook, error: Exception) -> str:
    why = getattr(error, "strerror", None) or str(error)
    if getattr(error, "errno", None) == errno.EPERM:
        why = "dlsched may not change its user and groups on this host"
    return f"the command cannot start as user {options.user}: {why}"


def _logged(run: HookRun, output: bytes) -> HookRun:
    said = output.decode(errors="replace").strip()
    log.log(
        logging.INFO if run.status == "done" else logging.WARNING,
        "deliver_hook for job %s: %s%s",
        run.delivered.name,
        run.detail,
        f": {said}" if said else "",
    )
    return run
