"""What the doctor says of engines and state directories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dlsched.errors import EngineUnavailable
from dlsched.runtime.docker.doctor import examine
from dlsched.runtime.docker.engine import Body

INFO = {"CgroupVersion": "2", "CgroupDriver": "systemd", "CpuCfsQuota": True}


class FakeEngine:
    host = "unix:///fake"

    def __init__(self, info: Body | None) -> None:
        self._info = info

    def version(self) -> Body:
        if self._info is None:
            raise EngineUnavailable("no answer")
        return {"Version": "28.0", "ApiVersion": "1.48"}

    def info(self) -> Body:
        assert self._info is not None
        return self._info


def findings(state_dir: Path, info: Body | None) -> dict[str, tuple[str, str]]:
    engine: Any = FakeEngine(info)
    return {name: (level, text) for name, level, text in examine(engine, state_dir)}


def test_a_usual_engine(tmp_path: Path) -> None:
    found = findings(tmp_path, INFO)
    assert found["engine"] == ("ok", "28.0 at unix:///fake (API 1.48)")
    assert found["cgroup"] == ("ok", "version 2, driver systemd")
    assert "security" not in found


def test_no_engine(tmp_path: Path) -> None:
    assert findings(tmp_path, None)["engine"] == ("error", "no answer")


@pytest.mark.parametrize(("option", "level"), [("name=rootless", "warning"), ("name=userns", "ok")])
def test_unusual_engines_are_named(tmp_path: Path, option: str, level: str) -> None:
    found = findings(tmp_path, {**INFO, "SecurityOptions": ["name=seccomp", option]})
    assert found["security"][0] == level


def test_a_kernel_without_quotas_is_an_error(tmp_path: Path) -> None:
    level, text = findings(tmp_path, {**INFO, "CpuCfsQuota": False})["cgroup"]
    assert level == "error" and "no CPU quotas" in text


def test_the_state_directory(tmp_path: Path) -> None:
    assert findings(tmp_path, INFO)["state"] == ("ok", f"{tmp_path} is writable")
    later = tmp_path / "a" / "b"
    assert findings(later, INFO)["state"] == ("ok", f"{later} will be made")
