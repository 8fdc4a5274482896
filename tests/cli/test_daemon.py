"""`dlsched run`: which settings reach the daemon."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import dlsched.daemon
from dlsched.config.settings import Settings
from dlsched.model.errors import CannotStart
from tests.cli.conftest import Program


class FakeDaemon(ModuleType):
    """Stands where dlsched.daemon.main would; ends at once."""

    def __init__(self) -> None:
        super().__init__("dlsched.daemon.main")
        self.runs: list[tuple[Settings, bool]] = []
        self.files: list[Path | None] = []
        self.reload: Callable[[], Settings] | None = None

    def run(
        self, settings: Settings, *, dry_run: bool, reload: Any, settings_file: Path | None
    ) -> int:
        self.runs.append((settings, dry_run))
        self.reload = reload
        self.files.append(settings_file)
        return 0


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDaemon:
    fake = FakeDaemon()
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
    ((settings, dry_run),) = fake.runs
    assert (settings.policy, settings.period_s) == ("none", 0.5)
    assert (settings.instance, settings.window_s) == ("filed", 60.0)
    assert (settings.max_jobs, settings.log.format, dry_run) == (64, "json", True)


def test_a_reload_reads_the_file_again_under_the_same_flags(
    program: Program, fake: FakeDaemon, tmp_path: Path
) -> None:
    file = tmp_path / "dlsched.yaml"
    file.write_text("period: 2s\n")
    assert program("run", "-c", str(file), "--policy", "none").exit_code == 0
    file.write_text("period: 3s\npolicy: fair\n")
    assert fake.reload is not None
    settings = fake.reload()
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
    assert fake.files == [None, file, default]


def test_what_keeps_it_from_starting_is_one_line_each(
    program: Program, fake: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: object, **__: object) -> int:
        raise CannotStart(("/var/lib/x cannot be written: run as root", "no engine: start it"))

    monkeypatch.setattr(fake, "run", run)
    result = program("run")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "error: /var/lib/x cannot be written: run as root",
        "error: no engine: start it",
    ]


def test_wrong_settings_are_all_told_and_2(
    program: Program, fake: FakeDaemon, tmp_path: Path
) -> None:
    file = tmp_path / "dlsched.yaml"
    file.write_text("period: 0s\nnonsense: 1\n")
    result = program("run", "-c", str(file), "--instance", "Not Valid")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 3
    assert fake.runs == []


def test_the_daemons_code_is_the_programs(
    program: Program, fake: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake, "run", lambda *_, **__: 7)
    assert program("run").exit_code == 7


def test_a_shadow_comes_by_flag_with_its_parameters(
    program: Program, fake: FakeDaemon, tmp_path: Path
) -> None:
    file = tmp_path / "dlsched.yaml"
    file.write_text("shadow: fair\nshadow_options: {gain: 0.1}\n")
    words = ("run", "-c", str(file))
    for more in ((), ("--shadow", "dqoes?backoff=1")):
        assert program(*words, *more).exit_code == 0
    (filed, _), (flagged, _) = fake.runs
    assert (filed.shadow, filed.shadow_options) == ("fair", {"gain": 0.1})
    assert flagged.shadow == "dqoes?backoff=1"
    assert program("run", "--shadow", "no name at all").exit_code == 2
