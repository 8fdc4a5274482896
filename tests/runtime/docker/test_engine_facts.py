"""What is asked of an engine once, and what of it may change under us."""

from __future__ import annotations

from typing import Any

import pytest

from dlsched.model.errors import EngineUnavailable
from dlsched.runtime.docker.engine import Body
from dlsched.runtime.docker.engine_facts import EngineFacts


class FakeEngine:
    """Counts what it is asked."""

    def __init__(self, version: str = "1.1.5+ds1", **info: Any) -> None:
        self.told: Body = {"NCPU": 4, "ID": "one", "CgroupVersion": "2", **info}
        self.runc = version
        self.asked = 0
        self.away = False

    def info(self) -> Body:
        self.asked += 1
        if self.away:
            raise EngineUnavailable("away")
        return self.told

    def version(self) -> Body:
        self.asked += 1
        return {"Components": [{"Name": "Engine"}, {"Name": "runc", "Version": self.runc}]}


def facts(engine: FakeEngine) -> EngineFacts:
    anything: Any = engine
    return EngineFacts(anything)


@pytest.mark.parametrize(
    ("version", "cgroup", "newer", "shares"),
    [("1.1.5+ds1", "2", False, 2598), ("1.3.2", "2", True, 1024), ("1.1.5", "1", False, 1024)],
)
def test_default_shares_are_on_the_scale_of_its_runc(
    version: str, cgroup: str, newer: bool, shares: int
) -> None:
    found = facts(FakeEngine(version, CgroupVersion=cgroup))
    assert (found.has_newer_runc(), found.default_shares()) == (newer, shares)


def test_it_is_asked_once() -> None:
    engine = FakeEngine()
    found = facts(engine)
    for _ in range(3):
        assert (found.cores(), found.identity(), found.has_newer_runc()) == (4, "one", False)
    assert engine.asked == 3


def test_who_it_is_can_be_asked_anew_and_may_not_be_known() -> None:
    engine = FakeEngine()
    found = facts(engine)
    assert found.identity() == "one"
    engine.told["ID"] = "two"
    assert (found.identity(), found.identity(fresh=True), found.identity()) == ("one", "two", "two")
    engine.away = True
    assert found.identity(fresh=True) == ""
