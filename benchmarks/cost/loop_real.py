"""What the loop costs with many containers, idle or reporting, and what changes of limits cost.

CPU, memory, and the split by phase of 100 containers that do nothing, and of 100 that report; then
100 limit changes by the agent, beside the engine's calls alone. Both make `CONCURRENT_UPDATES`
calls at a time, since more of them only queue in the engine. The agent also reads each container's
limits, records the originals and updates the job's allotment.

    python -m benchmarks run loop-real      writes benchmarks/results/loop.json
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

from benchmarks.cost import loop
from benchmarks.options import options
from benchmarks.publish import results
from dlsched.model.actions import Resize
from dlsched.model.facts import ContainerFact, ContainerState
from dlsched.model.spec import Limits
from dlsched.runtime.cgroup.limits import DEFAULT_SHARES, PERIOD_US, quota_us
from dlsched.runtime.clock import SystemClock
from dlsched.runtime.docker import DockerOptions, DockerRuntime
from dlsched.runtime.docker.background import begin_all
from dlsched.runtime.docker.engine import Engine
from dlsched.runtime.docker.limits.resizes import CONCURRENT_UPDATES
from tools.session import Session, session, wait_for

CONTAINERS, WATCHED_S = 100, 60.0
IMAGE = "dlsched-examples/base:3.11"
_SLEEPER = "import signal; signal.pause()"
_REPORTS = (
    "import os,time\n"
    "f=os.open(os.environ['DLSCHED_METRICS_FILE'],os.O_WRONLY|os.O_CREAT|os.O_APPEND)\n"
    "n=0\n"
    "while True:\n"
    " time.sleep(1);n+=1;b=400+n%7\n"
    ' l=b\'{"t":1,"w":"1","latency":{"count":12,"buckets":{"%d":5,"%d":7}}}\\n\'\n'
    " os.write(f,l%(b,b+9))\n"
    " if n%2000==0: os.ftruncate(f,0)\n"
)
"""Tells of twelve requests every second."""
KINDS = {"idle": (_SLEEPER, ""), "reporting": (_REPORTS, "target: {latency: 50ms}\n")}
"""Of containers: the program, and more of the job file."""

WIDTHS = (1, 2, CONCURRENT_UPDATES, 2 * CONCURRENT_UPDATES)
ROUNDS = 7
_CORES = (0.2, 0.3)
_PATIENT_S = 60.0


def spec(name: str, kind: str) -> str:
    """The job file of a container of that kind."""
    program, more = KINDS[kind]
    return (
        f"name: {name}\nimage: {IMAGE}\ncommand: [python, -c, {json.dumps(program)}]\n"
        f"network: none\ncpus: {{min: 0.01}}\n{more}stop: {{grace: 1s}}\n"
    )


def watched(one: Session, kind: str) -> dict[str, object]:
    """One row: containers of that kind, watched after they all run. They run on."""
    one.start("adaptive")
    for index in range(CONTAINERS):
        one.drop(f"idle-{index:03}", spec(f"idle-{index:03}", kind))
    wait_for(lambda: one.running() == CONTAINERS, 60 + 6 * CONTAINERS, "all to run")
    time.sleep(5)
    agent, engines = one.process, one.engine_processes()
    first, began_s = one.cycle(), time.monotonic()
    agent_s, engine_s = sum(agent.cpu_times()[:2]), _cpu_s(engines)
    time.sleep(WATCHED_S)
    elapsed_s = time.monotonic() - began_s
    agent_s, engine_s = sum(agent.cpu_times()[:2]) - agent_s, _cpu_s(engines) - engine_s
    rss_bytes = agent.memory_info().rss
    one.stop()
    reports = list(one.reports(first))
    return {
        "kind": kind,
        "containers": CONTAINERS,
        "core_ratio": round(agent_s / elapsed_s, 4),
        "rss_mib": round(rss_bytes / 2**20, 1),
        "engine_core_ratio": round(engine_s / elapsed_s, 4),
        **{
            f"{name}_ms": round(1000 * sum(r.phase_s[name] for r in reports) / len(reports), 2)
            for name in reports[0].phase_s
        },
    }


def _cpu_s(processes: Sequence[object]) -> float:
    return sum(sum(one.cpu_times()[:4]) for one in processes)  # type: ignore[attr-defined]


def updates(one: Session) -> list[dict[str, object]]:
    """Rows for the session's running containers, whose daemon has stopped; medians of rounds.

    Each round of the agent's stands beside the calls alone of just before and after it: what else
    the host does changes faster than a round of all widths.
    """
    engine = Engine(one.host, _PATIENT_S)
    runtime = DockerRuntime(
        DockerOptions(
            one.instance,
            one.state_dir,
            one.host,
            call_wait_s=_PATIENT_S,
            timeout_s=_PATIENT_S,
            cgroup_under=one.cgroup_parent,
        ),
        SystemClock(),
        lambda _: None,
    )
    try:
        facts = _running(runtime)
        _resize(runtime, facts, _CORES[1])  # which writes down what each container had
        ours_s, ratios = [], []
        raw_s = {width: list[float]() for width in WIDTHS}
        for index in range(ROUNDS):
            cores = _CORES[index % 2]
            for width in WIDTHS:
                cores += 0.01
                raw_s[width].append(_timed(partial(_update, engine, facts, cores, width)))
            before_s = _timed(partial(_update, engine, facts, cores + 0.01, CONCURRENT_UPDATES))
            ours_s.append(_timed(partial(_resize, runtime, facts, _CORES[index % 2])))
            after_s = _timed(partial(_update, engine, facts, cores + 0.02, CONCURRENT_UPDATES))
            raw_s[CONCURRENT_UPDATES] += before_s, after_s
            ratios.append(2 * ours_s[-1] / (before_s + after_s))
    finally:
        runtime.close()
        engine.close()
    made = [("the engine's calls alone", width, took_s) for width, took_s in raw_s.items()]
    rows: list[dict[str, object]] = [
        {
            "updates": len(facts),
            "made by": who,
            "at once": width,
            "seconds": round(statistics.median(took_s), 3),
        }
        for who, width, took_s in [*made, ("the agent", CONCURRENT_UPDATES, ours_s)]
    ]
    rows[-1]["of the calls alone"] = round(statistics.median(ratios), 3)
    return rows


def _running(runtime: DockerRuntime) -> Sequence[ContainerFact]:
    clock = SystemClock()
    for _ in range(200):
        runtime.resume(clock.now_s())
        seen = runtime.observe(clock.now_s())
        facts = [fact for fact in seen.containers if fact.state is ContainerState.RUNNING]
        if seen.engine_ok and facts:
            return facts
        time.sleep(0.1)
    raise RuntimeError(f"no containers are seen to run: {seen.engine_problem}")


def _resize(runtime: DockerRuntime, facts: Sequence[ContainerFact], cores: float) -> None:
    actions = [
        Resize(
            job=fact.job,
            container_id=fact.container_id,
            before=fact.actual,
            limits=Limits(cores),
            cpu_shares=DEFAULT_SHARES,
            why="measured",
        )
        for fact in facts
    ]
    for outcome in runtime.apply_all(actions, SystemClock().now_s()):
        if outcome.status != "done":
            raise RuntimeError(f"{outcome.action.job}: {outcome.status}: {outcome.detail}")


def _update(engine: Engine, facts: Sequence[ContainerFact], cores: float, width: int) -> None:
    body = {"CpuPeriod": PERIOD_US, "CpuQuota": quota_us(cores), "CpuShares": DEFAULT_SHARES}
    calls = [partial(engine.update, fact.container_id, body) for fact in facts]
    for call in begin_all(calls, "raw", width):
        call.result()


def _timed(act: Callable[[], None]) -> float:
    began_s = time.monotonic()
    act()
    return time.monotonic() - began_s


def main(arguments: list[str] | None = None) -> int:
    options(__doc__, arguments)
    cycles = list(loop.run())
    rows, changes = [], list[dict[str, object]]()
    for kind in KINDS:
        print(f"== {CONTAINERS} {kind} containers", flush=True)
        with session() as one:
            rows.append(watched(one, kind))
            changes = changes or updates(one)
    tables = {
        loop.CYCLES_TITLE: cycles,
        "Real containers at a period of 1 s: part of one core, and milliseconds by phase": rows,
        "Changes of limits": changes,
    }
    told = list(loop.headlines(cycles, rows, changes))
    results.finish("loop", results.engine_facts(), [], rows, tables, told)
    return 0
