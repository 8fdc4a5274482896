"""The shortened play: an agent that dies once in each kind of action that needs an engine, but for
forgetting records; in full by `make torture`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.torture.acts import Act, acts
from tests.torture.play import fault, points_of, shortened, stage
from tests.torture.world import World

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def world(docker_host: str, base_image: str) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", docker_host)
        with stage("fair") as one:
            yield one


@pytest.fixture(scope="module")
def played() -> set[str]:
    return set()


@pytest.mark.parametrize("act", acts(), ids=lambda act: act.name)
def test_a_death_in_each_kind_of_action_loses_nothing(world: World, act: Act, played: set[str]):
    points = points_of(world, act)
    assert points
    runs = [fault(world, act, *one) for one in shortened(points, played)]
    lost = [f"{run.phase} {run.point}: {'; '.join(run.wrong)}" for run in runs if run.wrong]
    assert not lost, "\n".join(lost)
    assert world.ceilings.samples
    assert all(run.reached for run in runs), [str(run.point) for run in runs if not run.reached]
