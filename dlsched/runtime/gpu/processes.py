"""Whose a process on a GPU is: its container, or its user on the host. Nothing that a process can
write about itself is used, but the name of the MPS server, which only makes idle time unknown."""

from __future__ import annotations

import pwd
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from dlsched.model.units import plain_text

_ID = re.compile(r"[0-9a-f]{64}")
_UID = re.compile(rb"^Uid:\t(\d{1,10})\t", re.MULTILINE)
_READ_BYTES = 8192
_MPS_SERVER = b"nvidia-cuda-mps"
"""Its name, as truncated by the kernel."""

USERS_MAX = 1024
"""Users whose names are kept; more are shown by number."""

USER_CHARACTERS = 32
"""Longer names are cut: useradd(8) allows no longer one."""


def container_of(pid: int, proc: Path) -> str | None:
    """The id of the container that the process is in; None: in none. Of nested containers it is the
    outermost that the agent itself is not in. Raises OSError where the process is not visible."""
    own = set[str]()
    with suppress(OSError):
        own.update(_ID.findall(_groups("self", proc)))
    return next((one for one in _ID.findall(_groups(str(pid), proc)) if one not in own), None)


def serves_all(pid: int, proc: Path) -> bool:
    """Whether it is the MPS server, which holds a GPU for clients that are listed themselves."""
    try:
        return (proc / str(pid) / "comm").read_bytes().strip() == _MPS_SERVER
    except OSError:
        return False


def uid_of(pid: int, proc: Path) -> int | None:
    """The user that the process runs as, as the kernel says; None: that cannot be read."""
    try:
        with (proc / str(pid) / "status").open("rb") as file:
            found = _UID.search(file.read(_READ_BYTES))
    except OSError:
        return None
    return None if found is None else int(found[1])


def _groups(process: str, proc: Path) -> str:
    with (proc / process / "cgroup").open("rb") as file:
        return file.read(_READ_BYTES).decode("utf-8", errors="replace")


def _name(uid: int) -> str | None:
    try:
        return plain_text(pwd.getpwuid(uid).pw_name)[:USER_CHARACTERS] or None
    except (KeyError, OSError, OverflowError, ValueError):
        return None


class UserNames:
    """Names of users, looked up in a thread: a directory server that hangs holds up no reading."""

    def __init__(self, find: Callable[[int], str | None] = _name) -> None:
        self._find = find
        self._known: dict[int, str | None] = {}
        self._running: threading.Thread | None = None

    def of(self, uid: int) -> str | None:
        """The name; None: unknown, or not known yet."""
        running = self._running is not None and self._running.is_alive()
        if uid not in self._known and not running and len(self._known) < USERS_MAX:
            self._running = threading.Thread(
                target=self._learn, args=(uid,), name="dlsched-users", daemon=True
            )
            with suppress(RuntimeError):  # no thread available: the next reading retries
                self._running.start()
        return self._known.get(uid)

    def _learn(self, uid: int) -> None:
        self._known[uid] = self._find(uid)
