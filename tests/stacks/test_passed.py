"""What makes a real program run again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.stacks import passed
from tests.stacks.environments import requirements
from tests.stacks.fixture import load, path_of
from tests.stacks.stack import Stack
from tests.stacks.table import RUN


def test_a_stack_that_passed_runs_again_only_when_something_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "stacks" / "passed.json"
    one, other = RUN[:2]
    assert not passed.has_passed(one, file)
    passed.keep(one, file)
    assert passed.has_passed(one, file)
    assert not passed.has_passed(other, file)
    assert not passed.has_passed(replace(one, printed_to=1.0), file)
    monkeypatch.setattr(passed, "READERS", passed.READERS[1:])
    assert not passed.has_passed(one, file), "a reader less is a change"


@pytest.mark.parametrize("content", ["", "[1]", "{"])
def test_a_broken_file_means_that_nothing_has_passed(tmp_path: Path, content: str) -> None:
    file = tmp_path / "passed.json"
    file.write_text(content, encoding="utf-8")
    assert not passed.has_passed(RUN[0], file)


@pytest.mark.parametrize("stack", RUN, ids=lambda one: one.name)
def test_an_extract_is_of_the_pinned_versions(stack: Stack) -> None:
    lines = requirements(stack.environment).read_text(encoding="utf-8").splitlines()
    pinned = dict(_plain(line).split("==") for line in lines if "==" in line)
    made = load(path_of(stack.name)).made.partition(";")[0].split(", ")
    ran = dict(_plain(one).split(" ") for one in made)
    assert ran.keys() == set(map(_plain, stack.packages))
    # nginx comes with the system; a version may name the build, as in 2.13.0+cpu.
    versions = {name: one.partition("+")[0] for name, one in ran.items() if name != "nginx"}
    assert versions == {name: pinned[name] for name in versions}


def _plain(name: str) -> str:
    """Index names count - and _ as one, and no capitals."""
    return name.lower().replace("_", "-")
