"""How the idle class's worth is read off a journal, and told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.kernel.idle_class import ALONE, EVEN, VARIANTS, Phase, rows, table
from dlsched.model.cycle import CycleReport
from dlsched.model.facts import Sample
from dlsched.model.state import JobView, Progress
from tests.doubles import view
from tests.store.journal.reports import report


def _job(name: str, attained_core_s: float, step: int, at_s: float) -> JobView:
    sample = Sample(at_s, step, ())
    return replace(
        view(name), attained_core_s=attained_core_s, progress=Progress(samples=(sample,))
    )


def _second(second: int, cores: float, steps_per_s: int) -> CycleReport:
    """The first has used so much by then, and the other the rest of two cores."""
    at_s = float(second)
    jobs = (
        _job("cnn", (2.0 - cores) * second, 3 * second, at_s),
        _job("vae", cores * second, steps_per_s * second, at_s),
    )
    one = report(second + 1)
    return replace(one, snapshot=replace(one.snapshot, now_s=at_s, jobs=jobs))


REPORTS = [_second(second, 1.25, 10) for second in range(30)]


def test_cores_and_steps_are_those_of_the_phase_alone() -> None:
    (row,) = rows([Phase(EVEN, "forward", "vae", 5.0, 15.0)], REPORTS)
    assert row == {
        "first": "vae",
        "the other": "even weights",
        "order": "forward",
        "first_cores": 1.25,
        "other_cores": 0.75,
        "first_steps_per_s": 10.0,
    }


def test_a_phase_without_evaluations_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="cnn told of 1 evaluations"):
        rows([Phase(EVEN, "forward", "cnn", 5.0, 5.5)], REPORTS)


def test_the_table_sets_each_beside_the_same_training_alone() -> None:
    told = [
        {
            "first": first,
            "the other": variant.words,
            "order": order,
            "first_cores": 1.0 + index / 4,
            "other_cores": 0.5,
            "first_steps_per_s": speed * part,
        }
        for order in ("forward", "backward")
        for first, speed in (("vae", 20.0), ("cnn", 4.0))
        for index, (variant, part) in enumerate(zip(VARIANTS, (0.5, 0.7, 0.9, 1.0), strict=True))
    ]
    told[0]["first_steps_per_s"] = 8.0
    shown = {row["the other"]: row for row in table(told)}
    assert list(shown) == [variant.words for variant in VARIANTS]
    assert shown[EVEN.words]["steps of the first, of those alone"] == pytest.approx(0.475)
    assert shown[EVEN.words]["least"] == pytest.approx(0.4)
    assert shown[ALONE.words]["least"] == pytest.approx(1.0)
    assert shown[ALONE.words]["cores of the first"] == pytest.approx(1.75)
