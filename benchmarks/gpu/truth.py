"""What dlsched assumes of a GPU against the hardware: `python3 -m benchmarks.gpu.truth`.

For the day a machine with one NVIDIA GPU can be had. Eight parts, each in a process of its own with
its own time limit; they need the standard library, torch with CUDA and nvidia-ml-py, and of dlsched
the reporter alone. The result file is written after each part. A part that fails, hangs or is
killed costs its own figures alone; so does the end of the whole script. Of the machine's settings
nothing is changed: the MPS daemon is a private one.
"""

from __future__ import annotations

import ctypes
import io
import json
import math
import multiprocessing
import os
import platform
import secrets
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.gpu.jobs import NotRun, Start, die_with_parent, go, running
from benchmarks.options import options
from benchmarks.places import RESULTS, ROOT

NAME = "gpu-truth"
DEADLINE_S = 480.0
LEAST_S = 5.0
"""A part that has less time left is not begun."""
MACHINE = "machine"
"""The part whose figures are facts of the machine."""
ERRORS_CHARACTERS = 4000
"""Kept of the end of a part's traceback."""
POLL_S = 0.02
RAN, FAILED, TIMED_OUT, KILLED, NOT_RUN = "ran", "failed", "timed out", "killed", "not run"


@dataclass(frozen=True)
class Asked:
    """What the script was asked for, as far as a part must know it."""

    device: str = "cuda"
    """`cpu`: a rehearsal, whose figures say nothing of a GPU."""
    scale: float = 1.0
    """Of all durations."""


Row = dict[str, Any]
Tell = Callable[..., None]
"""Adds figures, by name, to what a part has measured."""
Measure = Callable[[Asked, Tell], None]
PARTS: dict[str, tuple[Measure, float]] = {}
"""By part, in the order in which they run: what measures it, and its time limit in seconds."""


def part(limit_s: float) -> Callable[[Measure], Measure]:
    """The function under it measures the part of its name."""

    def added(measure: Measure) -> Measure:
        PARTS[measure.__name__] = (measure, limit_s)
        return measure

    return added


def output(*command: str, timeout_s: float = 20.0, **more: Any) -> str:
    """What a command prints. Raises RuntimeError with its last lines of errors."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=timeout_s, **more
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{command[0]} did not answer in {timeout_s:g} s") from None
    if done.returncode:
        errors = " ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
        name = Path(command[0]).name
        raise RuntimeError(f"{name}: exit code {done.returncode}: {errors or 'no message'}")
    return done.stdout


# ---------------------------------------------------------------------- NVML and nvidia-smi

MIB = 1 << 20
NEAR = {
    "memory_bytes": 64 * MIB, "reserved_bytes": 64 * MIB, "memory_used_bytes": 64 * MIB,
    "busy_ratio": 0.2,
}  # fmt: skip
"""Smaller differences come from the time between two readings."""
COLUMNS = {
    "name": "name", "uuid": "uuid", "driver": "driver_version", "memory_bytes": "memory.total",
    "reserved_bytes": "memory.reserved", "memory_used_bytes": "memory.used",
    "compute_mode": "compute_mode", "mig": "mig.mode.current",
    "busy_ratio": "utilization.gpu",
}  # fmt: skip
"""Names of figures, and what nvidia-smi calls them."""
PROCESS_COLUMNS = {"pid": "pid", "memory_bytes": "used_memory"}
_MODES = ("Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process")
HELD_BYTES = 1 << 30
"""Allocated by the training whose memory is compared."""


class Nvml:
    """The library's functions, by name, once it lists a GPU."""

    def __init__(self) -> None:
        """Raises `NotRun`."""
        try:
            import pynvml
        except ImportError:
            raise NotRun("pynvml is missing") from None
        self._library = pynvml
        try:
            pynvml.nvmlInit()
            self.count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise NotRun(f"NVML: {error}") from None
        if not self.count:
            raise NotRun("NVML lists no GPU")

    def ask(self, name: str, *arguments: Any) -> Any:
        """The answer; None: there is none."""
        try:
            return getattr(self._library, f"nvml{name}")(*arguments)
        except self._library.NVMLError:
            return None

    def gpus(self) -> list[Row]:
        """All GPUs, by the calls that dlsched makes."""
        found = []
        for index in range(self.count):
            gpu = self.ask("DeviceGetHandleByIndex", index)
            rates, mode, mig = (
                self.ask(f"DeviceGet{name}", gpu)
                for name in ("UtilizationRates", "ComputeMode", "MigMode")
            )
            memory = self.ask("DeviceGetMemoryInfo", gpu, self._library.nvmlMemory_v2)
            found.append(
                {
                    "name": self.ask("DeviceGetName", gpu),
                    "uuid": self.ask("DeviceGetUUID", gpu),
                    "driver": self.ask("SystemGetDriverVersion"),
                    "memory_bytes": memory and memory.total,
                    "reserved_bytes": memory and memory.reserved,
                    "memory_used_bytes": memory and memory.used,
                    "compute_mode": None if mode is None else _MODES[mode],
                    "mig": None if mig is None else ("Disabled", "Enabled")[mig[0]],
                    "busy_ratio": rates and rates.gpu / 100,
                }
            )
        return found

    def processes(self) -> list[Row]:
        """Processes on the first GPU, by the calls that dlsched makes."""
        gpu = self.ask("DeviceGetHandleByIndex", 0)
        since_us = int((time.time() - 2.0) * 1e6)
        samples = self.ask("DeviceGetProcessUtilization", gpu, since_us)
        busy = {one.pid: one.smUtil / 100 for one in samples or ()}
        return [
            {
                "pid": one.pid,
                "memory_bytes": one.usedGpuMemory,
                "busy_ratio": None if samples is None else busy.get(one.pid, 0.0),
            }
            for one in self.ask("DeviceGetComputeRunningProcesses_v3", gpu) or ()
        ]


