"""Owns the rule which lane a case belongs to, and the guard that keeps the unit lane clean.

A lane is a marker; a case with none of them is a unit test. The rule does not know folders, so a
test file can move without a word about it here. What a lane is for is said in pyproject.toml.
Of a lane that needs no engine the gate has all cases but those marked `long`, of the others only
those marked `gate`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

UNIT = "unit"
# Fixtures that start a process, though not in every run.
STARTING = frozenset({"nvml_stub"})
# The first of these markers that a case has names its lane.
MARKED = ("v2host", "stacks", "browser", "slow", "e2e", "engine", "process", "timed")
LANES = (UNIT, *reversed(MARKED))
# What Python reports of itself when a process is about to be started.
STARTS = frozenset(
    {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system"}
)

NEEDING = frozenset(MARKED) - {"process", "timed"}
"""Lanes whose cases need an engine, a browser, or what takes minutes."""
GATE_MAX = 80
"""Cases that need an engine or a browser and run before each landing."""

COLLECTED = pytest.StashKey[Counter[str]]()
"""How many cases of each lane should run, here or in another part: those left out by --lane too."""

_started: list[str] = []


def lane_of(item: pytest.Item) -> str:
    """The lane of a case."""
    named = next((name for name in MARKED if item.get_closest_marker(name)), None)
    if named in (None, "timed") and STARTING.intersection(getattr(item, "fixturenames", ())):
        return "process"
    return named or UNIT


def is_in_gate(item: pytest.Item) -> bool:
    """Whether a case runs before each landing."""
    if lane_of(item) in NEEDING:
        return item.get_closest_marker("gate") is not None
    return item.get_closest_marker("long") is None


def but_the_first_long(values: Iterable[Any], *, spread: bool = False) -> list[Any]:
    """Parameters of cases of which the gate has the first only; `spread`: each is for several
    names."""
    first, *others = values
    rows = others if spread else [(one,) for one in others]
    return [first, *(pytest.param(*row, marks=pytest.mark.long) for row in rows)]


def lanes_named(text: str) -> set[str]:
    """The lanes of a comma-separated list. Raises UsageError for a name that is no lane."""
    named = set(filter(None, text.split(",")))
    if wrong := sorted(named - set(LANES)):
        raise pytest.UsageError(f"--lane: {', '.join(wrong)}: no such lane; {', '.join(LANES)}")
    return named


def may_have(path: Path, lanes: set[str], gate: bool = False) -> bool:
    """Whether a test file can have cases of these lanes, or those of the gate: one without a lane's
    marker has none.

    Reading is much cheaper than importing, and every worker imports what it collects. Where the
    unit lane is asked for no file is passed over, so that whoever counts it counts all.
    """
    if not lanes or UNIT in lanes:
        return True
    if gate and lanes <= NEEDING:
        lanes = {"gate"}
    text = path.read_text(encoding="utf-8")
    starts = "process" in lanes and "nvml" in text  # the folder of STARTING's fixtures
    return starts or any(f"mark.{lane}" in text for lane in lanes)


def _note_start(event: str, details: tuple[object, ...]) -> None:
    if event in STARTS:
        _started.append(f"{event} {details[0] if details else ''}".strip())


def watch_starts() -> None:
    """From now on note each start of a process by this interpreter, to its end."""
    sys.addaudithook(_note_start)


@contextmanager
def without_processes() -> Iterator[None]:
    """Fail where a process is started inside: that is what the marker `process` is for."""
    _started.clear()
    yield
    if _started:
        pytest.fail(
            f"a case of the unit lane starts a process ({_started[0]}): mark it `process`",
            pytrace=False,
        )
