"""Jobs of `benchmarks.gpu.job` that run together, each with an allotment of its own."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.places import ROOT
from dlsched.report.turns import turn_file

GPU = "truth"
"""By this name jobs take turns."""


_SET_DEATH_SIGNAL = 1
"""An option of prctl(2)."""
_libc = ctypes.CDLL(None)


def die_with_parent() -> None:
    """From now on the kernel kills this process when its parent dies; also for `preexec_fn`."""
    _libc.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


class NotRun(Exception):
    """Something is missing on this machine; the message says what."""


class Job:
    """A process that waits to begin."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid

    @cached_property
    def ready(self) -> dict[str, Any]:
        """What it says once it is ready. Raises `NotRun` where there is no device for it."""
        told = self.line()
        if "not_run" in told:
            raise NotRun(str(told["not_run"]))
        return told

    def go(self) -> None:
        """Let it begin, once it is ready."""
        assert self.ready and self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def line(self) -> dict[str, Any]:
        """The next that it says. Raises RuntimeError where it ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a job ended with exit code {self._process.wait(30)}")
        told: dict[str, Any] = json.loads(line)
        return told

    def answer(self) -> dict[str, Any]:
        """The last that it says; it has ended then."""
        told = self.line()
        if code := self._process.wait(60):
            raise RuntimeError(f"a job ended with exit code {code}")
        return told


def go(*jobs: Job) -> None:
    """Let them begin together, once all are ready."""
    assert all(job.ready for job in jobs)
    for job in jobs:
        job.go()


Start = Callable[..., Job]
"""One more job, of a kind of work, with arguments of `benchmarks.gpu.job`, and its allotment."""


@contextmanager
def running(python: str, **environment: str) -> Iterator[Start]:
    """Starts jobs, which wait to begin; at the end of the block none is left."""
    with ExitStack() as left:
        folder = Path(left.enter_context(tempfile.TemporaryDirectory()))
        (folder / turn_file(GPU)).touch()

        def start(work: str, *arguments: str, **allotted: Any) -> Job:
            file = Path(tempfile.mkstemp(".json", dir=folder)[1])
            file.write_text(json.dumps({"gpus": [GPU], **allotted}), encoding="utf-8")
            paced = ["--paced"] if allotted.get("gpu_share") is not None else []
            process = subprocess.Popen(
                [python, "-m", "benchmarks.gpu.job", f"--work={work}", *paced, *arguments],
                env={**os.environ, "DLSCHED_ALLOTMENT_FILE": str(file), **environment},
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - there is one thread
            )
            for end in (process.stdout.close, process.wait, process.kill):  # type: ignore[union-attr]
                left.callback(end)
            return Job(process)

        yield start
