"""The whole way once: a lock in a real container is named, and nothing else is."""

from __future__ import annotations

import pytest

from benchmarks.real.bottleneck import SCENES, run
from dlsched.model.bottleneck import Cause
from tools.session import Session

pytestmark = [pytest.mark.e2e, pytest.mark.engine, pytest.mark.long]


def test_a_lock_is_named(node: Session, changes_host_network: None) -> None:
    node.start("none")
    scene = next(one for one in SCENES if one.cause is Cause.LOCK)
    row = run(node, scene, 1)
    assert row.right, row
