"""An engine that hangs, or is gone for a while: the loop is not held up, and the facts go on."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dlsched.model.actions import Start
from dlsched.model.facts import ContainerFact, ContainerState, Observation
from dlsched.model.spec import Limits
from dlsched.runtime.docker import listing
from tests.runtime.docker.proxy import EngineProxy
from tests.runtime.docker.rig import Rig, fact, job_spec, options_for
from tests.waiting import until

pytestmark = pytest.mark.engine

WAIT_S = 0.5
SLACK_S = 0.4
"""Less than a second wait would be; a busy host may take it once, not in every cycle."""

REPORTS = (
    "import os, time\n"
    "step = 0\n"
    "while True:\n"
    "    step += 1\n"
    "    with open(os.environ['DLSCHED_METRICS_FILE'], 'a') as f:\n"
    '        f.write(\'{"t": 1, "step": %d, "loss": 0.5}\\n\' % step)\n'
    "    end = time.monotonic() + 0.2\n"
    "    while time.monotonic() < end: pass\n"
)


@pytest.fixture
def proxy(docker_host: str, tmp_path: Path) -> Iterator[EngineProxy]:
    if not docker_host.startswith("unix://"):
        pytest.skip("the engine under test is not on a unix socket")
    with closing(EngineProxy(docker_host, tmp_path / "engine.sock")) as proxy:
        yield proxy


@pytest.fixture
def proxied(proxy: EngineProxy, docker_host: str, base_image: str, tmp_path: Path) -> Iterator[Rig]:
    changes = {"call_wait_s": WAIT_S, "timeout_s": 3.0}
    rig = Rig(options_for(proxy.host, f"t{secrets.token_hex(3)}", tmp_path, **changes), docker_host)
    try:
        yield rig
    finally:
        proxy.resume()
        rig.close()


def the_fact(seen: Observation, job: str) -> ContainerFact:
    found = fact(seen, job)
    assert found is not None
    return found


def test_a_hung_engine_delays_no_cycle_and_hides_no_fact(proxied: Rig, proxy: EngineProxy) -> None:
    jobs = [proxied.start(job_spec(name, ("python", "-c", REPORTS))) for name in ("one", "two")]
    proxied.until(lambda seen: bool(the_fact(seen, "one").reports))
    proxy.hang()
    trouble: list[bool] = []
    used: list[float] = []
    took_s: list[float] = []
    steps = 0
    for _ in range(4):
        began_s = time.monotonic()
        seen = proxied.observe()
        outcomes = [proxied.resize(job, 0.7) for job in jobs]
        took_s.append(time.monotonic() - began_s)
        assert all(outcome.status != "done" for outcome in outcomes)
        assert all(outcome.retryable for outcome in outcomes)
        trouble.append(not seen.engine_ok)
        found = the_fact(seen, "one")
        assert found.usage_core_s is not None
        used.append(found.usage_core_s)
        steps += len(found.reports)
        time.sleep(max(0.0, 1.0 - (time.monotonic() - began_s)))
    assert min(took_s) < WAIT_S + SLACK_S, took_s
    assert trouble[-1] and trouble[1]
    assert used == sorted(set(used)), "the kernel's counts went on"
    assert steps > 3, "the sidecar was read on"
    proxy.resume()
    seen = proxied.until(lambda s: s.engine_ok and the_fact(s, "one").operation is None)
    assert seen.engine_problem is None
    proxied.until(
        lambda _: proxied.resize(the_fact(proxied.observe(), "one"), 0.8).status == "done"
    )
    assert the_fact(proxied.observe(), "one").actual == Limits(0.8)


@pytest.mark.gate
@pytest.mark.contract
def test_an_engine_that_is_gone_is_told_and_its_return_is_noticed(
    proxied: Rig, proxy: EngineProxy
) -> None:
    found = proxied.start(job_spec("stays"))
    proxy.down()
    seen = proxied.until(lambda s: not s.engine_ok)
    assert proxied.options.host in (seen.engine_problem or "")
    assert the_fact(seen, "stays").state is ContainerState.RUNNING
    proxied.until(lambda _: proxied.resize(found, 0.3).status == "failed")
    proxied.apply(Start(job_spec("later"), Limits(0.2), 1024))
    assert proxied.until_failed("later").retryable
    proxied.wakes.clear()
    proxy.up()
    proxied.until(lambda _: "the Docker Engine answers again" in proxied.wakes)
    proxied.until(lambda s: s.engine_ok)
    assert proxied.resized(found, 0.3).status == "done"


@pytest.mark.contract
def test_an_exit_is_seen_at_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.until(lambda _: rig.runtime._events._stream is not None)  # events are listened to
    found = rig.start(job_spec("dies"))
    rig.wakes.clear()
    monkeypatch.setattr(listing, "EVERY_S", 3600.0)  # only the event has it listed
    rig.client.kill(found.container_id)
    until(lambda: any("die" in wake for wake in rig.wakes), "the event", every_s=0.005)
    assert rig.until_state("dies", ContainerState.EXITED).exit_code == 137
