"""The agent without an engine: what a reload changes, and what a dry run and a stop refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dlsched.daemon import Agent, NotOurs
from dlsched.errors import EngineUnavailable, SettingsError
from dlsched.settings import Engine, Settings

JOB = "name: alpha\nimage: model:1\n"
Make = Callable[..., Agent]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    for name in ("jobs.d", "elsewhere"):
        (tmp_path / name).mkdir()
    return Settings(
        instance="wiring",
        state_dir=tmp_path / "state",
        run_dir=tmp_path / "run",
        watch=tmp_path / "jobs.d",
        policy="none",
        engine=Engine(host=f"unix://{tmp_path}/no-engine.sock"),
    )


@pytest.fixture
def agent(settings: Settings) -> Iterator[Make]:
    made: list[Agent] = []

    def make(dry_run: bool = False) -> Agent:
        made.append(Agent(settings, dry_run=dry_run))
        return made[-1]

    yield make
    for one in made:
        one.close()


def cycles(agent: Agent, until: Callable[[], bool]) -> None:
    """Cycle until it holds; files need to stand still, which is the clock's own time."""
    for _ in range(200):
        agent._controller.run_once()
        if until():
            return
        agent._clock.sleep_until(agent._clock.now_s() + 0.02)
    raise AssertionError("in vain")


def test_a_reload_takes_what_it_can_and_keeps_what_only_a_start_can_change(
    agent: Make, settings: Settings, tmp_path: Path
) -> None:
    one = agent()
    moved = replace(
        settings,
        policy="fair",
        capacity=0.5,
        watch=tmp_path / "elsewhere",
        state_dir=tmp_path / "other",
    )
    one._reload(lambda: moved)
    assert (one.about()["policy"], one.about()["watch"]) == ("fair", str(settings.watch))
    cycles(one, lambda: one.last_report() is not None)
    report = one.last_report()
    assert report is not None
    assert report.policy == "fair"
    assert report.snapshot.node.capacity_cores == 0.5
    assert list(one.changes("alpha", 5)) == []  # asked of the journal that is in use


def test_wrong_settings_leave_the_old_in_force(agent: Make) -> None:
    one = agent()

    def wrong() -> Settings:
        raise SettingsError(())

    one._reload(wrong)
    assert one.about()["policy"] == "none"


def test_a_dry_run_refuses_to_stop_and_to_start(agent: Make, settings: Settings) -> None:
    one = agent(dry_run=True)
    (settings.watch / "alpha.yaml").write_text(JOB)
    cycles(one, lambda: any(job.name == "alpha" for job in one._jobs()))
    with pytest.raises(NotOurs, match="dry run"):
        one.stop("alpha")
    with pytest.raises(NotOurs, match="dry run"):
        one.start("alpha")
    assert list((settings.state_dir / "ended").iterdir()) == []


def test_a_broken_record_is_an_alarm(agent: Make, settings: Settings) -> None:
    (settings.state_dir / "ended").mkdir(parents=True)
    (settings.state_dir / "ended" / "alpha.json").write_text("{")
    one = agent()
    cycles(one, lambda: one.last_report() is not None)
    report = one.last_report()
    assert report is not None
    assert any("alpha.json is no record" in alarm for alarm in report.alarms)


def test_without_an_engine_it_does_not_begin(agent: Make):
    with pytest.raises(EngineUnavailable, match=r"no-engine\.sock"):
        agent().run(None)
