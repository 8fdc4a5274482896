"""A policy with its parameters in one word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from dlsched.model.errors import PolicyError
from dlsched.policies.fair import FairPolicy
from dlsched.policies.registry import load, split, unused_options


@dataclass(frozen=True, slots=True)
class Parameters:
    """One of every kind."""

    wide: bool = False
    count: int = 1
    ratio: float = 0.5
    reading: str = "own"


class Choosy(FairPolicy):
    """Has something to choose."""

    Parameters = Parameters  # type: ignore[assignment,misc]


OWN = f"{__name__}:Choosy"


def chosen(spelled: str, **options: object) -> Any:
    return load(spelled, options).policy.parameters  # type: ignore[attr-defined]


def test_values_are_typed_by_the_defaults() -> None:
    assert chosen(f"{OWN}?wide=true&count=3&ratio=1e-3&reading=a=b") == Parameters(
        True, 3, 0.001, "a=b"
    )
    assert chosen(f"{OWN}?ratio=2") == Parameters(ratio=2.0)
    assert chosen(OWN) == Parameters()
    assert split("fair") == ("fair", {})


def test_options_of_the_settings_stand_beside() -> None:
    assert chosen(f"{OWN}?count=3", ratio=0.1) == Parameters(count=3, ratio=0.1)
    with pytest.raises(PolicyError, match="count is given twice"):
        chosen(f"{OWN}?count=3", count=3)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("wide=yes", "wide is 'yes', must be true or false"),
        ("count=1.5", "count is '1.5', must be a whole number"),
        ("count=1_0", "count is '1_0', must be a whole number"),
        (f"count={'9' * 400}", "must be a whole number"),
        ("ratio=half", "ratio is 'half', must be a number"),
        ("ratio=nan", "ratio is 'nan', must be a number"),
        ("ratio=inf", "ratio is 'inf', must be a number"),
        ("gain=1", "no parameter 'gain'; known are wide, count, ratio, reading"),
        ("count=1&count=2", "count is given twice"),
        ("count", "'count' is not a parameter; write NAME?key=value&key=value"),
        ("=3", "'=3' is not a parameter"),
        ("", "'' is not a parameter"),
    ],
)
def test_what_cannot_be_read_is_told_in_one_line(query: str, said: str) -> None:
    with pytest.raises(PolicyError) as caught:
        load(f"{OWN}?{query}")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_the_policy_itself_refuses_names_it() -> None:
    with pytest.raises(PolicyError, match=r"policy tradl: .*patience_s"):
        load("tradl?patience_s=0")
    with pytest.raises(PolicyError, match="the policy has no parameters"):
        load("fair?gain=1")


@pytest.mark.parametrize(
    ("policy", "options"),
    [
        ("dqoes", {"alpha": 1.0}),
        ("dqoes", {"gain": 0.0}),
        ("dqoes", {"noise_sigmas": -1.0}),
        ("dqoes", {"step_ratio": 1.0}),
        ("dqoes", {"interval_s": 0.0}),
        ("dqoes", {"min_requests": 0}),
        ("dqoes", {"retry_s": float("inf")}),
        ("dqoes-published", {"alpha": 0.0}),
        ("dqoes-published", {"beta": 1.0}),
        ("dqoes-published", {"reading": "both"}),
        ("dqoes-published", {"floor_ratio": 2.0}),
        ("dqoes-published", {"interval_s": float("nan")}),
        ("dqoes-published", {"backoff": 0}),
        ("flowcon", {"alpha": 0.0}),
        ("flowcon", {"alpha": float("nan")}),
        ("flowcon", {"interval_s": 0.5}),
        ("tradl", {"weights": "both"}),
        ("tradl", {"interval_s": 0.0}),
        ("tradl", {"window_s": float("inf")}),
        ("tradl", {"least_ratio": 1.0}),
        ("tradl", {"headroom_ratio": 1.0}),
        ("tradl", {"patience_s": float("nan")}),
        ("tradl", {"step_ratio": 0.0}),
        ("tradl", {"backoff": 0}),
    ],
)
def test_a_wrong_parameter_is_refused_in_one_line(policy: str, options: dict[str, object]) -> None:
    with pytest.raises(PolicyError) as caught:
        load(policy, options)
    assert next(iter(options)) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_options_of_another_policy_are_checked_and_not_used() -> None:
    options = {"count": 5, "gain": 0.2, "fits_most": 2}
    assert unused_options(f"{OWN}?ratio=0.1", options) == ("gain", "fits_most")
    assert chosen(f"{OWN}?ratio=0.1", **options) == Parameters(count=5, ratio=0.1)
    load("fair", {"gain": 0.2})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"gian": 0.2},
            ("policy fair: no policy has a parameter 'gian'; the policy has no parameters"),
        ),
        ({"fits_most": "two"}, "policy adaptive: fits_most is 'two', must be int"),
        ({"fits_most": True}, "policy adaptive: fits_most is True, must be int"),
        ({"gain": -1.0}, "policy dqoes: gain is -1.0, must be above 0, at most 1"),
    ],
)
def test_options_that_fit_no_policy_are_told_in_one_line(
    options: dict[str, object], said: str
) -> None:
    with pytest.raises(PolicyError) as refused:
        load("fair", options)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_program_without_entry_points_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlsched.policies.registry.entry_points", lambda group: ())
    with pytest.raises(PolicyError, match=r"no policies of dlsched\.policies are installed"):
        load("adaptive")