def by_smi(smi: str, query: str, columns: Mapping[str, str]) -> list[Row]:
    """What nvidia-smi answers to a query, a row each."""
    text = output(
        smi, f"--query-{query}={','.join(columns.values())}", "--format=csv,noheader,nounits"
    )
    return [
        {
            name: _figure(name, cell.strip())
            for name, cell in zip(columns, line.split(","), strict=True)
        }
        for line in text.splitlines()
    ]


def _figure(name: str, cell: str) -> Any:
    if cell.startswith("["):  # [N/A]
        return None
    if name not in (*NEAR, "pid"):
        return cell
    with suppress(ValueError):
        return (
            float(cell) / 100
            if name == "busy_ratio"
            else round(float(cell) * (1 if name == "pid" else MIB))
        )
    return None


def differences(key: str, ours: Sequence[Row], theirs: Sequence[Row]) -> list[str]:
    """What NVML and nvidia-smi say differently of GPUs or processes, a line each."""
    mine, its = ({str(row[key]): row for row in rows} for rows in (ours, theirs))
    lines = [f"{one}: listed by one of both alone" for one in sorted(set(mine) ^ set(its))]
    return lines + [
        f"{one}: {name} {mine[one][name]}, nvidia-smi {value}"
        for one in sorted(set(mine) & set(its))
        for name, value in its[one].items()
        if not same(name, mine[one][name], value)
    ]


def same(name: str, mine: Any, its: Any) -> bool:
    """Whether both are equal or, where such numbers may differ, near."""
    return mine == its or (
        None not in (mine, its, NEAR.get(name)) and abs(mine - its) <= NEAR[name]
    )


@part(60.0)
def machine(_: Asked, tell: Tell) -> None:
    """Each fact by itself: None where it cannot be had."""
    cpus = len(os.sched_getaffinity(0))
    tell(cpus=cpus, kernel=platform.release(), python=platform.python_version())
    first: dict[str, Any] = {}
    with suppress(NotRun):
        first = Nvml().gpus()[0]
    tell(gpu=first.get("name"), driver=first.get("driver"))
    tell(torch=None, cuda=None)
    with suppress(ImportError):
        import torch

        tell(torch=torch.__version__, cuda=torch.version.cuda)


