"""Strict YAML: what is refused, with its place; what is read, and where it stood."""

from __future__ import annotations

import time
from random import Random
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dlsched.config.text import SIZE_MAX_BYTES
from dlsched.config.yaml import NODES_MAX, Document, Path, dotted, load_document
from tests.config.yaml_grammar import document


def problems(text: str) -> list[str]:
    return [str(problem) for problem in load_document(text, "f").problems]


def test_plain_values_keep_how_they_were_written() -> None:
    value = load_document("a: 1\nb: 1.10\nc: true\nd: 1e-3\ne: '010'\nf:\ng: [x, -5]\n", "f").value
    assert value == {
        "a": 1, "b": 1.1, "c": True, "d": "1e-3", "e": "010", "f": None, "g": ["x", -5],
    }  # fmt: skip
    assert isinstance(value, dict)
    assert getattr(value["b"], "text", None) == "1.10"


@pytest.mark.parametrize(
    ("scalar", "why"),
    [
        ("no", "false to some"), ("Yes", "true to some"), ("on", "true to some"),
        ("OFF", "false to some"), ("010", "octal"), ("0o17", "another base"),
        ("0x1F", "another base"), ("1:30", "base-60"), ("22:22", "base-60"), ("1_000", "a number"),
        (".nan", "not a usable number"), ("-.inf", "not a usable number"),
        ("12345678901234567890", "too many digits"),
        ("=", "operator"),
    ],
)  # fmt: skip
def test_what_two_readers_read_differently_is_refused(scalar: str, why: str) -> None:
    (problem,) = problems(f"first: 1\nkey:  {scalar}\n")
    assert problem.startswith(f"f:2:7: key: '{scalar}' ")
    assert why in problem
    assert "in quotes" in problem
    assert not problems(f'key: "{scalar}"\n')


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "f:1:1: the file is empty"),
        ("# only a comment\n", "f:1:1: the file is empty"),
        ("a: 1\nb: 2\na: 3\n", "f:3:1: a: the key was already given in line 1"),
        ("a: 1\n---\nb: 2\n", "f:2:1: a second document begins here: a file may have only one"),
        ("a:\n\t- b\n", "f:2:1: a tab is used for indentation: use spaces"),
        ("a: &x 1\n", "f:1:4: a: the anchor &x is not supported: leave it out"),
        (
            'a: 1\nb: "\\U00110000"\n',
            "f:2:7: cannot be read as YAML from here on (ValueError",
        ),
        ('name: "\\UFFFFFFFF"\n', "f:1:10: cannot be read as YAML from here on (OverflowError: "),
        (
            f"%YAML 1.{'1' * 5000}\n--- a\n",
            "f:1:9: cannot be read as YAML from here",
        ),
        (
            'a: "\\ud800"\n',
            "f:1:4: a: contains half of a character (a surrogate), which is not valid text",
        ),
        ('"\\udfff": 1\n', "f:1:1: a key contains half of a character (a surrogate), which is"),
        (f"a: *{'x' * 3000}\n", f"f:1:4: a: the alias *{'x' * 40} is not supported"),
        ("a: *x\n", "f:1:4: a: the alias *x is not supported: write the value out"),
        ("a: !!int '3'\n", "f:1:4: a: the tag 'tag:yaml.org,2002:int' is not supported"),
        ("? [a]\n: b\n", "f:1:3: a key must be text"),
        ("5: x\n", "f:1:1: 5: the key '5' is not text in YAML: put it in quotes"),
        ("on: x\n", "f:1:1: on: 'on' means true to some YAML parsers"),
        ("<<: {b: 1}\n", "f:1:1: '<<': merge keys are not supported: write the keys out"),
        ("<<: *b\n", "f:1:1: '<<': merge keys are not supported: write the keys out"),
        ("%YAML 1.1\n---\na: 1\n", "f:1:1: YAML directives are not supported"),
        ("a: b\nc: \x07\n", "f:2:4: the character #x0007 is not allowed"),
        ("a: b: c\n", "f:1:5: mapping values are not allowed here"),
        ("a: [1\n", "f:2:1: expected ',' or ']', but got '<stream end>'"),
    ],
)
def test_each_thing_refused_has_one_line_and_its_place(text: str, problem: str) -> None:
    (said,) = problems(text)
    assert said.startswith(problem)


def test_of_a_value_that_is_given_twice_only_the_first_counts() -> None:
    for second in ("{min: null, max: 5, more: [~]}", "null", "*x", "{on: 1}"):
        found = load_document(f"cpus:\n  min: 1\n  max: null\ncpus: {second}\n", "f")
        assert found.value == {"cpus": {"min": 1, "max": None}}
        (problem,) = found.problems
        assert problem.what == "the key was already given in line 1"
        assert [found.values["cpus", key] for key in ("min", "max")] == [(2, 8), (3, 8)]
        assert found.empty == {("cpus", "max")}


