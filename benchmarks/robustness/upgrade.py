"""`python -m benchmarks run upgrade --from COMMIT`: this version takes over from a killed one.

The sources of COMMIT run a daemon that has limited other people's containers, ended, stopped and
served jobs of its own, and begun to move one to another GPU (stand-in devices) when it is killed
with SIGKILL. The present sources then run a daemon on the same state directory, to its end. Prints
a table of checks and writes `results/upgrade.json`; exit code 1 when one failed. Needs root and a
C compiler (the GPU driver's stand-in). `--spoil` breaks what the second daemon needs, to show that
the checks can fail.

Owns the order of acts and what is judged. It must not import `dlsched`: both versions are known by
their commands and files alone, wherever their modules lie.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.publish import results
from benchmarks.robustness.upgrade_checks import (
    Checks,
    kept_memory,
    known,
    limit_files,
    not_as_before,
    spoil,
)
from benchmarks.robustness.upgrade_scene import (
    GPUS,
    JOBS,
    MOVED,
    OWN_CEILING_CORES,
    REPORTED,
    Scene,
    scene,
    wait_for,
)
from benchmarks.robustness.upgrade_sources import Agent, Sources, present, sources_of
from tools.base_image import ensure_base
from tools.engine_probe import connect
from tools.steps import SetupError

NAME = "upgrade"
TITLE = "another version's daemon is killed in the middle of its work; this one takes over"
POLICY = "adaptive"
SPOILS = ("memory", "journal", "originals", "ended")
WITHIN_S = 60.0

_RUNNING = ("serves", "learns")
_STATES = {"serves": "running", "learns": "running", "ends": "finished", "stopped": "stopped"}


@dataclass(frozen=True, slots=True)
class Left:
    """What the first daemon had done when it was killed."""

    at_s: float
    history: dict[str, list[dict[str, Any]]]
    """Changes of limits, by job, as it told them."""
    containers: dict[str, tuple[str, str]]
    """Of own jobs: container and when it was started."""


def first_life(one: Scene, agent: Agent, checks: Checks) -> Left:
    """The first daemon adopts, limits, serves, ends, stops, begins a move, and is killed."""
    foreign = list(one.originals)
    wait_for(lambda: _running(agent, foreign), WITHIN_S, "all foreign containers to be adopted")
    one.drop()
    wait_for(lambda: _running(agent, [*_RUNNING, "stopped", MOVED]), WITHIN_S, "own jobs to run")
    wait_for(lambda: agent.rows()["ends"]["state"] == "finished", WITHIN_S, "a job to finish")
    stopped = agent.command("stop", "stopped")
    wait_for(lambda: agent.rows()["stopped"]["state"] == "stopped", WITHIN_S, stopped.stderr)
    wait_for(lambda: len(_limited(one)) == len(foreign), 90, "all of them to be limited")
    checks.that("before: adopts other people's containers", None, f"{len(foreign)} by labels")
    checks.that("before: limits every one of them", None, "; ".join(_limited(one).values()))
    wait_for(lambda: "from step" in one.printed(MOVED), WITHIN_S, "the job to be moved to begin")
    one.lose(one.held(MOVED))
    wait_for(
        lambda: "saves itself" in (agent.rows()[MOVED]["reason"] or ""), 30, "the move to begin"
    )
    told = agent.rows()[MOVED]["reason"]
    history = {job: agent.ask("why", job, "--limit", "1000")["changes"] for job in _RUNNING}
    containers = {job: _life(one, job) for job in JOBS}
    agent.kill()
    checks.that("before: is killed (SIGKILL) in a move", None, told)
    return Left(time.time(), history, containers)


def second_life(one: Scene, agent: Agent, left: Left, checks: Checks) -> None:
    """The second daemon takes over: nothing is lost, repeated or begun without need."""
    foreign = list(one.originals)
    checks.that("the daemon starts and answers", _late(agent.rows, "the daemon to answer"))
    late = _late(lambda: _running(agent, [*foreign, MOVED]), "all to be told as running")
    checks.that("other people's containers are adopted again", late)
    wrong = late or _move_wrong(one, left)
    checks.that("the move is ended or rolled back", wrong, _moved(one, left))
    rows = agent.rows()
    wrong = [
        f"{job} is {rows.get(job, {}).get('state')}, not {state}"
        for job, state in _STATES.items()
        if rows.get(job, {}).get("state") != state
    ]
    checks.that("finished and stopped stay so, others run", wrong, str(_STATES)[1:-1])
    _history(agent, left, checks)
    said = [line for line in agent.log.splitlines() if "without its memory" in line]
    checks.that("policy memory is read", said)
    cycle = agent.ask("ps")["cycle"]
    late = _late(lambda: agent.ask("ps")["cycle"] >= cycle + 3, "three cycles")
    checks.that("cycles go on", late, f"cycle {cycle} and on")
    alarms = agent.ask("ps")["alarms"]
    # The lost GPU is told as long as it is lost.
    alarms = [one for one in alarms if "GPU" not in one]
    checks.that("no alarm but for the lost GPU", alarms)
    checks.that("nothing raised in the log", "Traceback" if "Traceback" in agent.log else None)


def ending(one: Scene, agent: Agent, left: Left, checks: Checks) -> None:
    """`release` and SIGTERM give everything back; no container was touched otherwise."""
    released = agent.command("release")
    checks.that("`dlsched release` ends with 0", released.returncode and released.stderr)
    _all_as_before(one, "after `release`", checks)
    code = agent.stop()
    checks.that("SIGTERM ends it with 0", code and f"exit code {code}")
    _all_as_before(one, "after the end", checks)
    wrong = []
    for job in (*_RUNNING, MOVED):
        cpu = one.own(job)["HostConfig"]
        cores = cpu["CpuQuota"] / (cpu["CpuPeriod"] or 100_000)
        if abs(cores - OWN_CEILING_CORES) > 0.005:
            wrong.append(f"{job} has {cores} cores")
    checks.that("own jobs are left with their files' ceiling", wrong, f"{OWN_CEILING_CORES} cores")
    wrong = [
        f"{job} runs in another container"
        for job in _RUNNING
        if _life(one, job) != left.containers[job]
    ]
    checks.that("jobs that ran were not started again", wrong)
    began = [name for _, name in one.heard(left.at_s, "start")]
    again = sorted({name for name in began if not name.endswith(f"-{MOVED}")})
    checks.that("only the moved job was started since the kill", again, f"{len(began)} start")
    ended = [name for _, name in one.heard(left.at_s, "die", "kill", "pause", "destroy")]
    checks.that(
        "no foreign container was signalled", [name for name in ended if name in one.originals]
    )


def _late(condition: Any, what: str) -> str | None:
    try:
        wait_for(condition, WITHIN_S, what)
    except (RuntimeError, KeyError, TypeError) as error:
        return str(error) or repr(error)
    return None


def _running(agent: Agent, names: list[str]) -> bool:
    rows = agent.rows()
    return all(rows.get(name, {}).get("state") == "running" for name in names)


def _limited(one: Scene) -> dict[str, str]:
    """By foreign container what was changed of it."""
    found = {}
    for name, original in one.originals.items():
        changes = [
            f"{file} {now.strip()}"
            for file, now in limit_files(original.pid).items()
            if now != original.files[file]
        ]
        if changes:
            found[name] = f"{name.rpartition('-')[2]}: {', '.join(changes)}"
    return found


def _life(one: Scene, job: str) -> tuple[str, str]:
    body = one.own(job)
    return (body["Id"], body["State"]["StartedAt"]) if body else ("", "")


def _move_wrong(one: Scene, left: Left) -> list[str]:
    other = next(uuid for uuid in GPUS if uuid != one.lost)
    held, printed = one.held(MOVED), one.printed(MOVED).strip()
    saved = one.saved / "step"
    if _life(one, MOVED) == left.containers[MOVED]:  # it was rolled back
        return []
    wrong = [] if held == other else [f"it holds {held or 'no GPU'}, not {other}"]
    if not saved.exists() or printed != f"from step {saved.read_text()}":
        wrong.append(f"it went on {printed}, saved was {saved.exists() and saved.read_text()}")
    return wrong


def _moved(one: Scene, left: Left) -> str:
    if _life(one, MOVED) == left.containers[MOVED]:
        return "rolled back"
    return f"moved to {one.held(MOVED)[:8]}, goes on {one.printed(MOVED).strip()}"


def _history(agent: Agent, left: Left, checks: Checks) -> None:
    """What the first daemon told of its changes is told word for word."""
    wrong = []
    for job, before in left.history.items():
        told = (agent.ask("why", job, "--limit", "1000") or {}).get("changes", [])
        gone = [change for change in before if change not in told]
        if gone or not before:
            wrong.append(f"{job}: {len(gone)} of {len(before)} changes are not told")
    count = sum(map(len, left.history.values()))
    checks.that("the journal's history is told", wrong, f"{count} changes before the kill")


def third_life(one: Scene, agent: Agent, sources: Sources, checks: Checks) -> Agent:
    """The second daemon ends and another follows: its policy's memory went on from the first's.

    The first frame that a daemon journals has beside it what the daemon before had remembered. A
    training reports each evaluation once, so the second knows the first ones from there alone.
    """
    first = kept_memory(one.state_dir, POLICY)
    code = agent.stop()
    checks.that("SIGTERM ends it with 0, and another follows", code and f"exit code {code}")
    agent = Agent(sources, one.settings(), one.root / "third.log")
    names = [*one.originals, *_RUNNING]
    late = _late(lambda: _running(agent, names), "all to be told as running")
    late = late or _late(lambda: kept_memory(one.state_dir, POLICY) != first, "another memory")
    had = known(first, REPORTED)
    has = known(kept_memory(one.state_dir, POLICY), REPORTED)
    checks.that(
        "policy memory goes on from the first daemon's",
        late or (len(had & has) * 2 <= len(had) and f"steps {had} are {has} of the second"),
        f"{len(had & has)} of the first's {len(had)} evaluations are among its {len(has)}",
    )
    return agent


def _all_as_before(one: Scene, when: str, checks: Checks) -> None:
    for name, original in one.originals.items():
        body = one.body(original.container)
        pid = int(body["State"]["Pid"])
        wrong, worded = not_as_before(original, body["HostConfig"], limit_files(pid))
        if pid != original.pid:
            wrong.append("it was started again")
        found = f"{len(original.files)} files, {len(original.host)} keys of HostConfig"
        if worded:
            found += f"; the engine words: {', '.join(worded)}"
        checks.that(f"{name.rpartition('-')[2]}: as before, {when}", wrong, found)


def play(old: Sources, new: Sources, broken: str | None) -> tuple[Checks, float]:
    """Both lives; the checks, and how long it took."""
    checks, began_s = Checks(), time.monotonic()
    for what, sources in (("before", old), ("after", new)):
        found = sources.imported_from()
        wrong = found != sources.folder and f"dlsched is imported from {found}"
        checks.that(f"{what}: runs its own sources", wrong, sources.commit)
    with scene() as one:
        settings = one.settings()
        one.begin_foreign()
        agent = Agent(old, settings, one.root / "first.log")
        try:
            left = first_life(one, agent, checks)
            if broken:
                spoil(one.state_dir, broken)
            agent = Agent(new, settings, one.root / "second.log")
            second_life(one, agent, left, checks)
            agent = third_life(one, agent, new, checks)
            ending(one, agent, left, checks)
        except (RuntimeError, KeyError, TypeError) as error:
            checks.that("played to its end", f"{type(error).__name__}: {error}")
            print(agent.log[-3000:], file=sys.stderr)
        finally:
            agent.kill()
    return checks, time.monotonic() - began_s


def main(arguments: list[str] | None = None) -> int:
    """Play it; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--from", dest="commit", required=True, help="whose daemon is killed")
    parser.add_argument("--spoil", choices=SPOILS, help="break that before the second daemon runs")
    chosen = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    try:
        ensure_base(host)
        with closing(connect(host, timeout_s=30)) as client:
            version = str(client.version()["Version"])
        with tempfile.TemporaryDirectory(prefix="dlsched-") as folder:
            after = present(Path(folder) / "after")
            with sources_of(chosen.commit, Path(folder) / "before") as before:
                checks, took_s = play(before, after, chosen.spoil)
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(results.markdown(checks.rows))
    print(f"{len(checks.rows)} checks, {checks.failed} failed, {took_s:.0f} s")
    if not chosen.spoil:
        results.save(
            NAME,
            results.host_facts(version),
            [],
            [],
            title=TITLE,
            table=checks.rows,
            before=before.commit,
            after=after.commit,
            took_s=round(took_s),
        )
    return 1 if checks.failed else 0
