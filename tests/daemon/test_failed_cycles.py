"""A control cycle that raises ends nothing, and ten in a row give everything back."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st

from dlsched.config.inbox import scan as inbox_scan
from dlsched.config.settings import Settings
from dlsched.daemon.agent import Agent
from dlsched.daemon.failed_cycles import IN_A_ROW_MAX, FailedCycles
from dlsched.model.alarms import AlarmKey
from dlsched.runtime.machine.outcomes import GivenBack
from tests.config.yaml_grammar import JOB_FILES
from tests.daemon.conftest import settings_in
from tests.properties import examples

pytestmark = pytest.mark.timed


@pytest.fixture
def agent(settings: Settings) -> Iterator[Agent]:
    one = Agent(settings, dry_run=False)
    yield one
    one.close()


@pytest.fixture
def fails(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> Callable[[Exception | None], None]:
    """What the scan of the watch folder raises from now on; None: nothing."""
    real = agent._controller._scan
    raised: list[Exception | None] = [None]

    def scan(now_s: float) -> Any:
        if raised[0] is not None:
            raise raised[0]
        return real(now_s)

    monkeypatch.setattr(agent._controller, "_scan", scan)
    return lambda error: raised.__setitem__(0, error)


def alarms(agent: Agent) -> list[tuple[AlarmKey, str]]:
    report = agent.source.last_report()
    assert report is not None
    return [(one.key, one.text) for one in report.raised if one.source == "cycle"]


def test_failure_before_any_report_is_named(
    agent: Agent, fails: Callable[[Exception | None], None]
) -> None:
    assert agent.source.failure() is None
    fails(ValueError("chr() arg not in range"))
    assert agent.cycle() is None and agent.source.last_report() is None
    failure = agent.source.failure()
    assert failure is not None and "ValueError: chr() arg not in range" in failure


def test_a_cycle_that_raises_is_an_alarm_and_the_next_one_runs_as_usual(
    agent: Agent, fails: Callable[[Exception | None], None], caplog: pytest.LogCaptureFixture
) -> None:
    before = agent.cycle()
    assert before is not None
    fails(ValueError("chr() arg not in range\nof a line more"))
    assert (agent.cycle(), agent.cycle()) == (None, None)
    ((key, text),) = alarms(agent)
    assert key is AlarmKey.CYCLE_FAILED
    assert text.startswith(
        "2 control cycles in a row failed; limits are not changed. "
        "Last failure: ValueError: chr() arg not in range, "
    )
    assert agent.source.totals().report.raised == agent.source.last_report().raised
    assert [one.levelno for one in caplog.records if "cycle failed" in one.message] == [
        logging.CRITICAL  # with its traceback, once
    ]
    fails(None)
    after = agent.cycle()
    assert after is not None
    assert after.snapshot.cycle == before.snapshot.cycle + 1
    agent.cycle()
    assert alarms(agent) == []


def test_ten_in_a_row_give_everything_back_and_only_a_reload_lets_it_act_again(
    agent: Agent,
    fails: Callable[[Exception | None], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    given_back: list[str | None] = []

    def release(_: object) -> tuple[GivenBack, ...]:
        given_back.append(agent._runtime.held)
        return (GivenBack("alpha", "id", False, "now", "it does not answer"),)

    monkeypatch.setattr(agent._runtime, "release", release)
    agent.cycle()
    fails(KeyError("x"))
    for _ in range(IN_A_ROW_MAX - 1):
        agent.cycle()
    assert given_back == []
    assert agent._runtime.held is None
    hold = "10 control cycles in a row failed; dlsched only observes until SIGHUP"
    for _ in range(3):
        agent.cycle()
        assert given_back == [hold], "once, and held before"
    assert "alpha: the container's limits are not given back: it does not answer" in caplog.messages
    fails(None)
    for _ in range(2):
        assert agent.cycle() is not None
        assert agent._runtime.held == hold
    assert alarms(agent) == [(AlarmKey.OBSERVES_ONLY, f"All limits were given back, since {hold}.")]
    agent._reload(None)
    assert agent.cycle() is not None
    assert agent._runtime.held is None
    assert alarms(agent) == []
    monkeypatch.undo()


def test_giving_back_that_fails_ends_nothing_either(
    agent: Agent, fails: Callable[[Exception | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def release(_: object) -> tuple[GivenBack, ...]:
        raise RuntimeError("this, too")

    with monkeypatch.context() as patch:
        patch.setattr(agent._runtime, "release", release)
        fails(ValueError("a"))
        for _ in range(IN_A_ROW_MAX + 1):
            assert agent.cycle() is None
        assert agent._runtime.held is not None


def test_failures_that_are_not_in_a_row_give_nothing_back() -> None:
    counted = FailedCycles()
    for _ in range(3 * IN_A_ROW_MAX):
        assert not counted.failed(ValueError("a"))
        counted.succeeded()
    assert counted.hold is None


FILES = st.lists(JOB_FILES, min_size=4, max_size=8)


@profile(max_examples=examples(30))  # each makes an agent
@given(FILES)
def test_no_job_file_makes_a_cycle_fail(
    tmp_path_factory: pytest.TempPathFactory, files: list[bytes]
) -> None:
    folder = tmp_path_factory.mktemp("agent")
    own = settings_in(folder)
    for number, content in enumerate(files):
        file = os.fsencode(own.watch) + b"/%d-\xff.yaml" % number
        with open(file, "wb") as stream:  # noqa: PTH123
            stream.write(b"name: hostile\nimage: a\n" * (number % 2) + content)
        os.utime(file, (1.0, 1.0))
    agent = Agent(own, dry_run=False)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(inbox_scan, "_QUIET_S", 0.0)
            report = agent.cycle()
        assert report is not None
        assert len(report.rejected) == len(files)
        agent.journal.flush()
        assert agent.journal.problem() is None
    finally:
        agent.close()
