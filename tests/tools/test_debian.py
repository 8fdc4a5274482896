"""Debian packages: installed by root, named for everybody else."""

from __future__ import annotations

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