@part(30.0)
def inventory(_: Asked, tell: Tell) -> None:
    """Each GPU's facts from both, and where they differ."""
    ours = Nvml().gpus()
    tell(gpus=ours)
    smi = shutil.which("nvidia-smi")
    if smi is None:
        raise NotRun("nvidia-smi is missing")
    theirs = by_smi(smi, "gpu", COLUMNS)
    tell(nvidia_smi=theirs, differences=differences("uuid", ours, theirs))


@part(60.0)
def processes(asked: Asked, tell: Tell) -> None:
    """A training with a known PID and memory: whether NVML and nvidia-smi know it, and its end."""
    nvml, smi = Nvml(), shutil.which("nvidia-smi")
    with jobs_of(asked) as start:
        training = start("training", f"--hold={HELD_BYTES}", f"--seconds={6 * asked.scale}")
        reserved_bytes = training.ready["reserved_bytes"]
        tell(started_pid=training.pid, started_reserved_bytes=reserved_bytes)
        training.go()
        time.sleep(3 * asked.scale)  # the driver samples use once a second
        ours = nvml.processes()
        tell(by_nvml=ours, device_busy_ratio=nvml.gpus()[0]["busy_ratio"])
        theirs = by_smi(smi, "compute-apps", PROCESS_COLUMNS) if smi else []
        training.answer()
    ended_s = time.monotonic()
    while time.monotonic() < ended_s + 5:
        if training.pid not in [one["pid"] for one in nvml.processes()]:
            break
        time.sleep(POLL_S)
    tell(
        listed_after_end_s=time.monotonic() - ended_s,
        by_nvidia_smi=theirs,
        differences=[
            *wrong_of(training.pid, reserved_bytes, ours),
            *differences("pid", ours, theirs),
        ],
    )


def wrong_of(started: int, reserved_bytes: int, ours: Sequence[Row]) -> list[str]:
    """What NVML says of the process that was started, that is not so."""
    found = [one for one in ours if one["pid"] == started]
    if not found:
        return [f"NVML does not list {started}, which was started here"]
    held, busy = found[0]["memory_bytes"], found[0]["busy_ratio"]
    if held is None or held < reserved_bytes:
        return [f"NVML: {held} bytes, of which torch alone has reserved {reserved_bytes}"]
    return [] if busy else [f"NVML: use of {started}, which computes: {busy}"]


# ---------------------------------------------------------------------- shares, memory and MPS

SEED = 7
ALONE_S, SHARED_S, REQUESTS_S, MPS_S = 5.0, 10.0, 8.0, 4.0
CAP_BYTES = 1 << 30
CONTROL = "nvidia-cuda-mps-control"
PERCENTAGES = (100, 50, 25)


@contextmanager
def jobs_of(asked: Asked, **environment: str) -> Iterator[Start]:
    """Starts reproducible trainings and inference loops of torch's. Raises `NotRun`."""
    if find_spec("torch") is None:  # only the jobs import it: it takes seconds
        raise NotRun("torch is missing")
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
        return [told["chunks"] / told["took_s"] for told in (job.answer() for job in together)]


def of_exclusive(got: Sequence[float], alone: float) -> dict[str, Any]:
    """Rates of jobs that ran together, beside that of one alone."""
    ratios = [each / alone for each in got]
    return {"measured_ratios": ratios, "sum_of_exclusive_ratio": sum(ratios)}


def of_shares(got: Sequence[float], alone: float, shares: Sequence[float]) -> dict[str, Any]:
    """The same, and how far each is from its share."""
    errors = [100 * (each / alone - share) for each, share in zip(got, shares, strict=True)]
    return {"shares": list(shares), "error_points": errors, **of_exclusive(got, alone)}


@part(130.0)
def pacing(asked: Asked, tell: Tell) -> None:
    """Two trainings paced to shares, and unpaced, beside one alone (before and after)."""
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
    ordered, count = sorted(latencies_ms), len(latencies_ms)
    found = {f"p{p}_ms": ordered[math.ceil(p / 100 * count) - 1] for p in (50, 95, 99) if count}
    return {"requests": count, **found}


@part(120.0)
def inference(asked: Asked, tell: Tell) -> None:
    """Latency of requests alone, and beside a training, by which of the two is paced."""
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
            for told in (other.answer() for other in others):
                found["training_steps_per_s"] = told["chunks"] / told["took_s"]
        tell(**{name: found})


