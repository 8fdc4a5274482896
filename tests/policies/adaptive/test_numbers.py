"""How many numbers somebody has chosen behind the policy `adaptive`, and that each is explained."""

from __future__ import annotations

import ast
from pathlib import Path

import dlsched

ROOT = Path(dlsched.__file__).parent
BEHIND = (
    "policies/adaptive",
    "estimate/latency",
    "estimate/learning.py",
    "estimate/evaluations.py",
    "estimate/finish.py",
    "estimate/tuning.py",
)
NOT_CHOSEN = {
    "against division by zero, overflow and what no job can do": {
        "_LEAST", "_LEAST_CORES", "_LEAST_CORE_S", "LEAST_CORE_S", "_LEAST_SPREAD", "_LEAST_SLOPE",
        "_LEAST_WEIGHT", "_ROUNDING", "_MOST_STEPS", "_MOST_SPREAD", "VALUE_MOST", "_LATEST_S",
        "_SHORTEST_S", "_LONGEST_S", "_UNTOLD_CORES",
    },
    "digits, and what is kept or computed at most": {
        "_DIGITS", "_KEPT", "MOST_POINTS", "LEAST_POINTS", "_LEAST_POINTS", "_LAST_POINTS",
        "_OUTLOOK_S", "_OUTLOOK_JOB_S",
    },
    "the grid of curves that are fitted, and its quadrature": {
        "_SCALES", "_SCALE_OF_LAST", "_SCALE_OF_ALL", "_EXPONENTS", "_SPREAD", "_CURVES",
    },
    "follow from what they stand for": {
        "_ASSUMED_S", "_ASSUMED", "EDGE", "_TIER_AT", "_PRIOR_DELIVER", "_PRIOR_FINISH",
        "_INTERVAL",
    },
    "as users and the papers have it": {"BAND_RATIO", "_KEPT_RATIO", "EVALUATIONS"},
}  # fmt: skip


def files() -> list[Path]:
    found = []
    for one in BEHIND:
        path = ROOT / one
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return found


def chosen() -> dict[str, int]:
    """The constants that are numbers, by module and name, and how many numbers each holds."""
    never = set().union(*NOT_CHOSEN.values())
    found = {}
    for path in files():
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.Assign):
                continue
            names = [one.id for one in ast.walk(node.targets[0]) if isinstance(one, ast.Name)]
            numbers = [
                one
                for one in ast.walk(node.value)
                if isinstance(one, ast.Constant) and type(one.value) in (int, float) and one.value
            ]
            if numbers and not set(names) <= never:
                found[f"{path.relative_to(ROOT)}: {', '.join(names)}"] = len(numbers)
    return found


def test_few_numbers_are_chosen_and_no_more_without_a_word() -> None:
    found = chosen()
    assert sum(found.values()) <= 60, "\n".join(f"{count} {name}" for name, count in found.items())


def test_every_word_in_the_list_is_still_one_of_the_code() -> None:
    text = "\n".join(path.read_text() for path in files())
    for names in NOT_CHOSEN.values():
        assert [name for name in names if f"{name} =" not in text and f"{name}, " not in text] == []
