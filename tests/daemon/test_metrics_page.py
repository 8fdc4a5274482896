"""`/metrics` of the daemon on a real engine, over its socket."""

from __future__ import annotations

import re

import httpx2
import pytest

from tests.daemon.test_daemon import goes_on, reaches, spec
from tools.session import Session, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.engine]


def page(node: Session) -> str:
    transport = httpx2.HTTPTransport(uds=str(node.root / "run" / "status.sock"))
    with httpx2.Client(transport=transport, base_url="http://dlsched", timeout=60) as client:
        return client.get("/metrics").text


def value(text: str, series: str) -> float:
    found = re.search(rf"^{re.escape(series)} (\S+)$", text, re.MULTILINE)
    assert found, f"{series} is not in\n{text}"
    return float(found[1])


@pytest.mark.gate
def test_the_daemon_counts_what_it_does(node: Session) -> None:
    node.drop("alpha", spec("alpha"))
    node.start("fair")
    reaches(node, "alpha", "running")
    # On a busy host a single listing of containers may take longer than the daemon waits for it.
    wait_for(lambda: value(page(node), "dlsched_engine_up") == 1, 30, "the engine to answer")
    first = page(node)
    goes_on(node)
    then = page(node)
    assert value(first, 'dlsched_jobs{state="running"}') == 1
    started = 'dlsched_job_changes_total{job_name="alpha",kind="start",status="begun"}'
    assert value(first, started) == 1
    assert value(then, "dlsched_cycles_total") >= value(first, "dlsched_cycles_total") + 2
    assert value(then, "dlsched_cycle_duration_seconds_count") == value(
        then, "dlsched_cycles_total"
    )
    for series in (
        'dlsched_cycle_cpu_seconds_total{phase="observe"}',
        "dlsched_journal_bytes",
        "dlsched_last_cycle_timestamp_seconds",
    ):
        assert value(then, series) > 0
