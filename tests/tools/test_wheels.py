"""Wheels for installing without an index: pinned, for Debian's Python, fetched once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tools import wheels
from tools.steps import SetupError
from tools.wheels import debian_wheels


def test_they_are_checked_meant_for_debian_and_fetched_once_for_each_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[Sequence[str]] = []

    def run_step(title: str, argv: Sequence[str]) -> None:
        commands.append(argv)
        (Path(argv[argv.index("--dest") + 1]) / "tinypack-1.0-py3-none-any.whl").touch()

    requirements = tmp_path / "runtime.txt"
    requirements.write_text("tinypack==1.0 --hash=sha256:00\n")
    monkeypatch.setattr(wheels, "run_step", run_step)
    monkeypatch.setattr(wheels, "WHEELS", tmp_path / "wheels")
    monkeypatch.setattr(wheels, "REQUIREMENTS", (requirements,))
    filled = debian_wheels("arm64")
    assert [path.name for path in filled.iterdir()] == ["tinypack-1.0-py3-none-any.whl"]
    assert debian_wheels("arm64") == filled
    (command,) = commands
    assert {"--require-hashes", "--no-deps", "--only-binary=:all:"} < set(command)
    assert command[command.index("--python-version") + 1] == "3.11"
    assert "manylinux_2_36_aarch64" in command

    requirements.write_text("tinypack==1.1 --hash=sha256:00\n")
    assert debian_wheels("arm64") != filled
    assert not filled.exists()


@pytest.mark.timed
def test_two_that_ask_together_get_the_same_wheels_fetched_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2, timeout=60)
    commands: list[Sequence[str]] = []

    def run_step(title: str, argv: Sequence[str]) -> None:
        commands.append(argv)
        both.wait()  # the other asks while these are on their way
        (Path(argv[argv.index("--dest") + 1]) / "first.whl").touch()

    def second() -> Path:
        both.wait()
        return debian_wheels("arm64")

    monkeypatch.setattr(wheels, "run_step", run_step)
    monkeypatch.setattr(wheels, "WHEELS", tmp_path / "wheels")
    with ThreadPoolExecutor(2) as pool:
        folders = [
            asked.result(timeout=60)
            for asked in (pool.submit(debian_wheels, "arm64"), pool.submit(second))
        ]
    assert folders[0] == folders[1]
    assert [path.name for path in folders[0].iterdir()] == ["first.whl"]
    assert len(commands) == 1


def test_what_is_cut_off_is_not_taken_for_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_step(title: str, argv: Sequence[str]) -> None:
        (Path(argv[argv.index("--dest") + 1]) / "first.whl").touch()
        raise SetupError("the index is gone")

    monkeypatch.setattr(wheels, "run_step", run_step)
    monkeypatch.setattr(wheels, "WHEELS", tmp_path / "wheels")
    for _ in range(2):
        with pytest.raises(SetupError, match="the index is gone"):
            debian_wheels("amd64")
