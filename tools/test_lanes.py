"""Runs the tests in parts, and prints one table: the gate, everything, or one part.

    python -m tools.test_lanes [--all | --only PART] [--account FOLDER] [-- PYTEST...]

tests/lanes.py assigns cases to lanes, and says which belong to the gate. All parts end with this
process, and its exit code is 0 only if every collected case ran in some part and none failed. No
case is run twice.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, Optional

from tools.environment import BUILD, ROOT
from tools.steps import say

ACCOUNTS = BUILD / "tests"
INTERRUPT_GRACE_S = 45.0
KILL_GRACE_S = 10.0
NOTHING_COLLECTED = 5
CASES_FAILED = 1
CHECK_FAILED = 1
ERROR_CHARACTERS = 200


@dataclass(frozen=True)
class Part:
    """One pytest run: its lanes and number of workers; 0: in its own process."""

    name: str
    lanes: tuple[str, ...]
    workers: int
    only_gate: bool = False
    """Whether only cases of the gate belong to it."""


PURE = Part("pure", ("unit",), 2)
# One after the other: they wait for threads and clocks.
TIMED = Part("timed", ("timed",), 0)
PROCESS = Part("process", ("process",), 0)
# They wait for an engine more than they compute.
GATE = Part("gate", ("engine", "e2e", "slow", "browser"), 3, only_gate=True)
ENGINES = Part("engines", ("engine", "e2e"), 3)
SLOW = Part("slow", ("slow",), 2)
# One after the other: they print what a page takes.
BROWSER = Part("browser", ("browser",), 0)
# One after the other: they share environments of packages.
STACKS = Part("stacks", ("stacks",), 0)

IN_GATE = (
    (replace(PURE, only_gate=True),),
    (replace(TIMED, only_gate=True), replace(PROCESS, only_gate=True), GATE),
)
"""Parts beside each other, one group after the other."""
ALL = tuple((part,) for part in (PURE, TIMED, PROCESS, ENGINES, SLOW, BROWSER, STACKS))


@dataclass
class Running:
    """A part that was started."""

    part: Part
    account: Path
    process: subprocess.Popen[str]
    reader: threading.Thread
    is_interrupted: bool = False

    def interrupt(self) -> None:
        """Signal it, workers included, to end as on Ctrl-C: fixtures clean up."""
        self.is_interrupted = True
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGINT)


@dataclass
class Phase:
    """The cost of parts that ran beside each other."""

    lanes: tuple[str, ...]
    wall_s: float
    own_s: float


@dataclass
class Tally:
    """The table's data."""

    phases: list[Phase] = field(default_factory=list)
    cases: dict[str, dict[str, Any]] = field(default_factory=dict)
    collected: dict[str, int] = field(default_factory=dict)
    codes: list[int] = field(default_factory=list)
    """Exit codes of parts that ended otherwise than by their cases' outcomes."""

    def failed(self) -> dict[str, dict[str, Any]]:
        """Cases that failed, by name."""
        return {name: one for name, one in self.cases.items() if one["outcome"] == "failed"}


def children_s() -> float:
    """CPU time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a part: byte code is kept, which every worker and `dlsched` would else
    compile."""
    changed = dict(environment)
    changed.pop("PYTHONDONTWRITEBYTECODE", None)
    changed["PYTHONPYCACHEPREFIX"] = str(BUILD / "pycache")
    # The same order of sets in each run.
    changed.setdefault("PYTHONHASHSEED", "0")
    return changed


def command_of(part: Part, account: Path, more: Sequence[str]) -> list[str]:
    """The command of a part."""
    command = [sys.executable, "-m", "pytest", "-q", f"--lane={','.join(part.lanes)}"]
    command += ["-p", "tests.accounting", f"--account={account}"]
    if part.workers:
        # By file, since cases of a module share expensive fixtures, in the files' order. Groups by
        # marker have no effect: pytest-xdist 3.8 cannot change the node ids of pytest 9.2.
        command += ["-n", str(part.workers), "--dist", "loadfile", "--no-loadscope-reorder"]
    if part.only_gate:
        command.append("--gate")
    return [*command, *more]


