"""The one import face of policy authors, and what a policy is told that imports from elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dlsched import policies
from dlsched.model.errors import PolicyError
from dlsched.policies.registry import _GONE, load


def test_every_name_of_the_face_is_there() -> None:
    assert all(hasattr(policies, name) for name in policies.__all__)
    assert sorted(policies.__all__) == policies.__all__


@pytest.mark.parametrize("names", _GONE.values(), ids=list(_GONE))
def test_what_a_module_had_that_is_no_more_is_in_the_face(names: tuple[str, ...]) -> None:
    exec(f"from dlsched.policies import {', '.join(names)}", {})


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("from dlsched.model import Decision", "write: from dlsched.policies import Decision"),
        ("from dlsched import model\nmodel.Limits", "write: from dlsched.policies import Limits"),
        (
            "from dlsched.division import fair_shares",
            "import Claim, claim, fair_shares, water_fill as pour",
        ),
        ("import dlsched.errors", "write: from dlsched.policies import PolicyError"),
        (
            "from dlsched.model import Outlook",
            "write: from dlsched.policies import Forecast as Outlook",
        ),
        (
            "from dlsched.policies import pour",
            "write: from dlsched.policies import water_fill as pour",
        ),
        ("from dlsched.model import Memory", "what policies need is in dlsched.policies"),
        ("import dlsched.outlook", "what policies need is in dlsched.policies"),
    ],
)
def test_a_policy_that_imports_from_an_old_place_is_told_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, instead: str
) -> None:
    (tmp_path / "old_policy.py").write_text(f"{line}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "old_policy", raising=False)
    with pytest.raises(PolicyError) as raised:
        load("old_policy:Mine")
    assert instead in str(raised.value) and "\n" not in str(raised.value)


def test_of_modules_that_are_not_ours_nothing_more_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other_policy.py").write_text("from json import Decision\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PolicyError) as raised:
        load("other_policy:Mine")
    assert "dlsched" not in str(raised.value)
