"""`python3 -m benchmarks.gpu.truth`: every part in turn, and one result file.

The file is written after each part. A part that fails, hangs or is killed costs its own figures
alone; so does the end of the whole script.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.gpu.truth import running, showing
from benchmarks.gpu.truth.asked import Asked, NotRun
from benchmarks.gpu.truth.running import Outcome, Part, Stop
from benchmarks.options import options
from benchmarks.places import RESULTS, ROOT

NAME = "gpu-truth"
DEADLINE_S = 480.0
LEAST_S = 5.0
"""A part that has less time left is not begun."""
MACHINE = "machine"
"""The part whose figures are facts of the machine."""

FIGURES: dict[str, tuple[str, float, str]] = {
    MACHINE: ("driver", 60.0, "cpus kernel python gpu driver torch cuda"),
    "inventory": ("driver", 30.0, "gpus nvidia_smi differences"),
    "processes": (
        "driver",
        60.0,
        (
            "started_pid started_reserved_bytes by_nvml device_busy_ratio listed_after_end_s"
            " by_nvidia_smi differences"
        ),
    ),
    "pacing": (
        "sharing",
        130.0,
        "seed alone_s shared_s alone_steps_per_s paced_equal paced_unequal unpaced",
    ),
    "inference": ("sharing", 120.0, "seed requests_s alone beside_unpaced beside_paced both_paced"),
    "memory": ("sharing", 40.0, "asked_bytes reached_bytes device_bytes error message"),
    "mps": (
        "sharing",
        90.0,
        (
            "seed compute_mode control_binary measured_s of_exclusive_ratio_by_percentage servers"
            " two_at_half alone_steps_per_s"
        ),
    ),
    "container": ("container", 60.0, "engine_version modes"),
    "suspend": (
        "suspending",
        90.0,
        (
            "seed steps suspended_at_step pause_s idle_used_bytes plain_runs_equal call_s results"
            " used_bytes first_step_after_s state_equal"
        ),
    ),
}
"""By part, in the order in which they run: its module, its time limit in seconds, and the names of
all its figures."""


def parts(device: str, scale: float, debs: Path | None) -> list[Part]:
    """All parts, as commands."""
    more = [f"--device={device}", f"--scale={scale}"]
    more += [] if debs is None else [f"--debs={debs.absolute()}"]
    start = (sys.executable, "-m", "benchmarks.gpu.truth")
    return [
        Part(name, tuple(names.split()), limit_s, (*start, f"--part={name}", *more))
        for name, (_, limit_s, names) in FIGURES.items()
    ]


def answer(part: str, asked: Asked) -> None:
    """One part's process: measure it, in full or until it raises, and print figures as JSON."""
    printed = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints is no answer

    def tell(**figures: Any) -> None:
        print(json.dumps(figures), file=printed, flush=True)

    module = import_module(f"benchmarks.gpu.truth.{FIGURES[part][0]}")
    try:
        getattr(module, part)(asked, tell)
    except NotRun as error:
        tell(**{running.NOT_RUN_KEY: str(error)})


def measure(
    all_parts: Sequence[Part], output: Path, facts: dict[str, Any], deadline_s: float = DEADLINE_S
) -> dict[str, Any]:
    """Run them one after the other; the result, which is on disk after each.

    Ends early, and says so, when the script is asked to end.
    """
    began_s = time.monotonic()
    outcomes: dict[str, Outcome] = {
        part.name: Outcome(running.NOT_RUN, "its turn did not come") for part in all_parts
    }
    result = {**facts, "deadline_s": deadline_s, "ended": False}

    def write() -> None:
        told = {name: asdict(outcome) for name, outcome in outcomes.items()}
        result["seconds"] = time.monotonic() - began_s
        result[MACHINE] = told.pop(MACHINE, {"figures": {}})["figures"]
        result["parts"] = told
        replace(output, json.dumps(result, indent=1, allow_nan=False) + "\n")

    write()
    for part in all_parts:
        left_s = began_s + deadline_s - time.monotonic()
        if left_s < min(LEAST_S, part.limit_s):
            outcomes[part.name].reason = f"no time left: {max(0.0, left_s):.0f} s"
            continue
        print(f"{part.name} ...", flush=True)
        outcomes[part.name] = Outcome(running.KILLED, "the script ended while it ran")
        write()
        try:
            outcomes[part.name] = running.run(part, min(part.limit_s, left_s))
        except Stop as stop:
            outcomes[part.name] = Outcome(running.KILLED, str(stop))
            break
        except OSError as error:
            outcomes[part.name] = Outcome(running.FAILED, str(error))
        write()
    else:
        result["ended"] = True
    write()
    return result


def replace(path: Path, text: str) -> None:
    """Write a file whole: after a kill it has the old text or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".fresh")
    with fresh.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def facts(device: str, commit: str | None) -> dict[str, Any]:
    """Of the script and of the run."""
    sources = sorted([*Path(__file__).parent.glob("*.py"), *Path(__file__).parents[1].glob("*.py")])
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources))
    with suppress(OSError):
        command = ["git", "rev-parse", "--short", "HEAD"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        commit = commit or done.stdout.strip()
    return {
        "script": {"commit": commit or None, "sha256": digest.hexdigest()},
        "rehearsal": device != "cuda",
        "date": datetime.now(UTC).date().isoformat(),
    }


def stop_on_signals() -> None:
    """Turn requests to end into `Stop`."""

    def stop(number: int, _: object) -> None:
        raise Stop(f"the script was asked to end ({signal.Signals(number).name})")

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)


def main(arguments: list[str] | None = None) -> int:
    chosen = options(
        __doc__,
        arguments,
        output=(RESULTS / f"{NAME}.json", "the result file"),
        only=(tuple(FIGURES), "parts, by comma"),
        deadline=(DEADLINE_S, "seconds, of all parts"),
        debs=(Path, "folder with Debian packages of an engine"),
        commit=(str, "of the code, where git cannot say it"),
        device=("cuda", None),
        scale=(1.0, None),
        part=(str, None),
    )
    if chosen.part:
        answer(chosen.part, Asked(chosen.device, chosen.scale, chosen.debs))
        return 0
    stop_on_signals()
    every = parts(chosen.device, chosen.scale, chosen.debs)
    some = [part for part in every if part.name in (*chosen.only, MACHINE)]
    result = measure(some, chosen.output, facts(chosen.device, chosen.commit), chosen.deadline)
    if result["rehearsal"]:
        print("REHEARSAL on a CPU: no figure below says anything of a GPU")
    print(showing.report(result["parts"]))
    print(f"written: {chosen.output}")
    return 0 if result["ended"] else 1


if __name__ == "__main__":
    sys.exit(main())
