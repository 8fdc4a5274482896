"""An engine that hangs, and one that comes back: on a private engine of this test's own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.daemon.forked import session
from tests.daemon.test_daemon import SERVE, alarms, reaches, row, spec
from tools.base_image import ensure_base
from tools.private_engine import private_engine
from tools.session import Session, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.engine]


@pytest.fixture
def hangable(
    docker_host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Session, psutil.Process]]:
    """A daemon on an engine that nobody else uses, and that engine's process."""
    if os.geteuid() != 0:
        pytest.skip("a private engine needs root")
    with private_engine(tmp_path / "engines") as engine:
        ensure_base(engine.host)
        monkeypatch.setenv("DOCKER_HOST", engine.host)
        socket = engine.host.removeprefix("unix://")
        dockerd = next(
            process
            for process in psutil.process_iter()
            if process.name() == "dockerd" and any(socket in w for w in process.cmdline())
        )
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
    node.drop("alpha", spec("alpha", SERVE, target="{latency: 100ms}"))
    reaches(node, "alpha", "running")
    wait_for(lambda: row(node, "alpha")["requests"] > 10, 60, "requests")

    dockerd.send_signal(signal.SIGSTOP)
    node.drop("beta", spec("beta"))
    wait_for(lambda: not node.client.jobs()["engine"]["ok"], 30, "the hang to be seen")
    cycle = node.cycle()
    # And not eight times the engine's timeout of 10 s.
    wait_for(lambda: node.cycle() >= cycle + 8, 40, "eight cycles")
    assert row(node, "alpha")["requests"] > 10  # sidecars are read without the engine
    alarms(node, "engine")
    assert row(node, "beta")["state"] in ("waiting", "starting")

    dockerd.send_signal(signal.SIGCONT)
    wait_for(lambda: node.client.jobs()["engine"]["ok"], 60, "the return to be seen")
    reaches(node, "beta", "running", 60)
    assert row(node, "alpha")["state"] == "running"