def test_the_advice_is_what_is_right_at_that_place() -> None:
    def advice(text: str, **more: Any) -> list[str]:
        found = load_document(text, "f", **more).problems
        return [problem.what.rpartition(": ")[2] for problem in found]

    text = "a: yes\nb: No\n"
    unknown = [
        'write "yes" in quotes for the word, or true',
        'write "No" in quotes for the word, or false',
    ]
    assert advice(text) == unknown
    assert advice(text, flags={("b",)}) == [
        'write "yes" in quotes for the word', "write false"
    ]  # fmt: skip
    assert advice("on: 1\n") == ['write "on" in quotes for the word']
    assert advice("a: <<\n") == ['write "<<" in quotes for the text']


def test_a_repeated_key_does_not_hide_what_else_is_wrong() -> None:
    said = problems("a: 1\na: {b: [no, {c: no}]}\nd: no\n")
    assert [line.split(": ")[0] for line in said] == ["f:2:1", "f:3:4"]


@pytest.mark.parametrize(
    ("bomb", "why"),
    [
        ("[" * 100_000, "deeper than"),
        ("- " * 100_000, "deeper than"),
        ("{a: " * 50_000, "deeper than"),
        ("a: 1\na: " + "[" * 100_000, "deeper than"),
        ("- x\n" * (NODES_MAX + 1), "more than 5000 values"),
        ("a: 1\na: [" + "x," * (NODES_MAX + 1) + "]", "more than 5000 values"),
        ("a: " + "x" * SIZE_MAX_BYTES, "f: the file has more than 256 KiB"),
        ("ä" * (SIZE_MAX_BYTES - 10), "f: the file has more than 256 KiB"),
    ],
)
@pytest.mark.timed
def test_bombs_end_early(bomb: str, why: str) -> None:
    def cost_s() -> float:
        begun_s = time.process_time()
        problems(bomb)
        return time.process_time() - begun_s

    assert why in problems(bomb)[-1]
    assert any(cost_s() < 5 for _ in range(3)), "others may disturb a try"


KEYS = st.from_regex(r"[a-z]{3,8}x", fullmatch=True)
LEAVES = st.integers(-(10**9), 10**9) | st.from_regex(r"v[a-z/]{0,9}", fullmatch=True)
TREES = st.dictionaries(
    KEYS,
    st.recursive(
        LEAVES,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
        max_leaves=12,
    ),
    min_size=1,
    max_size=5,
)


@given(TREES, st.sampled_from([None, False, True]), st.integers(2, 6))
def test_every_value_is_found_where_the_file_has_it(
    tree: dict[str, Any], flow: bool | None, indent: int
) -> None:
    text = yaml.safe_dump(tree, default_flow_style=flow, indent=indent)
    document = load_document(text, "f")
    assert document.problems == ()
    assert document.value == tree
    lines = text.split("\n")
    for path, value in walk(tree, ()):
        line, column = document.values[path]
        assert lines[line - 1][column - 1 :].startswith(openings(value)), (text, path)
        if path and isinstance(path[-1], str):
            line, column = document.keys[path]
            assert lines[line - 1][column - 1 :].startswith(path[-1])


def walk(tree: Any, path: Path) -> list[tuple[Path, Any]]:
    found = [(path, tree)]
    if isinstance(tree, dict):
        return found + [entry for key in tree for entry in walk(tree[key], (*path, key))]
    if isinstance(tree, list):
        return found + [entry for i, part in enumerate(tree) for entry in walk(part, (*path, i))]
    return found


def openings(value: Any) -> tuple[str, ...]:
    if isinstance(value, dict):
        return ("{", *value)
    return ("[", "-") if isinstance(value, list) else (str(value),)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    document = load_document(text, "f")
    assert isinstance(document, Document)
    for problem in document.problems:
        assert "\n" not in str(problem)
        assert problem.line >= 1


def test_paths_are_written_as_people_do() -> None:
    assert dotted(("volumes", 0)) == "volumes[0]"
    assert dotted(("cpus", "min")) == "cpus.min"
    assert dotted(("labels", "a b")) == "labels.'a b'"
    assert dotted(()) == ""


@given(st.randoms(use_true_random=False))
def test_whatever_a_parser_makes_of_a_document_is_read_or_refused_with_a_place(rng: Random) -> None:
    read = load_document(document(rng, ("a", "b")).decode("utf-8", "replace"), "f")
    for problem in read.problems:
        assert problem.line >= 1
        assert str(problem).isprintable()
        assert len(str(problem)) < 1000
