"""Every alarm by its key, from the enumeration that the program uses."""

from __future__ import annotations

from dlsched.model.alarms import AlarmKey
from docs.generate.markdown import table


def markdown() -> str:
    """A table of every key: what it means and what to do."""
    rows = ((f"`{key.value}`", key.meaning, key.remedy) for key in AlarmKey)
    return table(("key", "what it means", "what to do"), rows)
