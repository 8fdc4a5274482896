"""Debian's Prometheus, unpacked and not installed: no service of it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import debian
from tools.environment import BUILD, ROOT

CONFIG = ROOT / "config" / "prometheus"


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of `prometheus` and `promtool`."""
    debian.unpack("prometheus", BUILD / "prometheus", "the tests of metrics and alerts")
    return BUILD / "prometheus" / "usr" / "bin"
