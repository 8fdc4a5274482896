"""Which Python is taken, and when an environment is made anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import debian, environment
from tools.environment import (
    first_python,
    prepare,
    python_for_environments,
)
from tools.steps import SetupError


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An otherwise empty PATH to put commands into."""
    folder = tmp_path / "commands"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def add_command(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    (folder / name).chmod(0o755)


@pytest.mark.process
def test_the_first_python_that_is_new_enough_and_works_is_taken(commands: Path) -> None:
    assert first_python() is None
    add_command(commands, "python3", "exit 1")
    assert first_python() is None
    add_command(commands, "python3.13", 'echo /at/python3.13; test "$1" = -c')
    add_command(commands, "python3.11", "echo 'command not found' >&2; exit 127")
    assert first_python() == "/at/python3.13"


def test_without_python_and_root_one_line_says_what_to_install(
    commands: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debian, "installable", lambda: False)
    with pytest.raises(SetupError, match=r"install python3 .*python3-venv"):
        python_for_environments()


@pytest.fixture
def steps_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that prepare would run, in a project folder of its own."""
    ran: list[list[str]] = []

    def pretend(_title: str, argv: list[str]) -> None:
        ran.append(argv)
        if "venv" in argv:
            (Path(argv[-1]) / "bin").mkdir(parents=True, exist_ok=True)
            (Path(argv[-1]) / "bin" / "python").touch()

    monkeypatch.setattr(environment, "run_step", pretend)
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    monkeypatch.setattr(environment, "BUILD", tmp_path / ".build")
    (tmp_path / ".build").mkdir()
    (tmp_path / "pyproject.toml").write_text("a", encoding="utf-8")
    (tmp_path / "dev.txt").write_text("package==1\n", encoding="utf-8")
    return ran


@pytest.mark.process
@pytest.mark.parametrize(
    ("changed", "steps"), [("pyproject.toml", 1), ("dev.txt", 3), (".venv/bin/python", 3)]
)
def test_an_environment_is_made_once_and_again_after_a_change(
    tmp_path: Path, steps_run: list[list[str]], changed: str, steps: int
) -> None:
    def prepare_here() -> int:
        steps_run.clear()
        prepare(tmp_path / ".venv", tmp_path / "dev.txt", install_project=True)
        return len(steps_run)

    assert prepare_here() == 3
    assert prepare_here() == 0
    if changed.endswith("python"):
        (tmp_path / changed).unlink()
    else:
        (tmp_path / changed).write_text("another", encoding="utf-8")
    assert prepare_here() == steps
    assert prepare_here() == 0


def test_linked_environment_is_never_cleared(steps_run: list[list[str]], tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / ".venv").symlink_to(tmp_path / "shared")
    with pytest.raises(SetupError, match=r"\.venv is a link, .* remove it"):
        prepare(tmp_path / ".venv", tmp_path / "dev.txt", install_project=True)
    assert not steps_run


@pytest.mark.process
def test_a_failed_installation_is_done_again(
    tmp_path: Path, steps_run: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(title: str, argv: list[str]) -> None:
        raise SetupError(title)

    with monkeypatch.context() as failing:
        failing.setattr(environment, "run_step", fail)
        with pytest.raises(SetupError):
            prepare(tmp_path / ".venv", tmp_path / "dev.txt", install_project=False)
    prepare(tmp_path / ".venv", tmp_path / "dev.txt", install_project=False)
    assert len(steps_run) == 2