@part(40.0)
def memory(asked: Asked, tell: Tell) -> None:
    """Where an allocation ends that goes on past the memory that the allotment grants."""
    if asked.device == "cpu":
        raise NotRun("a CPU has no memory of a GPU's")
    with jobs_of(asked) as start:
        tell(**start("training", "--cap", gpu_memory_bytes=CAP_BYTES).ready)


@contextmanager
def daemon(control: str, folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """A private MPS daemon, from when it answers until the block ends. Raises `NotRun`."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [control, "-f"],
            env=environment,
            stdout=log,
            stderr=log,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - there is one thread
        )
        try:
            until_s = time.monotonic() + 5.0
            while not (folder / "control").exists():
                if process.poll() is not None or time.monotonic() > until_s:
                    log.seek(0)
                    last = log.read().strip().splitlines()[-1:] or ["it says nothing"]
                    raise NotRun(f"{control} does not start: {last[0]}")
                time.sleep(POLL_S)
            yield
        finally:
            process.kill()
            process.wait()


@part(90.0)
def mps(asked: Asked, tell: Tell) -> None:
    """The mode; and under MPS a training's rate by its percentage of threads, and two at half."""
    mode, control = None, shutil.which(CONTROL)
    with suppress(NotRun):
        mode = Nvml().gpus()[0]["compute_mode"]
    tell(seed=SEED, compute_mode=mode, control_binary=control, measured_s=MPS_S * asked.scale)
    if control is None:
        raise NotRun(f"{CONTROL} is missing")
    (alone,) = rates(asked, MPS_S, (None,))
    with tempfile.TemporaryDirectory(prefix="mps") as folder:
        places = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        environment = {**os.environ, **places}

        def limited(percentage: int, count: int) -> list[float]:
            threads = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percentage)}
            return rates(asked, MPS_S, (None,) * count, **places, **threads)

        with daemon(control, Path(folder), environment):
            by_percentage = {}
            for percentage in PERCENTAGES:
                by_percentage[str(percentage)] = limited(percentage, 1)[0] / alone
                tell(of_exclusive_ratio_by_percentage=by_percentage)
            servers = output(control, input="get_server_list\n", env=environment)
            two = limited(50, 2)
            with suppress(RuntimeError, OSError):
                output(control, input="quit -t 1\n", env=environment, timeout_s=5)
    tell(servers=servers.split(), two_at_half=of_exclusive(two, alone), alone_steps_per_s=alone)


# ---------------------------------------------------------------------- containers

NODES = {
    "cuda": ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm"),
    "cpu": ("/dev/loop-control",),
}
MODES: Mapping[str, tuple[str, ...]] = {
    "device nodes": (),
    "CDI": ("--device=nvidia.com/gpu=all",),
    "NVIDIA runtime": ("--runtime=nvidia", "--env=NVIDIA_VISIBLE_DEVICES=all"),
    "legacy hook": ("--gpus=all",),
}
"""How a container gets its GPU; the nodes are named where there is no option for it."""
_PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib64")
"""The host's, bound into containers: no image can be pulled."""


@part(60.0)
def container(asked: Asked, tell: Tell) -> None:
    """For each way to give a GPU: whether the container can open it, before and after an update
    of its CPU limit, where an engine answers."""
    docker = shutil.which("docker")
    if docker is None:
        raise NotRun("docker is missing")
    try:
        version = output(docker, "version", "--format={{.Server.Version}}").strip()
    except RuntimeError as error:
        raise NotRun(f"no engine answers: {error}") from None
    tell(engine_version=version)
    nodes = [one for one in NODES[asked.device] if Path(one).exists()]
    if not nodes:
        raise NotRun("there is no device node of a GPU")
    image = f"dlsched-gpu-truth-{secrets.token_hex(4)}"
    command = [docker, "import", "-", image]
    subprocess.run(command, input=_folders(), check=True, capture_output=True, timeout=30)
    try:
        found = {}
        for mode, chosen in MODES.items():
            given = chosen or [f"--device={node}" for node in nodes]
            found[mode] = tried(docker, image, given, nodes)
            tell(modes=found)
    finally:
        output(docker, "rmi", "--force", image)


