"""Which faults are put into the code, and which tests are run on them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from benchmarks.robustness.mutants import drawn, faults, mutated, paths_of_tests

CODE = """
def given(left, asked, limit=2):
    '''A text, which is no fault.'''
    left += 1
    if asked < left and limit:
        return asked
    note(True)
"""


def test_each_fault_is_there_alone() -> None:
    tree = ast.parse(CODE)
    before = ast.unparse(tree)
    told = []
    for _, fault in faults(tree):
        assert ast.unparse(tree) != before
        told.append(fault)
    assert ast.unparse(tree) == before
    assert sorted(told) == [
        "1 becomes 2",
        "2 becomes 3",
        "And becomes Or",
        "AugAssign becomes Pass",
        "Expr becomes Pass",
        "Lt becomes LtE",
        "True becomes False",
        "the condition of If is reversed",
    ]


def test_a_fault_is_put_into_the_source() -> None:
    texts = [mutated(CODE, number) for number in range(8)]
    assert (5, "Lt becomes LtE") in [(line, fault) for line, fault, _ in texts]
    assert sum("asked <= left" in text for _, _, text in texts) == 1
    with pytest.raises(ValueError, match="no fault 8"):
        mutated(CODE, 8)


def test_the_same_seed_draws_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(CODE, encoding="utf-8")
    assert drawn(tmp_path, ["a.py"], 3, 1) == drawn(tmp_path, ["a.py"], 3, 1)
    assert len(set(drawn(tmp_path, ["a.py"], 99, 1))) == 8


def test_a_file_has_its_own_tests_and_those_of_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "tests/store"
    folder.mkdir(parents=True)
    (folder / "test_b.py").touch()
    assert paths_of_tests(tmp_path, "dlsched/store/a.py") == ["tests/store"]
    assert paths_of_tests(tmp_path, "dlsched/store/b.py") == [
        "tests/store/test_b.py",
        "tests/store",
    ]
    assert paths_of_tests(tmp_path, "dlsched/store/deep/c.py") == ["tests/store"]
