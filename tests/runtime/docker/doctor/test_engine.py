"""What the doctor says of engines, and which ones no agent starts on."""

from __future__ import annotations

import re
from typing import Any
from unittest.mock import Mock

import pytest

from dlsched.model.errors import EngineUnavailable
from dlsched.runtime.docker.doctor.engine import EngineUnworkable, examine, require, unworkable
from dlsched.runtime.docker.engine import Body
from dlsched.runtime.doctor.finding import Finding

VERSION = {"Version": "28.0", "ApiVersion": "1.48"}
INFO = {"CgroupVersion": "2", "CgroupDriver": "systemd", "CpuCfsQuota": True, "OSType": "linux"}
ROOTLESS = {"SecurityOptions": ["name=seccomp", "name=rootless"]}


def engine_of(info: Body | None, version: Body | None = None) -> Any:
    """One that says this; None: it does not answer."""
    gone = EngineUnavailable("no answer") if info is None else None
    return Mock(
        host="unix:///fake",
        **{"info.return_value": info, "version.return_value": version or VERSION},
        **{"version.side_effect": gone},
    )


def findings(info: Body | None, version: Body | None = None) -> dict[str, Finding]:
    return {one.what: one for one in examine(engine_of(info, version))}


def test_a_usual_engine() -> None:
    found = findings(INFO)
    assert found["engine"] == Finding("engine", "ok", "28.0 at unix:///fake (API 1.48)")
    assert found["cgroup"] == Finding("cgroup", "ok", "version 2, driver systemd")
    assert "security" not in found
    assert unworkable(VERSION, INFO) is None


def test_no_engine() -> None:
    found = findings(None)
    assert (found["engine"].state, found["engine"].line) == ("fail", "no answer")
    assert len(found) == 1


@pytest.mark.parametrize(
    ("version", "info", "why"),
    [
        ({"ApiVersion": "1.40"}, {}, "API version 1.40; 1.41 (Docker 20.10) is required"),
        ({"ApiVersion": None}, {}, "API version ?; 1.41"),
        ({}, {"OSType": "windows"}, "dlsched can limit Linux ones only"),
        ({}, {"CpuCfsQuota": False}, "the kernel lacks CONFIG_CFS_BANDWIDTH"),
        ({}, {"CgroupDriver": "none", **ROOTLESS}, "lacks the cpu controller"),
        ({}, {"CpuCfsQuota": False, **ROOTLESS}, "lacks the cpu controller"),
    ],
)
def test_an_engine_that_cannot_limit_fails_and_no_agent_starts_on_it(
    version: Body, info: Body, why: str
) -> None:
    version, info = {**VERSION, **version}, {**INFO, **info}
    assert why in str(unworkable(version, info))
    found = findings(info, version)
    assert found["engine"].state == "fail" and why in found["engine"].line
    assert found["engine"].remedy
    assert list(found) == ["engine"], "nothing is half done"
    with pytest.raises(EngineUnworkable, match=f"{re.escape(why)}.*dlsched doctor"):
        require(engine_of(info, version))


def test_unusual_engines_are_told_what_works() -> None:
    rootless = findings({**INFO, **ROOTLESS})["security"]
    assert rootless.state == "warn" and "metrics endpoints" in rootless.line
    assert findings({**INFO, "SecurityOptions": ["name=userns"]})["security"].state == "ok"
