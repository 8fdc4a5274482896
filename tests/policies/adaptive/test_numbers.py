"""How many numbers somebody has chosen behind the policy `adaptive`."""

from __future__ import annotations

from benchmarks.simulated.numbers import NOT_CHOSEN, PACKAGE, chosen_numbers


def test_few_numbers_are_chosen() -> None:
    found = chosen_numbers()
    assert len(found) <= 60, "\n".join(f"{one.module}: {one.name} {one.value}" for one in found)


def test_every_name_that_is_left_out_is_one_of_the_code() -> None:
    text = "\n".join(path.read_text() for path in sorted(PACKAGE.rglob("*.py")))
    for names in NOT_CHOSEN.values():
        assert [name for name in names if f"{name} =" not in text and f"{name}, " not in text] == []
