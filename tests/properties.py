"""Owns the profiles of Hypothesis: how many examples, and whether the same ones each time.

DLSCHED_PROPERTIES names one. `ci`, the default: a seventh of the examples, the same each time, so
that a failure is the fault of the change and not of the draw. `dev` (`make test-all`): a third,
others each time; what it finds becomes an example of its case. `nightly`: many.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

VARIABLE = "DLSCHED_PROPERTIES"
DEFAULT = "ci"
# Of the number of examples that a case asks for; 100 where it asks for none.
SHARES = {"dev": 0.33, "ci": 0.15, "nightly": 10.0}
USUAL_EXAMPLES = 100
FEWEST_EXAMPLES = 4


def profile(environment: Mapping[str, str] = os.environ) -> str:
    """The profile that the environment names. Raises ValueError for one that is none."""
    name = environment.get(VARIABLE) or DEFAULT
    if name not in SHARES:
        raise ValueError(f"{VARIABLE}={name}: none of {', '.join(SHARES)}")
    return name


def examples(count: int) -> int:
    """How many examples the profile makes of `count`."""
    return max(FEWEST_EXAMPLES, round(count * SHARES[profile()]))


def load_profile(environment: Mapping[str, str]) -> None:
    """Make the named profile the one of every property that does not say otherwise."""
    name = profile(environment)
    # Hosts are noisy: no property is held to a time.
    settings.register_profile(
        f"dlsched-{name}",
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        max_examples=examples(USUAL_EXAMPLES),
        derandomize=name == "ci",
    )
    settings.load_profile(f"dlsched-{name}")
    if name == "ci":
        _draw_no_constants_of_the_source()


def _draw_no_constants_of_the_source() -> None:
    """Hypothesis also draws numbers and words that stand in the modules imported so far: others
    after each change of the source, and in each worker."""
    if hasattr(providers, "_get_local_constants"):
        providers._get_local_constants = providers.Constants


def described() -> str:
    """One line for the head of a run."""
    return f"properties: profile {profile()}, {examples(USUAL_EXAMPLES)} examples ({VARIABLE})"
