"""make install and make uninstall, into a folder: what goes where, and what is left alone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tools import install
from tools.install import LAUNCHER, Layout


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, Path]]:
    """An installation without the minute of filling its environment; returns what was filled."""
    filled: list[tuple[Path, Path]] = []

    def fill(fresh: Path, library: Path, wheels: Path | None) -> None:
        filled.append((fresh, library))
        (fresh / "bin").mkdir(parents=True)
        (fresh / "bin" / "dlsched").write_text(f"installed {len(filled)}")

    monkeypatch.setattr(install, "fill", fill)
    monkeypatch.setattr(install, "MAN", tmp_path / "man")
    return filled


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}


def test_everything_lies_under_destdir_and_names_the_host(
    tmp_path: Path, quick: list[tuple[Path, Path]]
) -> None:
    root = tmp_path / "root"
    assert install.main(["--prefix", "/usr", "--destdir", str(root), "install"]) == 0
    assert files(root) == {
        "etc/dlsched/dlsched.yaml",
        "usr/bin/dlsched",
        "usr/lib/dlsched/bin/dlsched",
        "usr/lib/systemd/system/dlsched-cluster.service",
        "usr/lib/systemd/system/dlsched.service",
        "usr/lib/sysusers.d/dlsched.conf",
        "usr/lib/tmpfiles.d/dlsched.conf",
        "usr/share/bash-completion/completions/dlsched",
        "usr/share/fish/vendor_completions.d/dlsched.fish",
        "usr/share/zsh/site-functions/_dlsched",
    }
    assert (root / "etc/dlsched/jobs.d").is_dir()
    assert quick == [(root / "usr/lib/.dlsched-new", Path("/usr/lib/dlsched"))]
    assert (root / "usr/bin/dlsched").read_text() == "installed 1"  # a link that holds anywhere
    unit = (root / "usr/lib/systemd/system/dlsched.service").read_text()
    assert "ExecStart=/usr/bin/dlsched run\n" in unit
    assert "/usr/local" not in unit
    unit = (root / "usr/lib/systemd/system/dlsched-cluster.service").read_text()
    assert "ExecStart=/usr/bin/dlsched cluster run\n" in unit
    assert "/usr/local" not in unit


def test_settings_are_never_overwritten_and_the_rest_is_renewed(
    tmp_path: Path, quick: list[tuple[Path, Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--destdir", str(tmp_path), "install"]
    assert install.main(command) == 0
    settings = tmp_path / "etc/dlsched/dlsched.yaml"
    settings.write_text("policy: fair\n")
    assert install.main(command) == 0
    assert settings.read_text() == "policy: fair\n"
    assert f"left as it is: {settings}" in capsys.readouterr().err
    assert (tmp_path / "usr/local/bin/dlsched").read_text() == "installed 2"
    assert [path.name for path in (tmp_path / "usr/local/lib").glob("*dlsched*")] == ["dlsched"]


def test_uninstall_leaves_settings_and_state_unless_purged(
    tmp_path: Path, quick: list[tuple[Path, Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    root = ["--destdir", str(tmp_path)]
    assert install.main([*root, "install"]) == 0
    (tmp_path / "var/lib/dlsched").mkdir(parents=True)
    (tmp_path / "var/lib/dlsched/journal.db").touch()
    assert install.main([*root, "uninstall"]) == 0
    assert files(tmp_path) == {"etc/dlsched/dlsched.yaml", "var/lib/dlsched/journal.db"}
    assert "PURGE=1 removes" in capsys.readouterr().err
    assert install.main([*root, "uninstall", "--purge"]) == 0
    assert files(tmp_path) == set()


@pytest.mark.process
def test_nothing_is_removed_where_limits_cannot_be_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(install, "SYSTEMD_RUNS", tmp_path / "no systemd")
    monkeypatch.setattr(install, "SETTINGS", tmp_path / "etc")
    monkeypatch.setattr(install, "STATE", tmp_path / "state")
    layout = Layout(tmp_path / "prefix", None)
    program = layout.library / "bin" / "dlsched"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho the engine does not answer; exit 3\n")
    program.chmod(0o755)
    install.link(layout.command, install.TARGET)
    root = ["--prefix", str(layout.prefix)]
    assert install.main([*root, "uninstall"]) == 1
    told = capsys.readouterr().err
    assert "the engine does not answer" in told
    assert told.splitlines()[-1].startswith("error: giving limits back: ")
    assert layout.command.exists()
    assert install.main([*root, "uninstall", "--force"]) == 0
    assert not layout.command.exists()


@pytest.mark.parametrize("action", ["install", "uninstall"])
@pytest.mark.parametrize("place", ["lib/dlsched/theirs", "bin/dlsched"])
def test_what_is_not_ours_is_neither_replaced_nor_removed(
    tmp_path: Path,
    quick: list[tuple[Path, Path]],
    capsys: pytest.CaptureFixture[str],
    action: str,
    place: str,
) -> None:
    theirs = tmp_path / "usr/local" / place
    theirs.parent.mkdir(parents=True)
    theirs.write_text("somebody else's")
    assert install.main(["--destdir", str(tmp_path), action]) == 1
    assert "is not of dlsched's making: move it away" in capsys.readouterr().err
    assert files(tmp_path) == {f"usr/local/{place}"}


def test_a_masked_unit_is_left_alone_and_so_is_what_the_mask_leads_to(
    tmp_path: Path, quick: list[tuple[Path, Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    null = tmp_path / "null"
    null.write_text("")
    null.chmod(0o666)
    unit = tmp_path / "etc/systemd/system/dlsched.service"
    unit.parent.mkdir(parents=True)
    unit.symlink_to(null)
    root = ["--prefix", "/opt/x", "--destdir", str(tmp_path)]
    for action in ("install", "uninstall"):
        assert install.main([*root, action]) == 1
        assert f"{unit} is a link (is it masked?)" in capsys.readouterr().err
    assert (null.read_text(), null.stat().st_mode & 0o777) == ("", 0o666)
    assert unit.is_symlink()


@pytest.mark.parametrize("fails", ["filling it", "taking its place"])
def test_an_installation_that_fails_leaves_the_old_one(
    tmp_path: Path,
    quick: list[tuple[Path, Path]],
    monkeypatch: pytest.MonkeyPatch,
    fails: str,
) -> None:
    command = ["--destdir", str(tmp_path), "install"]
    assert install.main(command) == 0
    before, rename = files(tmp_path), Path.rename

    def fill(fresh: Path, library: Path, wheels: Path | None) -> None:
        fresh.mkdir()
        raise install.SetupError("no package index answers")

    def take_its_place(path: Path, target: Path) -> Path:
        if path.name == ".dlsched-new":
            raise OSError(5, "Input/output error", str(path))
        return rename(path, target)

    if fails == "filling it":
        monkeypatch.setattr(install, "fill", fill)
    else:
        monkeypatch.setattr(Path, "rename", take_its_place)
    assert install.main(command) == 1
    assert files(tmp_path) == before
    assert (tmp_path / "usr/local/bin/dlsched").read_text() == "installed 1"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--prefix", "opt", "install"], "error: PREFIX=opt: not an absolute path"),
        (["install", "--wheels", "/nowhere"], "error: WHEELS=/nowhere: no wheels there"),
    ],
)
def test_what_cannot_be_meant_is_one_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert install.main(words) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(said)


@pytest.mark.process
def test_the_command_does_not_look_into_its_own_folder_nor_roots_packages(tmp_path: Path) -> None:
    launcher = tmp_path / "dlsched"
    launcher.write_text(LAUNCHER.format(python=os.path.realpath("/proc/self/exe")))
    launcher.chmod(0o755)
    (tmp_path / "dlsched.py").write_text("raise SystemExit('taken from the wrong place')")
    ran = subprocess.run([launcher], capture_output=True, text=True, check=False)
    assert "taken from the wrong place" not in ran.stderr
