"""Debian packages and wheels: what is installed, by whom, and once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tools import debian, wheels
from tools.steps import SetupError
from tools.wheels import debian_wheels


def test_whoever_cannot_install_is_told_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian, "installable", lambda: False)
    with pytest.raises(SetupError, match=r"the engine needs: apt-get install .* one two"):
        debian.install(["one", "two"], "the engine")


def test_root_installs_after_renewing_the_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(debian, "installable", lambda: True)
    monkeypatch.setattr(debian, "run_step", lambda title, argv, env: ran.append(argv))
    debian.install(["one", "two"], "the engine")
    assert [argv[-1] for argv in ran] == ["update", "two"]
    assert "--no-install-recommends" in ran[1]


def test_a_package_is_unpacked_once_after_new_lists_where_they_are_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def run_step(title: str, argv: Sequence[str], cwd: Path | None = None) -> None:
        ran.append(argv[0] if argv[0] == "dpkg" else argv[-2 if argv[-1] == "one" else -1])
        if ran == ["download"]:
            raise SetupError("404 Not Found")
        if cwd is not None:
            (cwd / "one_1.deb").touch()
        if argv[0] == "dpkg":
            (Path(argv[-1]) / "usr").mkdir(parents=True)

    monkeypatch.setattr(debian, "run_step", run_step)
    monkeypatch.setattr(debian, "installable", lambda: True)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    folder = tmp_path / "build" / "one"
    debian.unpack("one", folder, "the tests")
    debian.unpack("one", folder, "the tests")
    assert ran == ["download", "update", "download", "dpkg"]
    assert [path.name for path in folder.parent.iterdir()] == ["one"]
    assert (folder / "usr").is_dir()


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
