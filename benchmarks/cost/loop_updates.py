"""Cost of 100 limit changes by the agent, beside the engine's calls alone.

Both make `CONCURRENT_UPDATES` calls at a time, since more of them only queue in the engine. The
agent also reads each container's limits, records the originals and updates the job's allotment.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

from dlsched.model.actions import Resize
from dlsched.model.facts import ContainerFact, ContainerState
from dlsched.model.spec import Limits
from dlsched.runtime.cgroup.limits import DEFAULT_SHARES, PERIOD_US, quota_us
from dlsched.runtime.clock import SystemClock
from dlsched.runtime.docker import DockerOptions, DockerRuntime
from dlsched.runtime.docker.background import begin_all
from dlsched.runtime.docker.engine import Engine
from dlsched.runtime.docker.limits.resizes import CONCURRENT_UPDATES
from tools.session import Session

WIDTHS = (1, 2, CONCURRENT_UPDATES, 2 * CONCURRENT_UPDATES)
_CORES = (0.2, 0.3)
_PATIENT_S = 60.0


def measure(session: Session, rounds: int = 7) -> list[dict[str, object]]:
    """Rows for the session's running containers, whose daemon has stopped; medians of rounds.

    Each round of the agent's stands beside the calls alone of just before and after it: what else
    the host does changes faster than a round of all widths.
    """
    engine = Engine(session.host, _PATIENT_S)
    runtime = DockerRuntime(
        DockerOptions(
            session.instance,
            session.state_dir,
            session.host,
            call_wait_s=_PATIENT_S,
            timeout_s=_PATIENT_S,
            cgroup_under=session.cgroup_parent,
        ),
        SystemClock(),
        lambda _: None,
    )
    try:
        facts = _running(runtime)
        _resize(runtime, facts, _CORES[1])  # which writes down what each container had
        ours_s, ratios = [], []
        raw_s = {width: list[float]() for width in WIDTHS}
        for index in range(rounds):
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
    rows: list[dict[str, object]] = [
        {
            "updates": len(facts),
            "made by": "the engine's calls alone",
            "at once": width,
            "seconds": round(statistics.median(took_s), 3),
        }
        for width, took_s in raw_s.items()
    ]
    rows.append(
        {
            "updates": len(facts),
            "made by": "the agent",
            "at once": CONCURRENT_UPDATES,
            "seconds": round(statistics.median(ours_s), 3),
            "of the calls alone": round(statistics.median(ratios), 3),
        }
    )
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
