"""An engine that hangs, and one that comes back: on a private engine of this test's own."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest

from dlsched.model.actions import Resize
from tests.conftest import dockerd_of
from tests.daemon.forked import session
from tests.daemon.test_daemon import SERVE, alarms, goes_on, reaches, row, runs, spec
from tools.private_engine import Engine
from tools.session import Session, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.engine]


@pytest.fixture
def hangable(own_engine: Engine) -> Iterator[tuple[Session, psutil.Process]]:
    """A daemon on an engine that nobody else uses, and that engine's process."""
    dockerd = dockerd_of(own_engine)
    with session() as one:
        try:
            yield one, dockerd
        finally:
            with suppress(psutil.NoSuchProcess):
                dockerd.send_signal(signal.SIGCONT)


def test_a_hung_engine_delays_no_cycle_and_its_return_is_noticed(
    hangable: tuple[Session, psutil.Process],
):
    node, dockerd = hangable
    node.start("dqoes")
    runs(node, "alpha", SERVE, target="{latency: 100ms}")
    wait_for(lambda: row(node, "alpha")["requests"] > 10, 60, "requests")

    dockerd.send_signal(signal.SIGSTOP)
    node.drop("beta", spec("beta"))
    wait_for(lambda: not node.client.jobs()["engine"]["ok"], 30, "the hang to be seen")
    goes_on(node, 8)  # within 30 s, and not eight times the engine's timeout of 10 s
    assert row(node, "alpha")["requests"] > 10  # sidecars are read without the engine
    alarms(node, "engine")
    assert row(node, "beta")["state"] in ("waiting", "starting")

    dockerd.send_signal(signal.SIGCONT)
    wait_for(lambda: node.client.jobs()["engine"]["ok"], 60, "the return to be seen")
    reaches(node, "beta", "running", 60)
    assert row(node, "alpha")["state"] == "running"


def test_five_starts_at_once_are_no_lost_engine(hangable: tuple[Session, psutil.Process]):
    node, _ = hangable
    node.start("fair")
    runs(node, "alpha")
    first, names = node.cycle(), [f"job{number}" for number in range(5)]
    for name in names:
        node.drop(name, spec(name))
    for name in names:
        reaches(node, name, "running", 60)
    goes_on(node, 4)
    reports = list(node.reports(first))
    changes = [
        outcome
        for report in reports
        for outcome in report.outcomes
        if isinstance(outcome.action, Resize)
    ]
    assert changes, "alpha makes room for the others"
    assert [one for one in changes if one.status == "failed"] == []
    assert {alarm for report in reports for alarm in report.alarms if "engine" in alarm} == set()
