"""What the loop costs with many idle containers: CPU, memory, and the split by phase."""

from __future__ import annotations

import time

from benchmarks.reaction import idle_spec
from benchmarks.session import Session, wait_for


def measure(session: Session, containers: int, seconds: float) -> dict[str, object]:
    """One row: `containers` idle ones under `fair`, watched for so long after they all run."""
    session.start("fair")
    for index in range(containers):
        session.drop(f"idle-{index:03}", idle_spec(f"idle-{index:03}"))
    wait_for(lambda: session.running() == containers, 30 + 3 * containers, "all to run")
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