def _folders() -> bytes:
    """An archive with nothing in it but empty folders, to make an image of."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path in (*_PROGRAMS, "/dev", "/proc", "/tmp"):
            folder = tarfile.TarInfo(path.lstrip("/"))
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(folder)
    return packed.getvalue()


def tried(
    docker: str, image: str, chosen: Sequence[str], nodes: Sequence[str]
) -> dict[str, list[str] | str]:
    """One container with these options: which nodes it can open, before and after an update."""
    name = f"dlsched-gpu-truth-{secrets.token_hex(4)}"
    binds = [f"--volume={path}:{path}:ro" for path in _PROGRAMS if Path(path).exists()]

    def opened() -> list[str]:
        found = []
        for node in nodes:
            with suppress(RuntimeError):
                output(docker, "exec", name, "sh", "-c", f": < {node}")
                found.append(node)
        return found

    try:
        more = (*chosen, *binds, "--network=none", image, "sleep", "600")
        output(docker, "run", "--detach", f"--name={name}", *more)
        before = opened()
        output(docker, "update", "--cpu-period=100000", "--cpu-quota=50000", name)
        return {"opened_before": before, "opened_after": opened()}
    except RuntimeError as error:
        return {"reason": str(error)[:300]}
    finally:
        with suppress(RuntimeError):
            output(docker, "rm", "--force", name)


# ---------------------------------------------------------------------- checkpoints of the driver

LIBRARY = "libcuda.so.1"
STEPS, SUSPENDED_AT, EVERY = 400, 100, 5
PAUSE_S, LOCK_MS = 2.0, 10_000
SUSPENDED_BYTES = 4 << 30
LOCK, CHECKPOINT, RESTORE, UNLOCK = FUNCTIONS = tuple(
    f"cuCheckpointProcess{act}" for act in ("Lock", "Checkpoint", "Restore", "Unlock")
)
"""Of libcuda (driver 570 and later); they take a PID and arguments that may be NULL."""
SUCCESS = "CUDA_SUCCESS"


class Checkpoints:
    """The driver's functions."""

    def __init__(self) -> None:
        """Raises `NotRun` where the driver is missing, or has no such functions."""
        try:
            self._cuda = ctypes.CDLL(LIBRARY)
        except OSError:
            raise NotRun(f"{LIBRARY} is missing") from None
        for name in FUNCTIONS:
            if not hasattr(self._cuda, name):
                raise NotRun(f"{LIBRARY} has no {name}: it came with driver 570")
        if code := self._cuda.cuInit(0):
            raise NotRun(f"cuInit: {self._name(code)}")

    def call(self, function: str, pid: int) -> tuple[float, str]:
        """Seconds, and the result's name: `SUCCESS`, or an error."""
        # CUcheckpointLockArgs: 64 bytes that begin with the timeout. Without it, it could wait for
        # ever.
        lock = (ctypes.c_uint64 * 8)(LOCK_MS) if function == LOCK else None
        began_s = time.monotonic()
        code = getattr(self._cuda, function)(ctypes.c_int(pid), lock)
        return time.monotonic() - began_s, self._name(code)

    def _name(self, code: int) -> str:
        text = ctypes.c_char_p()
        if self._cuda.cuGetErrorName(code, ctypes.byref(text)) or text.value is None:
            return f"CUDA error {code}"
        return text.value.decode()


