"""Trainings and inference loops that share the GPU, each with an allotment of its own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.gpu.truth.asked import Asked, NotRun
from benchmarks.gpu.truth.keeper import die_with_parent
from benchmarks.places import ROOT
from dlsched.report.turns import turn_file

GPU = "truth"
"""By this name jobs take turns."""
SEED = 7


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
        assert self.ready
        assert self._process.stdin is not None
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
    for job in jobs:
        assert job.ready
    for job in jobs:
        job.go()


class Jobs:
    """Starts jobs; at the exit of the context none is left."""

    def __init__(self, asked: Asked, **environment: str) -> None:
        """`environment` is theirs beside this process's."""
        self._asked = asked
        self._environment = environment
        self._left = contextlib.ExitStack()

    def __enter__(self) -> Jobs:
        self._folder = Path(self._left.enter_context(tempfile.TemporaryDirectory()))
        (self._folder / turn_file(GPU)).touch()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._left.close()

    def start(self, work: str, *arguments: str, **allotted: Any) -> Job:
        """One more, which waits to begin; with a share of the GPU's time it paces itself."""
        file = Path(tempfile.mkstemp(".json", dir=self._folder)[1])
        paced = ["--paced"] if "gpu_share" in allotted else []
        file.write_text(json.dumps({"gpus": [GPU], **allotted}), encoding="utf-8")
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "benchmarks.gpu.job", f"--work={work}", "--chunks=1"),
                *(f"--torch-device={self._asked.device}", f"--seed={SEED}", *paced, *arguments),
            ],
            env={
                **os.environ,
                "DLSCHED_ALLOTMENT_FILE": str(file),
                # For deterministic products, which CUDA reads when it is initialised.
                "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
                **self._environment,
            },
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - there is one thread
        )
        self._left.callback(process.stdout.close)  # type: ignore[union-attr]
        self._left.callback(process.wait)
        self._left.callback(process.kill)
        return Job(process)
