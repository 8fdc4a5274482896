"""The one import face of policy authors, and what a policy is told that imports from elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dlsched import policies
from dlsched.model.errors import PolicyError
from dlsched.policies.registry import load


def test_every_name_of_the_face_is_there() -> None:
    assert all(hasattr(policies, name) for name in policies.__all__)
    assert sorted(policies.__all__) == policies.__all__


@pytest.mark.parametrize(
    "line",
    [
        "from dlsched.model import Decision",
        "from dlsched import model\nmodel.Limits",
        "import dlsched.errors",
    ],
)
def test_a_policy_that_imports_from_another_place_learns_the_right_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    (tmp_path / "old_policy.py").write_text(f"{line}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "old_policy", raising=False)
    with pytest.raises(PolicyError) as raised:
        load("old_policy:Mine")
    assert "import from dlsched.policies, which has " in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("line", ["from json import Decision", "import dlsched_of_mine"])
def test_of_modules_that_are_not_ours_nothing_more_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    (tmp_path / "other_policy.py").write_text(f"{line}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PolicyError) as raised:
        load("other_policy:Mine")
    assert "dlsched.policies" not in str(raised.value)
