"""What `difference` tells, `patch` does: for any two values, through JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.store.journal.frames import (
    Counts,
    countable,
    difference,
    parse_counts,
    patch,
    render_counts,
)

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["", "at", "drop", "a"]), inner, max_size=3)
    ),
    max_leaves=12,
)
COUNTS = st.dictionaries(
    st.integers(-5, 60) | st.integers(), st.integers().filter(bool), max_size=12
).map(lambda counts: Counts(tuple(sorted(counts.items()))))


def as_read(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str))


@given(VALUES, VALUES)
def test_a_patched_value_is_the_new_one(old: Any, new: Any) -> None:
    delta = difference(old, new)

    assert patch(as_read(old), as_read(delta)) == as_read(new)
    assert (delta is None) == (old == new and type(old) is type(new))


@given(st.lists(SCALARS, max_size=6), st.lists(SCALARS, max_size=3), st.integers(0, 6))
def test_a_sliding_list_is_the_new_one(old: list[Any], joined: list[Any], gone: int) -> None:
    new = [*old[gone:], *joined]

    assert patch(as_read(old), as_read(difference(old, new))) == as_read(new)


@given(COUNTS, COUNTS)
def test_patched_counts_are_the_new_ones(old: Counts, new: Counts) -> None:
    assert patch(as_read(old), as_read(difference(old, new))) == as_read(new)


@given(COUNTS)
def test_counts_come_back_from_text(counts: Counts) -> None:
    assert countable(counts.pairs)
    assert tuple(parse_counts(str(counts))) == counts.pairs


def test_counts_read_as_told() -> None:
    assert render_counts([(700, 1), (702, -2), (703, 12), (911, 2)]) == "700:10b(12) 911:2"


@pytest.mark.parametrize("pairs", [((1, 0),), ((2, 1), (1, 1)), ((1, 1), (1, 2))])
def test_what_is_not_a_histogram_is_not_countable(pairs: tuple[tuple[int, int], ...]) -> None:
    assert not countable(pairs)


def test_a_histogram_that_grows_is_told_by_what_was_added() -> None:
    old, new = Counts(((700, 131), (701, 218), (702, 94))), Counts(((700, 132), (702, 94)))

    assert difference(old, new) == "700:1(-218)"


def test_only_what_changed_is_told() -> None:
    old = {"kept": {"deep": [1, 2]}, "count": 5, "gone": 1, "list": ["a", "b", "c"], "at": [1, 2]}
    new = {"kept": {"deep": [1, 2]}, "count": 3, "list": ["b", "c", "d"], "at": [1, 4], "new": None}

    assert difference(old, new) == {
        "count": -2,
        "gone": [],
        "list": {"drop": 1, "add": ["d"]},
        "at": {"at": {"1": 2}},
        "new": [None],
    }


def test_patch_leaves_the_old_value_and_shares_what_did_not_change() -> None:
    old = {"kept": {"deep": [1]}, "count": 5}

    new = patch(old, {"count": 1})

    assert old == {"kept": {"deep": [1]}, "count": 5}
    assert new["kept"] is old["kept"]


def test_a_change_of_kind_is_told() -> None:
    assert difference(1, 1.0) == [1.0]
    assert difference(1, True) == [True]
