"""The agent without an engine: what a reload changes, and what a dry run and a stop refuse."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from dlsched.cluster.status_file import write_status
from dlsched.config.settings import DeliverHook, Gpus, Reserve, Settings
from dlsched.daemon import main
from dlsched.daemon.agent import Agent
from dlsched.daemon.wiring import cpu_text, ledger_options, policies_text, reloaded
from dlsched.model.cycle import CycleReport
from dlsched.model.errors import AlreadyRunning, EngineUnavailable, NotOurs, SettingsError
from dlsched.model.state import Delivered, Reached, Tiers
from dlsched.runtime.allotment import IN_FOLDER
from dlsched.runtime.cgroup.enclosing import Around, Surroundings
from dlsched.simulation.clock import VirtualClock
from dlsched.store.jobs import delivered_records, ended_records, lock_state_dir
from dlsched.store.journal.schema import DRY_RUN_JOURNAL_NAME
from tests.cluster_status import example
from tests.waiting import until

pytestmark = pytest.mark.timed

JOB = "name: alpha\nimage: model:1\n"
Make = Callable[..., Agent]


@pytest.fixture
def agent(settings: Settings) -> Iterator[Make]:
    made: list[Agent] = []

    def make(dry_run: bool = False) -> Agent:
        made.append(Agent(settings, dry_run=dry_run))
        return made[-1]

    yield make
    for one in made:
        one.close()


class Undisturbed(VirtualClock):
    """A sleep that nobody ends: the engine's listener wakes the loop when it fails to connect."""

    def wake(self) -> None:
        """Nothing."""


class Disturbed(Undisturbed):
    """Something is done at some times."""

    def __init__(self) -> None:
        super().__init__()
        self.does: dict[float, Callable[[], object]] = {}

    def sleep_until(self, until_s: float) -> bool:
        for at_s in [at_s for at_s in self.does if at_s < until_s]:
            self.does.pop(at_s)()
        return super().sleep_until(until_s)


def cycles(agent: Agent, holds: Callable[[], bool] = lambda: True) -> CycleReport:
    """Cycle until it holds; files need to stand still, which is the clock's own time. Returns the
    last cycle's report."""

    def cycled() -> CycleReport | None:
        agent._clock.sleep_until(agent._clock.now_s() + 0.02)
        report = agent._controller.run_once()
        return report if holds() else None

    report = until(cycled, "so many cycles")
    assert report is not None
    return report


def knows_alpha(agent: Agent) -> Callable[[], bool]:
    return lambda: any(job.name == "alpha" for job in agent._jobs())


def is_delivered(agent: Agent) -> Callable[[], bool]:
    return lambda: any(job.tiers == DELIVERED.tiers for job in agent._jobs())


def wrong() -> Settings:
    """What reads settings that are wrong."""
    raise SettingsError(())


@pytest.fixture
def released(settings: Settings) -> Path:
    """What an agent that was asked to release has left."""
    settings.state_dir.mkdir()
    (settings.state_dir / "released").write_text("")
    return settings.state_dir / "released"


def test_a_reload_takes_what_it_can_and_keeps_what_only_a_start_can_change(
    agent: Make, settings: Settings, tmp_path: Path
) -> None:
    one = agent()
    (tmp_path / "elsewhere").mkdir()
    moved = replace(
        settings,
        policy="fair",
        capacity=0.5,
        watch=tmp_path / "elsewhere",
        state_dir=tmp_path / "other",
    )
    one._reload(lambda: moved)
    about = one.source.about()
    assert (about["policy"], about["watch"]) == ("fair", str(settings.watch))
    report = cycles(one)
    assert report.policy == "fair"
    assert report.snapshot.node.capacity_cores == 0.5
    assert list(one.source.changes("alpha", 5)) == []  # asked of the journal that is in use
    assert one.source.effects("alpha", 5) == {}


