"""Which real programs were read rightly since the last change to anything that matters for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from tests.stacks.containers import PROGRAMS
from tests.stacks.environments import requirements
from tests.stacks.stack import Stack
from tools.environment import BUILD, ROOT, digest_of

FILE = BUILD / "stacks" / "passed.json"
"""Digest by stack. It may be kept from one run of continuous integration to the next."""

READERS = (
    "dlsched/runtime/progress",
    "dlsched/config/metrics",
    "dlsched/model/sources.py",
    "dlsched/estimate/sketch.py",
    "dlsched/report/buckets.py",
)
"""What reads, and what says how."""
COMPARING = ("fixture.py", "making.py", "containers.py", "reading.py")


def digest(stack: Stack) -> str:
    """Of the readers, presets, versions, and the stack's own row and program."""
    parts = [repr(stack).encode()]
    for path in _files(stack):
        parts += [str(path.relative_to(ROOT)).encode(), path.read_bytes()]
    return digest_of(parts)


def _files(stack: Stack) -> Iterator[Path]:
    for name in READERS:
        place = ROOT / name
        yield from sorted(place.rglob("*.[py][ya]*")) if place.is_dir() else [place]
    yield from (Path(__file__).parent / name for name in COMPARING)
    yield requirements(stack.environment)
    # Programs share the modules beside them.
    yield from sorted(PROGRAMS.glob("*.py"))


def has_passed(stack: Stack, file: Path = FILE) -> bool:
    """Whether it was read rightly with all this as it is."""
    return _known(file).get(stack.name) == digest(stack)


def keep(stack: Stack, file: Path = FILE) -> None:
    """It is read rightly with all this as it is."""
    known = {**_known(file), stack.name: digest(stack)}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(known, indent=1, sort_keys=True), encoding="utf-8")


def _known(file: Path) -> dict[str, str]:
    known: dict[str, str] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return known
