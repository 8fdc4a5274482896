"""What the loop costs with many containers, idle or reporting: CPU, memory, and the split by phase.

The containers run on, so that something else can be measured with them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from tools.session import Session, wait_for

IMAGE = "dlsched-examples/base:3.11"
_SLEEPER = "command: [python, -c, 'import signal; signal.pause()']"
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


def idle_spec(name: str) -> str:
    """A job that does nothing."""
    return (
        f"name: {name}\nimage: {IMAGE}\n{_SLEEPER}\nnetwork: none\n"
        "cpus: {min: 0.01}\nstop: {grace: 1s}\n"
    )


def reporting_spec(name: str) -> str:
    """A job that does nothing but tell of twelve requests every second."""
    return (
        f"name: {name}\nimage: {IMAGE}\ncommand: [python, -c, {json.dumps(_REPORTS)}]\n"
        "network: none\ncpus: {min: 0.01}\ntarget: {latency: 50ms}\nstop: {grace: 1s}\n"
    )


def measure(
    session: Session,
    containers: int,
    seconds: float,
    policy: str = "fair",
    spec: Callable[[str], str] = idle_spec,
) -> dict[str, object]:
    """One row: so many containers under that policy, watched for so long after they all run."""
    session.start(policy)
    for index in range(containers):
        session.drop(f"idle-{index:03}", spec(f"idle-{index:03}"))
    wait_for(lambda: session.running() == containers, 60 + 6 * containers, "all to run")
    time.sleep(5)
    agent, engines = session.process, session.engine_processes()
    first, began_s = session.cycle(), time.monotonic()
    agent_s = sum(agent.cpu_times()[:2])
    engine_s = sum(sum(p.cpu_times()[:4]) for p in engines)
    time.sleep(seconds)
    elapsed_s = time.monotonic() - began_s
    agent_s = sum(agent.cpu_times()[:2]) - agent_s
    engine_s = sum(sum(p.cpu_times()[:4]) for p in engines) - engine_s
    rss_bytes = agent.memory_info().rss
    session.stop()
    reports = list(session.reports(first))
    phases = {
        f"{name}_ms": round(1000 * sum(r.phase_s[name] for r in reports) / len(reports), 2)
        for name in reports[0].phase_s
    }
    return {
        "containers": containers,
        "core_ratio": round(agent_s / elapsed_s, 4),
        "rss_mib": round(rss_bytes / 2**20, 1),
        "engine_core_ratio": round(engine_s / elapsed_s, 4),
        **phases,
    }
