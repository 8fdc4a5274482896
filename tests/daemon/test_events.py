"""`dlsched events` and the stream of a real daemon, over its restart."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.forked import Forked, command
from tests.daemon.test_daemon import reaches, spec
from tools.session import Session, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.engine]


def test_events_are_followed_over_a_restart_of_the_daemon(node: Session) -> None:
    node.start("fair")
    with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
        words = ["events", "--follow", "--json", "--config", str(node.root / "dlsched.yaml")]
        following = Forked(words, out, err)
        try:
            node.drop("alpha", spec("alpha"))
            told(out.name, lambda one: (one["type"], one.get("after")) == ("event", "running"))
            node.stop()
            said = Path(err.name)
            wait_for(said.read_text, 30, "the command to say that the daemon has gone")
            node.start("fair")
            reaches(node, "alpha", "running")
            node.drop("alpha", spec("alpha", cpus="{min: 0.05, max: 0.5}"))
            resized = told(out.name, lambda one: one["kind"] == "resize")
            assert (resized["job"], resized["after_cores"]) == ("alpha", 0.5)
            os.kill(following.pid, signal.SIGINT)
            assert following.wait(30) == 0
        finally:
            following.kill()
        gone, back = said.read_text().splitlines()
        assert gone.endswith("; this command asks again every 1 s")
        assert back == "the daemon answers again"
        arrived = [one for one in objects(out.name) if one["kind"] == "arrived"]
        assert [one["job"] for one in arrived] == ["alpha"], "it arrived once, not at each start"

    lines = command(node, "events")
    assert lines.returncode == 0
    assert "  alpha  limit 1.000 -> 0.500 cores" in lines.stdout
    assert "arrived" not in lines.stdout


def objects(file: str) -> list[dict[str, Any]]:
    """The whole lines of that file."""
    return [json.loads(line) for line in Path(file).read_text().split("\n")[:-1]]


def told(file: str, true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first object of which that is so, once it is printed."""
    wait_for(lambda: any(map(true, objects(file))), 30, "the event")
    return next(filter(true, objects(file)))