class Runner:
    """Runs parts, beside each other or one after the other, and ends them all when signalled."""

    def __init__(self, folder: Path, more: Sequence[str], environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._more = more
        self._environment = test_environment(environment)
        self._running: list[Running] = []
        self.signalled = 0

    def run(self, parts: Sequence[Part], tally: Tally) -> None:
        """Run these parts beside each other; their cost goes into the tally."""
        began_s, own_s = time.monotonic(), children_s()
        for part in parts:
            if self._is_over():
                break
            self._running.append(one := self._start(part))
            # The signal may have come before there was one to pass it on to.
            if self._is_over() and not one.is_interrupted:
                one.interrupt()
        for one in self._running:
            self._wait(one)
            self._take(one, tally)
        self._running = []
        lanes = tuple(lane for part in parts for lane in part.lanes)
        tally.phases.append(Phase(lanes, time.monotonic() - began_s, children_s() - own_s))

    def pass_on(self, number: int, _frame: Optional[FrameType]) -> None:
        """End every part."""
        self.signalled = number
        for one in self._running:
            one.interrupt()

    def _is_over(self) -> bool:
        return self.signalled != 0

    def _start(self, part: Part) -> Running:
        account = self._folder / f"{part.name}.json"
        account.unlink(missing_ok=True)
        process = subprocess.Popen(
            command_of(part, account, self._more),
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            process_group=0,
        )
        reader = threading.Thread(target=show, args=(part.name, process))
        reader.start()
        return Running(part, account, process, reader)

    def _wait(self, one: Running) -> None:
        deadline_s: Optional[float] = None
        while True:
            try:
                one.process.wait(0.5)
                break
            except subprocess.TimeoutExpired:
                if self.signalled and deadline_s is None:
                    deadline_s = time.monotonic() + INTERRUPT_GRACE_S
                if deadline_s is not None and time.monotonic() > deadline_s:
                    with suppress(ProcessLookupError):
                        os.killpg(one.process.pid, signal.SIGKILL)
        # A process left behind by a case may hold the pipe open.
        one.reader.join(KILL_GRACE_S)

    @staticmethod
    def _take(one: Running, tally: Tally) -> None:
        code = one.process.returncode
        account: dict[str, dict[str, Any]] = {"cases": {}, "collected": {}}
        if one.account.is_file():
            account = json.loads(one.account.read_text(encoding="utf-8"))
        outcomes = [case["outcome"] for case in account["cases"].values()]
        by_cases = code == CASES_FAILED and "failed" in outcomes
        if code not in (0, NOTHING_COLLECTED) and not by_cases:
            tally.codes.append(code)
        tally.cases |= account["cases"]
        for lane, count in account["collected"].items():
            tally.collected[lane] = max(count, tally.collected.get(lane, 0))


def show(name: str, process: subprocess.Popen[str]) -> None:
    """Print a part's lines, each prefixed with the part's name."""
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            if line.strip():
                print(f"{name:<8}| {line.rstrip()}", flush=True)


def minutes(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds // 60)}:{seconds % 60:04.1f}"


def table(tally: Tally) -> list[str]:
    """The lines of the table: by lane, then the phases' totals."""
    head = f"{'lane':<8} {'cases':>6} {'passed':>7} {'failed':>7} {'skipped':>8}"
    lines = ["", f"{head} {'wall':>8} {'CPU':>8} {'of it children':>15}"]
    for phase in tally.phases:
        for lane in phase.lanes:
            cases = [case for case in tally.cases.values() if case["lane"] == lane]
            if not cases:
                continue
            outcomes = [case["outcome"] for case in cases]
            wall_s = max(case["end_s"] for case in cases) - min(case["begin_s"] for case in cases)
            children = sum(case["children_s"] for case in cases)
            cpu_s = children + sum(case["own_s"] for case in cases)
            counts = [outcomes.count(name) for name in ("passed", "failed", "skipped")]
            lines.append(
                f"{lane:<8} {len(cases):>6} {counts[0]:>7} {counts[1]:>7} {counts[2]:>8} "
                f"{minutes(wall_s):>8} {minutes(cpu_s):>8} {minutes(children):>15}"
            )
    wall_s = sum(phase.wall_s for phase in tally.phases)
    own_s = sum(phase.own_s for phase in tally.phases)
    of_tests = f"CPU of the tests' processes {minutes(own_s)}"
    return [*lines, f"all      {len(tally.cases):>6} cases, wall {minutes(wall_s)}, {of_tests}"]


def failed(tally: Tally) -> list[str]:
    """Two lines for each case that failed; at the end of the output, as a log may be cut at its
    head."""
    lines = []
    for name, case in tally.failed().items():
        first = str(case.get("error") or "no error was recorded").strip().split("\n", 1)[0]
        lines += [f"failed: {name}", f"        {first[:ERROR_CHARACTERS]}"]
    return lines


def lost(tally: Tally, lanes: Iterable[str]) -> list[str]:
    """A line for each lane of which not every collected case ran."""
    lines = []
    for lane in lanes:
        ran = sum(case["lane"] == lane for case in tally.cases.values())
        if ran != (collected := tally.collected.get(lane, 0)):
            lines.append(f"lane {lane}: {collected} cases collected, but {ran} ran")
    return lines


def run_all(parts: Sequence[Sequence[Part]], folder: Path, more: Sequence[str]) -> int:
    """Run the phases one after the other, and print the table; returns the exit code."""
    folder.mkdir(parents=True, exist_ok=True)
    runner, tally = Runner(folder, more, os.environ), Tally()
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [(number, signal.signal(number, runner.pass_on)) for number in signals]
    try:
        for phase in parts:
            if not runner.signalled:
                runner.run(phase, tally)
    finally:
        for number, handler in before:
            signal.signal(number, handler)
    for line in [*table(tally), *failed(tally)]:
        print(line, flush=True)
    if runner.signalled:
        say(f"interrupted by {signal.Signals(runner.signalled).name}")
        return 128 + runner.signalled
    if tally.codes:
        return tally.codes[0]
    if tally.failed():
        return CASES_FAILED
    # With the caller's own arguments, cases are left out on purpose.
    missing = [] if more else lost(tally, [lane for one in tally.phases for lane in one.lanes])
    for line in missing:
        say(f"error: {line}")
    return CHECK_FAILED if missing or not tally.cases else 0


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the gate, everything, or one part."""
    parser = argparse.ArgumentParser(prog="python -m tools.test_lanes", description=main.__doc__)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true", help="everything, one part after the other")
    parts = {part.name: part for group in (*IN_GATE, *ALL) for part in group}
    which.add_argument("--only", choices=parts, help="that part alone")
    parser.add_argument("--account", type=Path, default=ACCOUNTS, help="folder of what cases took")
    parser.add_argument("more", nargs="*", help="further arguments of pytest")
    options = parser.parse_args(arguments)
    groups = ALL if options.all else IN_GATE
    if options.only is not None:
        groups = ((parts[options.only],),)
    return run_all(groups, options.account, options.more)


if __name__ == "__main__":
    sys.exit(main())