def test_the_default_keeps_something_for_the_host_and_settings_win(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Surroundings, "read", lambda *_: Around(cpus=frozenset(range(16))))
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    line = "16 cores; 14.4 for ceilings, 1.6 kept for the host (setting reserve)"
    assert cpu_text(settings) == line
    assert "; 16 for ceilings" in cpu_text(replace(settings, reserve=Reserve(0.0)))
    assert "; 13 for ceilings" in cpu_text(replace(settings, reserve=Reserve(3.0)))
    # Nothing is kept of a number that the operator has chosen, unless that is set, too.
    assert ledger_options(replace(settings, capacity=8.0)).reserve_cores == 0.0
    assert "; 7 for" in cpu_text(replace(settings, capacity=8.0, reserve=Reserve(1.0)))


def test_a_reload_takes_up_whether_anybody_goes_to_the_idle_class(settings: Settings) -> None:
    after, kept = reloaded(settings, replace(settings, idle_class=False))
    assert kept == ()
    assert (ledger_options(settings).idle_class, ledger_options(after).idle_class) == (True, False)


def test_a_reload_takes_up_how_gpus_are_chosen_but_not_how_they_reach_containers(
    agent: Make, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    one = agent()
    gpus = Gpus(injection="nodes", device_folder=Path("/srv"), prefer="pack", move=False)
    one._reload(lambda: replace(settings, gpus=gpus))
    assert one._settings.gpus == Gpus(prefer="pack", move=False)
    assert [one.getMessage() for one in caplog.records if one.levelname == "WARNING"] == [
        f"the setting gpus.{name} was changed: restart dlsched to apply it"
        for name in ("injection", "device_folder")
    ]


def test_a_start_is_on_the_disk_until_the_job_runs_again(agent: Make, settings: Settings) -> None:
    one = agent()
    (settings.watch / "alpha.yaml").write_text(JOB)
    (view,) = cycles(one, knows_alpha(one)).snapshot.jobs
    one.source.stop("alpha")
    assert ended_records(settings.state_dir).all()["alpha"].digest == view.spec.digest
    one.source.start("alpha")
    assert ended_records(settings.state_dir).all()["alpha"].digest == ""
    one._controller.run_once()
    assert ended_records(settings.state_dir).all() == {}, (
        "there is no container to be removed first"
    )


def test_a_dry_run_refuses_every_command(agent: Make, settings: Settings) -> None:
    one = agent(dry_run=True)
    (settings.watch / "alpha.yaml").write_text(JOB)
    cycles(one, knows_alpha(one))
    source = one.source
    for command in (
        partial(source.stop, "alpha"),
        partial(source.start, "alpha"),
        partial(source.adopt, "alpha", {}),
        partial(source.drop, "alpha"),
        source.release,
        source.resume,
    ):
        with pytest.raises(NotOurs, match="--dry-run"):
            command()
    assert tree(settings.state_dir) == {}


def tree(folder: Path) -> dict[str, tuple[int, int, bytes | None]]:
    """All but a dry run's journal in it: mode, time of the last change, and content."""
    return {
        str(path.relative_to(folder.parent)): (
            (stat := path.lstat()).st_mode,
            stat.st_mtime_ns,
            path.read_bytes() if path.is_file() else None,
        )
        for path in folder.rglob("*")
        if not path.name.startswith(DRY_RUN_JOURNAL_NAME)
    }


def rehearse(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A dry run of some cycles, as the command makes it; returns the alarms."""
    alarms: list[str] = []

    def run(self: Agent, _: object) -> None:
        alarms.extend(cycles(self, knows_alpha(self)).alarms)
        assert self.journal.problem() is None

    monkeypatch.setattr(Agent, "run", run)
    monkeypatch.setattr(main.logs, "set_up", lambda *_: None)
    monkeypatch.setattr(main.gc, "set_threshold", lambda _: None)
    (settings.watch / "alpha.yaml").write_text(JOB)
    assert main.run(settings, dry_run=True) == 0
    return alarms


def test_a_dry_run_leaves_the_state_directory_byte_for_byte(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = settings.state_dir
    with lock_state_dir(state, settings.instance):
        Agent(settings, dry_run=False).close()  # an agent has been here
    delivered_records(state).record(DELIVERED)
    broken = [state / kind / "beta.json" for kind in ("ended", "delivered", "claims")]
    broken.append(state / "originals" / f"{'a' * 64}.json")
    (state / IN_FOLDER / "beta").mkdir(parents=True)
    unfinished = [path.with_name(".beta.json.x.tmp") for path in broken]
    unfinished += [state / ".released.x.tmp", state / IN_FOLDER / "beta" / ".allotment.json.x.tmp"]
    for path in (*broken, *unfinished):
        path.write_text("{")
    before = tree(state)
    alarms = rehearse(settings, monkeypatch)
    assert tree(state) == before
    for path in broken:
        (text,) = [alarm for alarm in alarms if alarm.startswith(str(path))]
        assert f"{path} is not a valid record: left there; " in text


def test_a_dry_run_makes_no_state_directory(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    rehearse(settings, monkeypatch)
    assert tree(settings.state_dir) == {}


def test_a_dry_run_waits_for_the_agent_that_runs_and_another_agent_for_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, instance = settings.state_dir, settings.instance
    with lock_state_dir(state, instance), pytest.raises(AlreadyRunning):
        rehearse(settings, monkeypatch)
    with lock_state_dir(state, instance, read_only=True), pytest.raises(AlreadyRunning):
        lock_state_dir(state, instance)


DELIVERED = Delivered(
    "alpha", "id", "accuracy", 0.9, 0.97, Tiers(Reached(5.0, 0.93, 500)), wall_time="then"
)
TRAINING = JOB + "target: {metric: accuracy, deliver: 0.9, finish: 0.97}\n"


def test_a_dry_run_keeps_no_word_and_runs_no_command(
    agent: Make, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivered_records(settings.state_dir).record(DELIVERED)
    hooked = replace(settings, deliver_hook=DeliverHook(("/bin/false",)))
    (settings.watch / "alpha.yaml").write_text(TRAINING)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    one = Agent(hooked, dry_run=True)
    hooks = cycles(one, is_delivered(one)).hooks
    one.close()
    assert hooks == ()
    assert delivered_records(settings.state_dir).of("alpha") == DELIVERED


def test_a_command_that_cannot_change_its_user_ends_the_start_and_leaves_a_reload(
    agent: Make, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooked = replace(settings, policy="fair", deliver_hook=DeliverHook(("/bin/true",)))
    one = agent()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SettingsError, match="only root can run the command as user nobody"):
        Agent(hooked, dry_run=False)
    one._reload(lambda: hooked)
    assert one.source.about()["policy"] == "none"


def test_a_parent_that_ignores_its_children_hides_no_commands_end(agent: Make) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pytest.raises(EngineUnavailable):
            agent().run(None)
        assert signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_reload_sets_changes_and_removes_the_shadow(agent: Make, settings: Settings) -> None:
    one = agent()
    for shadow in ("fair", "dqoes?gain=0.2", None):
        one._reload(lambda shadow=shadow: replace(settings, shadow=shadow))
        assert one.source.about()["shadow"] == shadow
        seen = one._controller.run_once().shadow
        assert (seen and seen.policy) == shadow


def test_a_reload_reads_presets_again_and_keeps_them_where_one_is_broken(
    agent: Make, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.presets.mkdir()
    file = settings.presets / "own.yaml"
    file.write_text("asr: {port: 9000}")
    (settings.watch / "alpha.yaml").write_text(JOB + "metrics: asr\n")
    one = agent()

    def reads(port: int) -> bool:
        ports = [source.ports for job in one._jobs() for source in job.spec.sources]
        return ports == [(port,)]

    cycles(one, lambda: reads(9000))
    file.write_text("asr: {port: 9001}")
    one._reload(lambda: settings)
    cycles(one, lambda: reads(9001))
    file.write_text("asr: {port: 0}\nbeta: {port: -1}")
    capsys.readouterr()
    one._reload(lambda: replace(settings, policy="fair"))
    assert one.source.about()["policy"] == "fair"
    line, _ = capsys.readouterr().err.splitlines()
    assert (
        f"the old presets stay, as the new ones are refused: {file}:1:13: asr.port: '0' is not"
        in line
    )
    assert line.endswith(" (and 1 more)")
    cycles(one, lambda: reads(9001))


def test_a_shadow_remembers_over_a_restart(agent: Make, settings: Settings) -> None:
    beside = replace(settings, shadow="tradl", shadow_options={"interval_s": 5.0})
    first = Agent(beside, dry_run=False)
    decided = first._controller.run_once().shadow
    first.close()
    assert decided is not None
    assert decided.decision is not None
    second = Agent(beside, dry_run=False)
    second.close()
    kept = second._controller._shadow
    assert kept is not None
    assert kept.decider._memory == decided.decision.memory


def test_options_of_another_policy_are_named_in_the_log(settings: Settings) -> None:
    both = replace(settings, policy_options={"gain": 0.2}, shadow="fair", shadow_options={})
    assert (
        policies_text(both)
        == "policy none (policy_options gain are not used: they are another policy's), shadow fair"
    )


def test_the_watchdog_is_fed_through_the_longest_wait_and_not_by_anybody_else(
    agent: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.setblocking(False)
        one = agent()
        one._clock = Undisturbed()  # type: ignore[assignment]
        one._controller.run_once()
        with pytest.raises(BlockingIOError):
            systemd.recv(100)
        one._sleep(0.0, 60.0)
        assert [systemd.recv(100) for _ in range(6)] == [b"WATCHDOG=1"] * 6
        with pytest.raises(BlockingIOError):
            systemd.recv(100)


def test_a_changed_job_file_ends_the_longest_wait(agent: Make, settings: Settings) -> None:
    one, clock = agent(), Disturbed()
    one._clock = clock  # type: ignore[assignment]
    one._controller.run_once()
    clock.does[7.5] = lambda: (settings.watch / "alpha.yaml").write_text(JOB)
    one._sleep(0.0, 60.0)
    assert clock.now_s() == 8.0
    one._sleep(8.0, 60.0)
    assert clock.now_s() == 60.0, "once for each change"


def test_a_dry_run_ends_no_release(agent: Make, settings: Settings, released: Path) -> None:
    agent(dry_run=True)._reload(lambda: settings)
    assert released.exists()


def test_a_release_holds_everything_until_a_reload(agent: Make, released: Path) -> None:
    one = agent()
    one._see_to_release()
    alarm = (
        "all limits were given back by `dlsched release`: nothing is changed until `dlsched "
        "release --resume` or SIGHUP"
    )
    assert alarm in one._controller.run_once().alarms
    assert one._runtime.held is not None
    one._reload(wrong)
    one._see_to_release()
    assert alarm not in one._controller.run_once().alarms
    assert one._runtime.held is None
    assert not released.exists()


def test_the_agent_reads_what_the_controller_beside_it_reports(
    agent: Make, settings: Settings
) -> None:
    one = agent()
    assert one.source.cluster() is None
    write_status(settings.run_dir, status := example())
    assert one.source.cluster() == status


@pytest.mark.parametrize("part", ["_release.close", "_api.stop", "_deliveries.close"])
def test_limits_are_given_back_whatever_else_fails(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    one, (owner, method) = Agent(settings, dry_run=False), part.split(".")
    real = getattr(getattr(one, owner), method)
    given_back: list[str] = []

    def broken() -> None:
        real()
        raise RuntimeError("cannot join thread before it is started")

    monkeypatch.setattr(getattr(one, owner), method, broken)
    monkeypatch.setattr(one, "_give_back", lambda: given_back.append("all"))
    one.close()
    assert given_back == ["all"]
