"""`dlsched run`: which settings reach the daemon."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from unittest.mock import Mock

import pytest

import dlsched.daemon
from dlsched.config.settings import Settings
from dlsched.model.errors import CannotStart
from tests.cli.conftest import Program


class FakeDaemon(ModuleType):
    """The module with the one function that the command calls."""

    run: Mock

    @property
    def settings(self) -> list[Settings]:
        """Those of each run."""
        return [call.args[0] for call in self.run.call_args_list]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDaemon:
    """Stands where dlsched.daemon.main would; notes how it is run, and ends."""
    fake = FakeDaemon("dlsched.daemon.main")
    fake.run = Mock(return_value=0)
    monkeypatch.setitem(sys.modules, "dlsched.daemon.main", fake)
    monkeypatch.setattr(dlsched.daemon, "main", fake, raising=False)
    return fake


def test_flag_before_environment_before_file_before_default(
    program: Program, fake: FakeDaemon, tmp_path: Path
) -> None:
    file = tmp_path / "dlsched.yaml"
    file.write_text("policy: fair\nperiod: 2s\ninstance: filed\nwindow: 60s\n")
    words = ("run", "-c", str(file), "--policy", "none", "--dry-run", "--log-format", "json")
    result = program(*words, env={"DLSCHED_POLICY": "dqoes", "DLSCHED_PERIOD": "500ms"})
    assert result.exit_code == 0, result.stderr
    (settings,) = fake.settings
    assert (settings.policy, settings.period_s) == ("none", 0.5)
    assert (settings.instance, settings.window_s) == ("filed", 60.0)
    assert (settings.max_jobs, settings.log.format) == (64, "json")
    assert fake.run.call_args.kwargs["dry_run"] is True


def test_a_reload_reads_the_file_again_under_the_same_flags(
    program: Program, fake: FakeDaemon, tmp_path: Path
) -> None:
    file = tmp_path / "dlsched.yaml"
    file.write_text("period: 2s\n")
    assert program("run", "-c", str(file), "--policy", "none").exit_code == 0
    file.write_text("period: 3s\npolicy: fair\n")
    settings = fake.run.call_args.kwargs["reload"]()
    assert (settings.period_s, settings.policy) == (3.0, "none")


def test_the_daemon_knows_which_file_its_settings_are_from(
    program: Program, fake: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, default = tmp_path / "mine.yaml", tmp_path / "absent.yaml"
    file.write_text("period: 2s\n")
    assert program("run").exit_code == 0
    assert program("run", "-c", str(file)).exit_code == 0
    default.write_text("period: 3s\n")
    assert program("run").exit_code == 0
    files = [call.kwargs["settings_file"] for call in fake.run.call_args_list]
    assert files == [None, file, default]


def test_what_keeps_it_from_starting_is_one_line_each(program: Program, fake: FakeDaemon) -> None:
    problems = ("/var/lib/x cannot be written: run as root", "no engine: start it")
    fake.run.side_effect = CannotStart(problems)
    result = program("run")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "error: /var/lib/x cannot be written: run as root",
        "error: no engine: start it",
    ]


def test_the_daemons_code_is_the_programs(program: Program, fake: FakeDaemon) -> None:
    fake.run.return_value = 7
    assert program("run").exit_code == 7


def test_a_shadow_comes_by_flag_with_its_parameters(
    program: Program, fake: FakeDaemon, tmp_path: Path
) -> None:
    file = tmp_path / "dlsched.yaml"
    file.write_text("shadow: fair\nshadow_options: {gain: 0.1}\n")
    words = ("run", "-c", str(file))
    for more in ((), ("--shadow", "dqoes?backoff=1")):
        assert program(*words, *more).exit_code == 0
    filed, flagged = fake.settings
    assert (filed.shadow, filed.shadow_options) == ("fair", {"gain": 0.1})
    assert flagged.shadow == "dqoes?backoff=1"
    assert program("run", "--shadow", "no name at all").exit_code == 2
