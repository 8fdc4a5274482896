"""Debian packages: installed by root, named for everybody else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tools import debian
from tools.steps import SetupError


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


def test_a_debian_that_is_cut_off_is_not_taken_for_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Sequence[str]] = []

    def run_step(title: str, argv: Sequence[str]) -> None:
        ran.append(argv)
        if argv[0] == "tar":
            raise SetupError("no space left on device")

    monkeypatch.setattr(debian, "run_step", run_step)
    monkeypatch.setattr("shutil.which", lambda name: f"/sbin/{name}")
    finished: list[Path] = []
    archive = tmp_path / "images" / "host.tar"
    with pytest.raises(SetupError, match="no space"):
        debian.bootstrap_archive(archive, "host", ["systemd", "make"], finished.append)
    assert "--include=systemd,make" in ran[0]
    assert finished == [Path(ran[0][-1])]
    assert list(archive.parent.iterdir()) == []


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


def test_where_no_package_can_be_unpacked_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(SetupError, match="the tests needs apt-get and dpkg"):
        debian.unpack("one", tmp_path / "one", "the tests")
