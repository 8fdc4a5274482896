"""What the loop costs with many containers, idle or reporting.

CPU, memory, and the split by phase of 100 containers that do nothing, and of 100 that report.

    python -m benchmarks run loop-real      writes benchmarks/results/loop.json
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from benchmarks.cost import loop
from benchmarks.options import options, stage
from benchmarks.publish import results
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


def main(arguments: list[str] | None = None) -> int:
    options(__doc__, arguments)
    cycles, rows = list(loop.run()), []
    for kind in KINDS:
        stage(f"{CONTAINERS} {kind} containers")
        with session() as one:
            rows.append(watched(one, kind))
    tables = {
        loop.CYCLES_TITLE: cycles,
        "Real containers at a period of 1 s: part of one core, and milliseconds by phase": rows,
    }
    whole_ms = next(row["cycle_ms"] for row in cycles if row["jobs"] == loop.COUNTS[-1])
    told = [_against(f"a cycle with {loop.COUNTS[-1]} jobs and no change, ms", whole_ms, 50.0)]
    told += [
        _against(f"of one core with {CONTAINERS} {row['kind']} containers", row["core_ratio"], 0.04)
        for row in rows
    ]
    results.finish("loop", results.engine_facts(), [], rows, tables, told)
    return 0


def _against(what: str, found: object, most: float) -> str:
    reached = results.verdict(isinstance(found, float) and found <= most)
    return f"{what}: {found} (at most {most:g}: {reached})"
