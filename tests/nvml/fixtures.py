"""Fixtures with a stand-in for NVML: in a child's environment, or inside this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nvml.library import Stub, build, loaded


@pytest.fixture
def nvml_stub(tmp_path: Path) -> Stub:
    """A compiled stub for children (`Stub.environment`); without a scenario there is no driver."""
    return Stub(build(), tmp_path / "nvml-scenario")


@pytest.fixture
def nvml(nvml_stub: Stub) -> Iterator[Stub]:
    """The stub loaded in this process: the true pynvml finds it until the test's end."""
    with loaded(nvml_stub):
        yield nvml_stub
