"""What a user's container is held to beside its spec, and whether what it binds may be bound.

Owns the look at the host's folders at the moment of a start. It must not know settings nor the
engine: the roots are given to it. A check and the engine's mount are two moments, so that no folder
above a source may be one that somebody else can swap for a link in between, or before a restart.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from dlsched.config.inbox.files import is_operator, is_operators_alone
from dlsched.config.users import is_under

_LINKS_MAX = 40
"""As the kernel."""
_LOOKING = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Confinement:
    """The bounds of one user's container."""

    pids: int
    """Processes and threads."""
    roots: tuple[str, ...] = ()
    """Folders that it may bind, with all in them."""
    kept_out: tuple[str, ...] = ()
    """Places that no bind may lead to, into or around."""
    cpu_cores: float | None = None
    """CPU that all containers of its owner can have together; None: no maximum."""

    def check(self, volumes: tuple[str, ...]) -> None:
        """Raise ValueError, one line, for the first bind that may not be made."""
        for volume in volumes:
            source = volume.partition(":")[0]
            if source.startswith("/"):
                self._check_bind(source)

    def _check_bind(self, source: str) -> None:
        root = next((root for root in self.roots if is_under(source, root)), None)
        if root is None:
            raise ValueError(
                f"the volume's source {source!r} is in no folder that the job's owner may bind"
            )
        parts = Path(source).relative_to(root).parts
        try:
            real_root = _resolved(root)
            _walk(real_root, parts)
        except OSError as error:
            raise ValueError(
                f"the volume's source {source!r} cannot be inspected: {error.strerror}"
            ) from error
        except _Unsafe as unsafe:
            raise ValueError(f"the volume's source {source!r} is not bound: {unsafe}") from unsafe
        real = str(Path(real_root, *parts))
        for place in self.kept_out:
            kept = os.path.realpath(place)
            if is_under(real, kept) or is_under(kept, real):
                raise ValueError(
                    f"the volume's source {source!r} is not bound: through it, the job could reach "
                    f"{place}, which jobs must not see"
                )


class _Unsafe(Exception):
    """Somebody could make the path lead elsewhere."""


def _resolved(root: str) -> str:
    """Where the operator's links lead; no other user may be able to put a link there."""
    here, ahead, links = Path("/"), list(reversed(Path(root).parts[1:])), 0
    while ahead:
        part = ahead.pop()
        if part == "..":
            here = here.parent
            continue
        within, below = here.stat(), here / part
        status = below.lstat()
        sticky = within.st_mode & stat.S_ISVTX and is_operator(status.st_uid)
        if not is_operator(within.st_uid) or (within.st_mode & 0o022 and not sticky):
            raise _Unsafe(f"users other than root can change {here}, a folder above the source")
        if not stat.S_ISLNK(status.st_mode):
            here = below
            continue
        links += 1
        if links > _LINKS_MAX:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        target = below.readlink()
        here = Path("/") if target.is_absolute() else here
        ahead += [step for step in reversed(target.parts) if step != "/"]
    return str(here)


def _walk(root: str, parts: tuple[str, ...]) -> None:
    """Follow the path from the root on, without links, through folders of the operator's alone."""
    at, here = os.open(root, _LOOKING), root
    try:
        for part in parts:
            if not is_operators_alone(os.fstat(at)):
                raise _Unsafe(
                    f"users other than root can change {here}, a folder above the source: bind "
                    f"{here} instead"
                )
            below = os.open(part, _LOOKING, dir_fd=at)
            os.close(at)
            at, here = below, f"{here}/{part}"
            if stat.S_ISLNK(os.fstat(at).st_mode):
                raise _Unsafe(f"{here} is a symbolic link")
        mode = os.fstat(at).st_mode
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            raise _Unsafe(f"{here} is neither a folder nor a regular file")
    finally:
        os.close(at)
