"""Every kind of alarm has a stable key, a meaning and a remedy."""

from __future__ import annotations

import re
from pathlib import Path

from dlsched.model.alarms import AlarmKey

PRODUCT = Path(__file__).parents[2] / "dlsched"


def test_every_key_is_kebab_case_with_one_line_of_meaning_and_one_of_remedy() -> None:
    for key in AlarmKey:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)+|[a-z]+", key.value)
        for line in (key.meaning, key.remedy):
            assert re.fullmatch(r"\S.*[.]", line), key


def test_every_key_is_raised_somewhere() -> None:
    code = "".join(path.read_text() for path in PRODUCT.rglob("*.py"))
    unused = [key.name for key in AlarmKey if f"AlarmKey.{key.name}" not in code]
    assert unused == []
