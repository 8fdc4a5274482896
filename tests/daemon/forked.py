"""`dlsched` in processes forked from a server that has imported it: a start costs no imports, which
are 0.8 s of CPU for the daemon. Everything else is as on the command line.

Owns the server and what stands for `subprocess` beside it. What these processes used is counted
with the server, when that ends: in the total of a run, and in no single case.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, BinaryIO

from dlsched.cli import main
from tools import session as real

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "dlsched.cli.commands.asking",
        "dlsched.cli.pages.ps",
        "dlsched.api.client",
        "dlsched.daemon.main",
    ]
)
atexit.register(forkserver._forkserver._stop)  # type: ignore[attr-defined]  # waits for it
COMMAND_WITHIN_S = 60.0
LIBRARIES = "LD_LIBRARY_PATH"


class Forked:
    """A running command, in the words of `subprocess.Popen`."""

    def __init__(self, words: Sequence[str], out: BinaryIO, err: BinaryIO) -> None:
        """Start `dlsched` with these words, in this process's folder and environment."""
        files = [Path(f"/proc/self/fd/{file.fileno()}").readlink() for file in (out, err)]
        self._process: Any = _FORKS.Process(
            target=_run, args=(list(words), dict(os.environ), Path.cwd(), files)
        )
        self._process.start()
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, a signal's negative; None: it runs."""
        code: int | None = self._process.exitcode
        return code

    def poll(self) -> int | None:
        """The same."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises subprocess.TimeoutExpired."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("dlsched", timeout or 0.0)
        return self.returncode

    def terminate(self) -> None:
        """SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()


def _run(
    words: list[str], environment: Mapping[str, str], folder: Path, files: Sequence[Path]
) -> None:
    """In the new process: the command, with what it would have been started with."""
    os.setsid()
    os.chdir(folder)
    for number, file in zip((1, 2), files, strict=True):
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND)
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["dlsched", *words]
    main(prog_name="dlsched")


def launch(words: Sequence[str], log: BinaryIO) -> real.Process:
    """The daemon of a session; started anew where the loader is to find other libraries."""
    return real.launch(words, log) if LIBRARIES in os.environ else Forked(words, log, log)


def session() -> AbstractContextManager[real.Session]:
    """A session whose daemon is forked."""
    return real.session(launch=launch)


def command(node: real.Session, *words: str) -> subprocess.CompletedProcess[str]:
    """What `dlsched` says and ends with, under the settings of that daemon."""
    line = [words[0], "--config", str(node.root / "dlsched.yaml"), *words[1:]]
    with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
        process = Forked(line, out, err)
        try:
            code = process.wait(COMMAND_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return subprocess.CompletedProcess(
            line, code, Path(out.name).read_text(), Path(err.name).read_text()
        )


def ok(node: real.Session, *words: str) -> str:
    """What `dlsched` prints, where it has to succeed."""
    done = command(node, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout
