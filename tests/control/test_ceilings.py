"""What fits beside the ceilings in force, and what may be carried out at once."""

from __future__ import annotations

from dlsched.control.ceilings import CeilingBudget
from dlsched.model.actions import Memory, Outcome, Remove, Resize, Start
from dlsched.model.spec import Limits, Stop
from tests.doubles import job_spec


def change(job: str, before: float | None, after: float | None) -> Resize:
    return Resize(job, f"id-{job}", Limits(before), Limits(after), 1024, "")


def reserving(**ceilings: float) -> CeilingBudget:
    return CeilingBudget(ceilings, 4.0, reserves=True)


def test_growth_must_fit_beside_what_is_in_force() -> None:
    grow = change("a", 1.0, 2.5)
    assert reserving(a=1.0, b=1.5).why_not(grow) is None
    assert reserving(a=1.0, b=2.0).why_not(grow) == "CPU limits would add up to 4.50 of 4.00 cores"
    assert CeilingBudget({"a": 1.0, "b": 2.0}, 4.0, reserves=False).why_not(grow) is None
    assert reserving(a=1.0).why_not(change("a", 1.0, None)) is not None


def test_a_shrink_is_never_withheld() -> None:
    assert reserving(a=3.0, b=3.0).why_not(change("a", 3.0, 2.5)) is None


def test_growth_never_goes_with_the_shrinks_that_it_counts_on() -> None:
    shrinks = [change("a", 2.0, 1.0), change("b", 2.0, 1.0)]
    growths = [change("c", 0.0, 1.0), change("d", 0.0, 1.0)]
    for reserves in (True, False):
        now = CeilingBudget({"a": 2.0, "b": 2.0}, 4.0, reserves=reserves)
        assert now.next_batch([*shrinks, *growths]) == shrinks
        for one in shrinks:
            now.take(Outcome(one, "done"))
        assert now.next_batch(growths) == growths


def test_growths_go_together_as_far_as_all_of_them_fit() -> None:
    growths = [change(name, 1.0, 1.8) for name in ("a", "b", "c")]
    now = reserving(a=1.0, b=1.0, c=1.0)
    assert now.next_batch(growths) == growths[:1]
    now.take(Outcome(growths[0], "failed"))
    assert now.next_batch(growths[1:]) == growths[1:2]
    now.take(Outcome(growths[1], "done"))
    assert now.next_batch(growths[2:]) == []
    assert now.why_not(growths[2]) == "CPU limits would add up to 4.60 of 4.00 cores"


def test_a_failed_shrink_withholds_the_growth_that_counted_on_it() -> None:
    shrink, growth = change("a", 2.0, 1.0), change("b", 2.0, 3.0)
    now = reserving(a=2.0, b=2.0)
    now.take(Outcome(shrink, "failed"))
    assert now.next_batch([growth]) == []
    now.take(Outcome(shrink, "begun"))  # under way: the old ceiling may still hold
    assert now.next_batch([growth]) == []
    now.take(Outcome(shrink, "done"))
    assert now.next_batch([growth]) == [growth]


def test_two_changes_of_one_job_go_one_after_the_other() -> None:
    first, second = change("a", 2.0, 1.5), change("a", 1.5, 1.0)
    assert reserving(a=2.0).next_batch([first, second]) == [first]


def test_memory_limits_go_together_beside_full_ceilings() -> None:
    now = reserving(a=2.0, b=2.0)
    lower = Memory("a", "id-a", 4, 2, "")
    raises = [Memory(name, f"id-{name}", 2, 4, "") for name in ("b", "c")]
    growth = change("a", 2.0, 3.0)
    assert now.next_batch([lower, *raises, growth]) == [lower]
    assert now.next_batch([*raises, growth]) == raises
    assert now.next_batch([raises[0], raises[0]]) == raises[:1]


def test_what_is_no_change_goes_alone() -> None:
    now = reserving(a=2.0)
    away = Remove("z", "id-z", Stop(), None, "gone")
    start = Start(job_spec("n"), Limits(1.0), 1024)
    assert now.next_batch([away, change("a", 2.0, 1.0)]) == [away]
    assert now.next_batch([change("a", 2.0, 1.0), start]) == [change("a", 2.0, 1.0)]
    assert now.next_batch([start, start]) == [start]
    assert now.next_batch([Start(job_spec("n"), Limits(2.5), 1024)]) == []
