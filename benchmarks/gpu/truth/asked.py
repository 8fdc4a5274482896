"""What a part is given, how it says that it cannot run here, and programs beside it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from benchmarks.gpu.truth.keeper import die_with_parent


class NotRun(Exception):
    """Something is missing on this machine; the message says what."""


class Tell(Protocol):
    """Adds figures, by name, to a part's answer."""

    def __call__(self, **figures: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class Asked:
    """What the script was asked for, as far as a part must know it."""

    device: str = "cuda"
    """`cpu`: a rehearsal, whose figures say nothing of a GPU."""
    scale: float = 1.0
    """Of all durations."""
    debs: Path | None = None
    """Folder with Debian packages of an engine."""

    def torch_or_not_run(self) -> None:
        """Raise `NotRun` without torch, which only the jobs import: it takes seconds."""
        if find_spec("torch") is None:
            raise NotRun("torch is missing")


def opened_nvml() -> ModuleType:
    """`pynvml`, initialised, with at least one GPU. Raises `NotRun`."""
    try:
        import pynvml
    except ImportError:
        raise NotRun("pynvml is missing") from None
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        raise NotRun(f"NVML: {error}") from None
    if not count:
        raise NotRun("NVML lists no GPU")
    found: ModuleType = pynvml
    return found


def program(name: str) -> str:
    """Path of a program. Raises `NotRun`."""
    path = shutil.which(name)
    if path is None:
        raise NotRun(f"{name} is missing")
    return path


def output(*command: str, timeout_s: float = 20.0, **more: Any) -> str:
    """What a command prints. Raises RuntimeError with its last lines of errors."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=timeout_s, **more
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{command[0]} did not answer in {timeout_s:g} s") from None
    if done.returncode:
        errors = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise RuntimeError(
            f"{Path(command[0]).name}: exit code {done.returncode}: {' '.join(errors[-3:])}"
        )
    return done.stdout


@contextmanager
def daemon(
    command: Sequence[str], ready: Path, within_s: float, environment: dict[str, str]
) -> Iterator[None]:
    """That daemon, from when the file is there until the block ends. Raises `NotRun`."""
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        try:
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - there is one thread
            )
        except OSError as error:
            raise NotRun(f"{command[0]}: {error}") from None
        try:
            until_s = time.monotonic() + within_s
            while not ready.exists():
                if process.poll() is not None or time.monotonic() > until_s:
                    log.seek(0)
                    last = log.read().strip().splitlines()[-1:] or ["it says nothing"]
                    raise NotRun(f"{command[0]} does not start: {last[0]}")
                time.sleep(0.05)
            yield
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()
            process.wait()


def table(text: str, columns: Sequence[str]) -> list[dict[str, str]]:
    """Rows of comma-separated text, as nvidia-smi prints them without a head."""
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line]
    return [dict(zip(columns, row, strict=False)) for row in rows]
