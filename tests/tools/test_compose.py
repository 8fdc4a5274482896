"""Which Compose is used, and what is said where none can be had."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

import pytest

from tools import debian
from tools.compose import PACKAGE, ensure_compose
from tools.steps import SetupError


class Machine:
    """What programs it has, and whether its docker knows `docker compose`."""

    def __init__(self, *programs: str, plugin: bool = False) -> None:
        self.programs, self.plugin = {*programs}, plugin
        self.installed: list[str] = []

    def which(self, program: str) -> str | None:
        return f"/usr/bin/{program}" if program in self.programs else None

    def run(self, words: Sequence[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        assert list(words) == ["docker", "compose", "version"]
        return subprocess.CompletedProcess(words, 0 if self.plugin else 1)

    def install(self, packages: Sequence[str], purpose: str) -> None:
        if "apt-get" not in self.programs:
            raise SetupError(f"{purpose} needs {packages}")
        self.installed += packages
        self.programs |= {*packages}


def found(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(shutil, "which", machine.which)
    monkeypatch.setattr(subprocess, "run", machine.run)
    monkeypatch.setattr(debian, "install", machine.install)
    return ensure_compose()


@pytest.mark.parametrize(
    ("machine", "words", "installed"),
    [
        (Machine("docker", PACKAGE, plugin=True), ["docker", "compose"], []),
        (Machine("docker", PACKAGE), ["/usr/bin/docker-compose"], []),
        (Machine(PACKAGE), ["/usr/bin/docker-compose"], []),
        (Machine("docker", "apt-get"), ["/usr/bin/docker-compose"], [PACKAGE]),
    ],
)
def test_dockers_own_compose_comes_first_and_debians_is_installed_last(
    machine: Machine, words: list[str], installed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found(machine, monkeypatch) == words
    assert machine.installed == installed
