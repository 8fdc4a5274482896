"""The real programs themselves: run again, and read as they measure. A lane of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from tests.stacks import environments, passed
from tests.stacks.making import engine, make
from tests.stacks.stack import Stack
from tests.stacks.table import RUN
from tools.engine_probe import answering_host
from tools.environment import BUILD

EXTRACTS = BUILD / "stacks" / "extracts"
# Packages are downloaded by the first case that needs them.
TIMEOUT_S = 1500

pytestmark = [pytest.mark.stacks, pytest.mark.timeout(TIMEOUT_S)]


@pytest.fixture(scope="module")
def client() -> Iterator[docker.APIClient]:
    """Of the engine that answers."""
    if answering_host(os.environ) is None:
        pytest.skip("real programs run in containers, and no engine answers")
    with engine() as found:
        yield found


@pytest.mark.parametrize("stack", RUN, ids=lambda one: one.name)
def test_is_read_as_it_measures(stack: Stack, client: docker.APIClient) -> None:
    if passed.has_passed(stack):
        pytest.skip(f"{stack.name}: read rightly before, and nothing changed since")
    missing = [one for one in stack.files if not Path(one).is_file()]
    if missing:
        pytest.skip(f"{stack.name}: this machine has no {missing[0]}")
    environments.ensure(stack.environment)
    assert make(stack, EXTRACTS, client) == []
    passed.keep(stack)
