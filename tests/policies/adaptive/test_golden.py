"""The policy `adaptive` decides what it was seen to decide: committed traces, see `golden`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.policies.golden import GOLDEN, Golden, decisions, path_of


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.name)
def test_it_decides_what_it_decided(golden: Golden) -> None:
    wanted = json.loads(path_of(golden).read_text())
    found = json.loads(json.dumps(decisions(golden)))
    assert len(found) == len(wanted) > 10
    for one, other in zip(found, wanted, strict=True):
        assert one == _near(other)


def _near(value: Any) -> Any:
    """A library's last digits may differ from one machine to the next, and so a rounding."""
    if isinstance(value, dict):
        return {key: _near(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_near(item) for item in value]
    return pytest.approx(value, rel=2e-3) if isinstance(value, float) else value