@part(90.0)
def suspend(asked: Asked, tell: Tell) -> None:
    """Two trainings undisturbed and one suspended, all of one seed: times, memory, weights."""
    checkpoints, nvml = Checkpoints(), Nvml()
    tell(seed=SEED, steps=STEPS, suspended_at_step=SUSPENDED_AT, pause_s=PAUSE_S * asked.scale)

    def used_bytes() -> int:
        return int(nvml.gpus()[0]["memory_used_bytes"])

    plain = [_trained(asked)[0] for _ in range(2)]
    tell(idle_used_bytes=used_bytes(), plain_runs_equal=plain[0] == plain[1])

    def suspended(pid: int) -> None:
        """A call that fails ends it, but what was locked is unlocked."""
        seconds: dict[str, float] = {}
        results: dict[str, str] = {}
        memory_bytes = {"before": used_bytes()}
        for function in FUNCTIONS:
            if function == RESTORE:
                memory_bytes["suspended"] = used_bytes()
                time.sleep(PAUSE_S * asked.scale)
            seconds[function], results[function] = checkpoints.call(function, pid)
            if results[function] != SUCCESS:
                if function == CHECKPOINT:
                    seconds[UNLOCK], results[UNLOCK] = checkpoints.call(UNLOCK, pid)
                break
        memory_bytes["after"] = used_bytes()
        tell(call_s=seconds, results=results, used_bytes=memory_bytes)
        for function, result in results.items():
            if result != SUCCESS:
                raise RuntimeError(f"{function}: {result}")

    checksum, first_s = _trained(asked, suspended)
    tell(first_step_after_s=first_s, state_equal=checksum == plain[0])


def _trained(asked: Asked, middle: Callable[[int], None] | None = None) -> tuple[str, float | None]:
    """The checksum of a training's state at its end, and how soon after `middle` it made a step."""
    after_s = first_s = None
    with jobs_of(asked) as start:
        length = (f"--steps={STEPS}", f"--every={EVERY}", f"--hold={SUSPENDED_BYTES}")
        job = start("training", *length)
        job.go()
        while "checksum" not in (told := job.line()):
            if middle is not None and told["step"] == SUSPENDED_AT:
                middle(job.pid)
                after_s = time.monotonic()
            elif after_s is not None and first_s is None and told["at_s"] > after_s:
                first_s = told["at_s"] - after_s
        return str(told["checksum"]), first_s


# ---------------------------------------------------------------------- running the parts


Part = tuple[str, float, Measure]
"""One subject, its time limit in seconds, and what measures it."""
_spawn = multiprocessing.get_context("spawn")


def outcome_of(state: str, reason: str, figures: Mapping[str, Any]) -> dict[str, Any]:
    """A part's outcome. `errors`: the end of its traceback; empty where it ran."""
    return {"state": state, "reason": reason, "figures": figures, "seconds": 0.0, "errors": ""}


def run(part: Measure, asked: Asked, limit_s: float) -> dict[str, Any]:
    """Run a part in a process of its own to its end, or to that limit: what came of it. What it had
    measured before it failed, hung or died is kept, and it leaves nothing running."""
    began_s = time.monotonic()
    told, telling = _spawn.Pipe(duplex=False)
    process = _spawn.Process(target=_answer, args=(part, asked, telling))
    process.start()
    telling.close()
    figures: dict[str, Any] = {}
    state, reason, errors = TIMED_OUT, "its time limit was reached", ""
    try:
        while told.poll(max(0.0, began_s + limit_s - time.monotonic())):
            message = told.recv()
            if not isinstance(message, dict):
                state, reason, errors = message
                break
            figures |= message
    except EOFError:
        process.join()
        state, reason = KILLED, f"its process ended with {process.exitcode}"
    finally:
        process.kill()
        process.join()
    return outcome_of(state, reason, figures) | {
        "seconds": time.monotonic() - began_s,
        "limit_s": limit_s,
        "errors": errors,
    }


def _answer(part: Measure, asked: Asked, telling: Connection) -> None:
    """A part's process: sends figures, and then how it ended. All that it starts dies with it."""
    os.setsid()  # Ctrl-C is the parent's
    die_with_parent()

    def tell(**figures: Any) -> None:
        json.dumps(figures, allow_nan=False)  # raises for what the result file cannot hold
        telling.send(figures)

    try:
        part(asked, tell)
    except NotRun as error:
        telling.send((NOT_RUN, str(error), ""))
    except Exception as error:  # noqa: BLE001 - it costs this part's figures alone
        trace = traceback.format_exc()[-ERRORS_CHARACTERS:]
        telling.send((FAILED, f"{type(error).__name__}: {error}", trace))
    else:
        telling.send((RAN, "", ""))


