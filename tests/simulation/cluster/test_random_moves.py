"""The policy `random` is for simulations alone, and draws by their seed."""

from __future__ import annotations

import pytest

from dlsched.cluster.core.registry import CLUSTER, load
from dlsched.model.errors import PolicyError
from dlsched.policies.registry import known
from dlsched.simulation.cluster.random_moves import RandomPolicy, simulated_policy
from dlsched.simulation.cluster.run import ClusterOptions, simulate_cluster
from tests.simulation.cluster.test_thin import three_jobs

ALWAYS = "random?moves_per_round=1"


def seed_of(spelled: str, seed: int) -> int:
    policy = simulated_policy(spelled, seed)
    assert isinstance(policy, RandomPolicy)
    return policy.parameters.seed


def test_it_draws_by_the_seed_of_the_simulation_unless_it_has_its_own() -> None:
    assert seed_of("random", 5) == 5
    assert seed_of("random?seed=3", 5) == 3


def test_no_real_controller_has_it() -> None:
    assert "random" not in known(CLUSTER)
    with pytest.raises(PolicyError, match="no policy 'random'"):
        load("random")


def test_a_simulation_names_it_among_its_policies() -> None:
    with pytest.raises(PolicyError, match=r"no policy 'rondom'; known are .*random"):
        simulated_policy("rondom", 1)


def test_the_same_seed_moves_the_same_jobs() -> None:
    """Another one draws others."""

    def moves(spelled: str) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        options = ClusterOptions(
            publish=lambda report: found.extend(
                (one.job, one.on) for one in report.written if one.source
            )
        )
        simulate_cluster(three_jobs(), spelled, 1, options)
        return found

    first = moves(ALWAYS)
    assert first == moves(f"{ALWAYS}&seed=1") != []
    assert any(first != moves(f"{ALWAYS}&seed={seed}") for seed in range(2, 6))
