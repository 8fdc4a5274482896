"""A bare Debian in a folder: no Python, no systemd, no engine of its own, and the host's processes
and control groups. What is mounted in it ends with the process that holds its namespace.
"""

from __future__ import annotations

import fcntl
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.waiting import until
from tools import debian
from tools.environment import BUILD

TREES = BUILD / "debian-bare"
MOUNTS = """
set -e
mount --make-rprivate /
cd "$0"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs tmpfs run
[ -z "$1" ] || { touch run/docker.sock; mount --bind "$1" run/docker.sock; }
echo ready
exec cat >/dev/null
"""


class Bare:
    """One such Debian."""

    def __init__(self, root: Path, holder: int) -> None:
        self.root = root
        self._enter = ["nsenter", f"--mount=/proc/{holder}/ns/mnt", "chroot", str(root)]
        self._environment = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "DEBIAN_FRONTEND": "noninteractive",
            "LC_ALL": "C.UTF-8",
        }

    def run(self, script: str, *, code: int | None = 0, **environment: str) -> str:
        """What a shell in it writes, on both streams; `code` None takes every exit code."""
        ended = subprocess.run(
            [*self._enter, "sh", "-c", script],
            env={**self._environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert code is None or ended.returncode == code, (
            f"{script}: {ended.returncode}\n{ended.stdout}"
        )
        return ended.stdout.strip()

    @contextmanager
    def daemon(self) -> Iterator[subprocess.Popen[bytes]]:
        """`dlsched run`, as somebody starts it by hand where there is no systemd."""
        log = self.root / "tmp" / "daemon.log"
        # When this process dies, it gives limits back and ends.
        command = ["setpriv", "--pdeathsig", "TERM", *self._enter, "dlsched", "run"]
        with log.open("ab") as stream:
            process = subprocess.Popen(command, env=self._environment, stdout=stream, stderr=stream)
        try:
            until(
                lambda: process.poll() is not None or not self.failed("dlsched ps"),
                "the daemon",
                every_s=0.5,
                shown=log.read_text,
            )
            assert process.poll() is None, log.read_text()
            yield process
        except AssertionError as error:
            raise AssertionError(f"{error}\n{log.read_text()[-4000:]}") from error
        finally:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            process.wait(60)

    def failed(self, script: str) -> bool:
        """Whether a command ends with another code than 0."""
        return self.run(f"({script}) >/dev/null 2>&1 || echo failed", code=None) == "failed"

    def named(self) -> set[str]:
        """Every file and group in it whose name says dlsched."""
        said = self.run(
            "find / -xdev -path '*dlsched*' ! -path '/tmp/*' ! -type d; grep ^dlsched /etc/group",
            code=None,
        )
        return set(said.splitlines())


@contextmanager
def bare(release: int, socket: Path | None) -> Iterator[Bare]:
    """Such a Debian, with the engine at `socket`, if any; all of it is gone at the end."""
    TREES.mkdir(parents=True, exist_ok=True)
    with (TREES / "lock").open("w") as lock:
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Of a caller that was killed: what was mounted ended with it.
            for left in TREES.glob("root-*"):
                shutil.rmtree(left, ignore_errors=True)
        fcntl.flock(lock, fcntl.LOCK_SH)
        with (
            tempfile.TemporaryDirectory(
                prefix="root-", dir=TREES, ignore_cleanup_errors=True
            ) as at,
            unpacked(release, Path(at), socket) as one,
        ):
            yield one


@contextmanager
def unpacked(release: int, root: Path, socket: Path | None) -> Iterator[Bare]:
    """That Debian in `root`, mounted as long as this lasts."""
    archive = TREES / f"{debian.SUITES[release]}.tar"
    if not archive.is_file():
        fresh = archive.with_suffix(".new.tar")
        title = f"bare Debian {release}"
        debian.bootstrap(fresh, [], title, suite=debian.SUITES[release])
        fresh.rename(archive)
    subprocess.run(["tar", "-C", str(root), "-xf", str(archive)], check=True)
    root.chmod(0o755)
    shutil.copy("/etc/resolv.conf", root / "etc" / "resolv.conf")
    isolate = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "sh", "-c", MOUNTS]
    given = [*isolate, str(root), str(socket or "")]
    with subprocess.Popen(given, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        try:
            assert holder.stdout.readline() == b"ready\n"
            yield Bare(root, holder.pid)
        finally:
            holder.kill()
