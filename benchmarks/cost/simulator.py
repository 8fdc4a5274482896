"""What simulating costs: CPU seconds and memory of the traces that the figures name.

Each run is a process of its own, so that one's memory is not another's; CPU time, since a host may
be busy with other work.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator

from dlsched.control.controller import NamedPolicy
from dlsched.policies.registry import load
from dlsched.simulation.run import simulate
from dlsched.simulation.trace import Recipe, generate

HOUR = Recipe(jobs=40, duration_s=3600.0, seed=7)
"""`dlsched trace generate --jobs 40 --hours 1 --seed 7`; a cycle is 1 s."""
DAY_JOBS = (250, 500, 1000)
POLICIES = ("dqoes", "tradl", "fair")


STAYS_S = 7200.0


def recipe(length: str, jobs: int) -> Recipe:
    """What is generated for a length: HOUR, or a day on which jobs come and go.

    `dlsched trace generate --jobs N --hours 24 --cycle 10s --stay 2h --seed 7`. Without `--stay`
    half of the jobs would all be there at once until the end, which costs many times as much.
    """
    if length == "hour":
        return HOUR
    return Recipe(jobs=jobs, duration_s=86_400.0, cycle_s=10.0, stay_s=STAYS_S, seed=7)


def rows() -> Iterator[dict[str, object]]:
    """A row a run as it is done; takes some minutes."""
    for policy in POLICIES:
        yield _in_own_process("hour", 40, policy)
    for jobs in DAY_JOBS:
        yield _in_own_process("day", jobs, "dqoes")


def measured(length: str, jobs: int, policy: str) -> dict[str, object]:
    """One run in this process."""
    trace = generate(recipe(length, jobs))
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began_s = time.process_time()
    result = simulate(trace, NamedPolicy(policy, load(policy)), seed=1)
    return {
        "trace": f"{jobs} jobs, 1 {length}",
        "policy": policy,
        "jobs": jobs,
        "cycles": result.cycles,
        "cpu_s": round(time.process_time() - began_s, 2),
        "memory_mib": round(
            (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) / 1024, 1
        ),
    }


def _in_own_process(length: str, jobs: int, policy: str) -> dict[str, object]:
    one = ["run", "simulator", "--one", length, str(jobs), policy]
    words = [sys.executable, "-m", "benchmarks", *one]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    row: dict[str, object] = json.loads(done.stdout)
    return row


def main(arguments: list[str] | None = None) -> int:
    """Print the table; `--one` prints one run as JSON. Returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--one", nargs=3, metavar=("LENGTH", "JOBS", "POLICY"))
    one = parser.parse_args(arguments).one
    if one is not None:
        print(json.dumps(measured(one[0], int(one[1]), one[2])))
        return 0
    print(f"{'trace':<18} {'policy':<8} {'cycles':>7} {'CPU s':>8} {'memory MiB':>11}")
    for row in rows():
        print(
            f"{row['trace']:<18} {row['policy']:<8} {row['cycles']:>7} {row['cpu_s']:>8} "
            f"{row['memory_mib']:>11}",
            flush=True,
        )
    return 0