def measure(
    parts: Sequence[Part],
    file: Path,
    facts: Mapping[str, Any],
    asked: Asked = Asked(),
    deadline_s: float = DEADLINE_S,
) -> dict[str, Any]:
    """Run them one after the other; the result, which is on disk after each.

    Ends early, and says so, when the script is asked to end.
    """
    began_s = time.monotonic()
    outcomes = {name: outcome_of(NOT_RUN, "its turn did not come", {}) for name, *_ in parts}
    result: dict[str, Any] = {**facts, "deadline_s": deadline_s, "ended": False}

    def write() -> None:
        others = dict(outcomes)
        result[MACHINE] = others.pop(MACHINE, {"figures": {}})["figures"]
        result.update(seconds=time.monotonic() - began_s, parts=others)
        fresh = file.with_suffix(".fresh")  # after a kill it has the old text or the new one
        fresh.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        fresh.replace(file)

    file.parent.mkdir(parents=True, exist_ok=True)
    for name, most_s, part in parts:
        left_s = began_s + deadline_s - time.monotonic()
        if left_s < min(LEAST_S, most_s):
            outcomes[name]["reason"] = f"no time left: {max(0.0, left_s):.0f} s"
            continue
        print(f"{name} ...", flush=True)
        outcomes[name] = outcome_of(KILLED, "the script ended while it ran", {})
        write()
        try:
            outcomes[name] = run(part, asked, min(most_s, left_s))
        except KeyboardInterrupt:
            outcomes[name]["reason"] = "the script was asked to end"
            break
    else:
        result["ended"] = True
    write()
    return result


def facts(device: str, commit: str | None) -> dict[str, Any]:
    """Of the script and of the run. `commit`: where git cannot say it."""
    with suppress(OSError):
        command = ["git", "rev-parse", "--short", "HEAD"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        commit = commit or done.stdout.strip()
    return {
        "script": {"commit": commit or None},
        "rehearsal": device != "cuda",
        "date": datetime.now(UTC).date().isoformat(),
    }


def flat(figures: Mapping[str, Any], under: str = "") -> Iterator[tuple[str, str]]:
    """Each figure by its whole name, nested ones with dots between; numbers to three digits."""
    for name, value in figures.items():
        whole = f"{under}{name}"
        if isinstance(value, Mapping):
            yield from flat(value, f"{whole}.")
        elif isinstance(value, Sequence) and any(isinstance(one, Mapping) for one in value):
            yield from flat({str(index): one for index, one in enumerate(value)}, f"{whole}.")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            yield whole, "; ".join(map(_cell, value)) or "none"
        else:
            yield whole, _cell(value)


def _cell(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "not known", True: "yes", False: "no"}[value]
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def summary(parts: Mapping[str, Mapping[str, Any]]) -> str:
    """How many parts ran, and which did not: `7 of 8 parts ran; failed: pacing`."""
    by_state: dict[str, list[str]] = {}
    for name, part in parts.items():
        by_state.setdefault(part["state"], []).append(name)
    ran = len(by_state.pop(RAN, ()))
    others = [f"{state}: {', '.join(names)}" for state, names in by_state.items()]
    return "; ".join([f"{ran} of {len(parts)} parts ran", *others])


def stop_on_signals() -> None:
    """A request to end is as good as Ctrl-C."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)


def main(arguments: list[str] | None = None) -> int:
    chosen = options(
        __doc__,
        arguments,
        output=(RESULTS / f"{NAME}.json", "the result file"),
        only=(tuple(PARTS), "parts, by comma"),
        deadline=(DEADLINE_S, "seconds, of all parts"),
        commit=(str, "of the code, where git cannot say it"),
        device=("cuda", None),
        scale=(1.0, None),
    )
    stop_on_signals()
    some = [
        (name, limit_s, part)
        for name, (part, limit_s) in PARTS.items()
        if name in (*chosen.only, MACHINE)
    ]
    asked, said = Asked(chosen.device, chosen.scale), facts(chosen.device, chosen.commit)
    result = measure(some, chosen.output, said, asked, chosen.deadline)
    if result["rehearsal"]:
        print("REHEARSAL on a CPU: no figure below says anything of a GPU")
    print(json.dumps(result["parts"], indent=1), summary(result["parts"]), sep="\n")
    print(f"written: {chosen.output}")
    return 0 if result["ended"] else 1


if __name__ == "__main__":
    sys.exit(main())
