"""What real programs exported and printed is read rightly; what makes one run again."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from dlsched.config.metrics.loading import package_presets
from tests.stacks import passed
from tests.stacks.environments import requirements
from tests.stacks.fixture import FOLDER, lines_of, load, path_of
from tests.stacks.reading import differences
from tests.stacks.stack import Stack, Tried
from tests.stacks.table import BY_NAME, RUN, STACKS

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("stack", RUN, ids=lambda one: one.name)
def test_is_read_rightly(stack: Stack) -> None:
    extract = load(path_of(stack.name))
    assert extract.stack == stack.name
    assert differences(stack, extract) == []


def test_each_fixture_belongs_to_a_stack() -> None:
    assert {one.stem for one in FOLDER.glob("*.txt")} == {one.name for one in RUN}
    assert len(BY_NAME) == len(STACKS)


@pytest.mark.parametrize("stack", RUN, ids=lambda one: one.name)
def test_an_extract_has_no_addresses_or_paths_of_the_machine(stack: Stack) -> None:
    text = path_of(stack.name).read_text(encoding="utf-8")
    assert re.findall(r"\w+://|/(?:tmp|home|root|work|packages|programs)/", text) == []


def test_lines_have_the_time_of_their_end() -> None:
    chunks = [(0.1, b"one\r\ntwo\r"), (0.5, b"\rthree\x1b[K\nfo"), (0.9, b"ur\n")]
    two = [(0.5, b"two\r"), (0.5, b"\r")]
    assert lines_of(chunks) == [(0.1, b"one\n"), *two, (0.5, b"three\x1b[K\n"), (0.9, b"four\n")]


TESTS_OF_FORMATS = (
    "config/metrics/test_log_presets.py",
    "config/metrics/test_page_presets.py",
    "runtime/progress/test_trainers.py",
)


def test_each_preset_has_a_row_and_a_documented_one_has_a_test() -> None:
    presets = set(package_presets().by_name)
    assert presets == {one.preset for one in STACKS if one.preset}
    tests = "".join((TESTS / name).read_text(encoding="utf-8") for name in TESTS_OF_FORMATS)
    documented = [one.preset for one in STACKS if one.tried is Tried.DOCUMENTED]
    assert [one for one in documented if f'"{one}"' not in tests] == []


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
