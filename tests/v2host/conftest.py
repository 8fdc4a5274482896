"""Owns the leaving out of these tests wherever they do not run in the emulated host.

Its fixtures are those of the hands on any engine.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.runtime.docker.limits.test_writer_engine import agent, make  # noqa: F401

WHY = "for an emulated host with cgroup v2 and systemd: `make test-v2`"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave them out, and say how to run them."""
    if os.environ.get("DLSCHED_V2HOST") == "1":
        return
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("v2host"):
            item.add_marker(pytest.mark.skip(reason=WHY))
