"""Jobs that share the GPU's time and memory as dlsched's reporter lets them, or by MPS.

Of the machine's settings nothing is changed: the MPS daemon is a private one.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.gpu.truth.asked import Asked, NotRun, Tell, daemon, opened_nvml, output
from benchmarks.gpu.truth.keeper import die_with_parent
from benchmarks.places import ROOT
from dlsched.report.turns import turn_file

GPU = "truth"
"""By this name jobs take turns."""
SEED = 7
ALONE_S, SHARED_S, REQUESTS_S = 5.0, 10.0, 8.0
CAP_BYTES = 1 << 30
CONTROL = "nvidia-cuda-mps-control"
PERCENTAGES = (100, 50, 25)
MPS_S = 4.0
"""Of each measurement."""
START_S = 5.0


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
            own = {"DLSCHED_ALLOTMENT_FILE": str(file), **environment}
            process = subprocess.Popen(
                [python, "-m", "benchmarks.gpu.job", f"--work={work}", *paced, *arguments],
                env={**os.environ, **own},
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


@contextmanager
def jobs_of(asked: Asked, **environment: str) -> Iterator[Start]:
    """The same for a part: reproducible trainings and inference loops of torch's."""
    # For deterministic products, which CUDA reads when it is initialised.
    more = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", **environment}
    same = (f"--torch-device={asked.device}", f"--seed={SEED}", "--chunks=1")
    with running(sys.executable, **more) as start:
        yield lambda work, *arguments, **allotted: start(work, *same, *arguments, **allotted)


def rates(
    asked: Asked, seconds: float, shares: Sequence[float | None], **environment: str
) -> list[float]:
    """Steps a second of trainings that run together; a share of None: not paced."""
    length = f"--seconds={seconds * asked.scale}"
    with jobs_of(asked, **environment) as start:
        together = [start("training", length, gpu_share=share) for share in shares]
        go(*together)
        answers = [job.answer() for job in together]
    return [answer["chunks"] / answer["took_s"] for answer in answers]


def of_exclusive(got: Sequence[float], alone: float) -> dict[str, Any]:
    """Rates of jobs that ran together, beside that of one alone."""
    ratios = [each / alone for each in got]
    return {"measured_ratios": ratios, "sum_of_exclusive_ratio": sum(ratios)}


def of_shares(got: Sequence[float], alone: float, shares: Sequence[float]) -> dict[str, Any]:
    """The same, and how far each is from its share."""
    errors = [100 * (each / alone - share) for each, share in zip(got, shares, strict=True)]
    return {"shares": list(shares), "error_points": errors, **of_exclusive(got, alone)}


def pacing(asked: Asked, tell: Tell) -> None:
    """Two trainings paced to shares, and unpaced, beside one alone (before and after)."""
    asked.torch_or_not_run()
    tell(seed=SEED, alone_s=ALONE_S * asked.scale, shared_s=SHARED_S * asked.scale)
    (before,) = rates(asked, ALONE_S, (None,))
    equal = rates(asked, SHARED_S, (0.5, 0.5))
    unequal = rates(asked, SHARED_S, (0.7, 0.3))
    unpaced = rates(asked, SHARED_S, (None, None))
    (after,) = rates(asked, ALONE_S, (None,))
    alone = statistics.fmean((before, after))
    tell(
        alone_steps_per_s=[before, after],
        paced_equal=of_shares(equal, alone, (0.5, 0.5)),
        paced_unequal=of_shares(unequal, alone, (0.7, 0.3)),
        unpaced=of_exclusive(unpaced, alone),
    )


def percentiles(latencies_ms: Sequence[float]) -> dict[str, Any]:
    """By nearest rank."""
    if not latencies_ms:
        return {"requests": 0}
    ordered = sorted(latencies_ms)
    found = {f"p{p}_ms": ordered[math.ceil(p / 100 * len(ordered)) - 1] for p in (50, 95, 99)}
    return {"requests": len(ordered), **found}


def inference(asked: Asked, tell: Tell) -> None:
    """Latency of requests alone, and beside a training, by which of the two is paced."""
    asked.torch_or_not_run()
    seconds = REQUESTS_S * asked.scale
    tell(seed=SEED, requests_s=seconds)
    for name, beside, itself, training in (
        ("alone", False, None, None),
        ("beside_unpaced", True, None, None),
        ("beside_paced", True, None, 0.5),
        ("both_paced", True, 0.5, 0.5),
    ):
        with jobs_of(asked) as start:
            # The training begins earlier and ends later than all requests.
            longer = f"--seconds={seconds + 0.5}"
            others = [start("training", longer, gpu_share=training)] if beside else []
            served = start("inference", f"--seconds={seconds}", gpu_share=itself)
            go(*others, served)
            found = percentiles(served.answer()["latencies_ms"])
            for other in others:
                answer = other.answer()
                found["training_steps_per_s"] = answer["chunks"] / answer["took_s"]
        tell(**{name: found})


def memory(asked: Asked, tell: Tell) -> None:
    """Where an allocation ends that goes on past the memory that the allotment grants."""
    asked.torch_or_not_run()
    if asked.device == "cpu":
        raise NotRun("a CPU has no memory of a GPU's")
    with jobs_of(asked) as start:
        tell(**start("training", "--cap", gpu_memory_bytes=CAP_BYTES).ready)


def mps(asked: Asked, tell: Tell) -> None:
    """The mode; and under MPS a training's rate by its percentage of threads, and two at half."""
    from benchmarks.gpu.truth.driver import gpus_by_nvml

    mode = None
    with suppress(NotRun):
        mode = gpus_by_nvml(opened_nvml())[0]["compute_mode"]
    control = shutil.which(CONTROL)
    tell(seed=SEED, compute_mode=mode, control_binary=control, measured_s=MPS_S * asked.scale)
    if control is None:
        raise NotRun(f"{CONTROL} is missing")
    asked.torch_or_not_run()
    (alone,) = rates(asked, MPS_S, (None,))
    with tempfile.TemporaryDirectory(prefix="mps") as folder:
        places = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        environment = {**os.environ, **places}
        with daemon([control, "-f"], Path(folder) / "control", START_S, environment):
            by_percentage = {}
            for percentage in PERCENTAGES:
                threads = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percentage)}
                (rate,) = rates(asked, MPS_S, (None,), **places, **threads)
                by_percentage[str(percentage)] = rate / alone
                tell(of_exclusive_ratio_by_percentage=by_percentage)
            servers = output(control, input="get_server_list\n", env=environment)
            halves = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"}
            two = rates(asked, MPS_S, (None, None), **places, **halves)
            with suppress(RuntimeError, OSError):
                output(control, input="quit -t 1\n", env=environment, timeout_s=5)
    tell(servers=servers.split(), two_at_half=of_exclusive(two, alone), alone_steps_per_s=alone)
