"""The journal: every cycle kept exactly, for as long as its bounds allow.

Owns the history file. `writer` writes it off the loop's path, `reader` answers questions beside the
running daemon, `coding` turns reports into rows, `frames` tells what changed,
`told` what is worth a row of its own; `store` and `schema` are the file.
It must not decide anything: what is lost with it is history, never a job.
"""

from typing import Final

from dlsched.journal.coding import load_memory, memory_size_check, recalled, shadow_name
from dlsched.journal.reader import Growth, JournalReader
from dlsched.journal.told import Change, Event
from dlsched.journal.writer import Journal

JOURNAL_NAME: Final = "journal.db"
"""The journal in the state directory."""

DRY_RUN_JOURNAL_NAME: Final = "dry-run.db"
"""What was only thought must not be remembered as done."""

__all__ = [
    "DRY_RUN_JOURNAL_NAME",
    "JOURNAL_NAME",
    "Change",
    "Event",
    "Growth",
    "Journal",
    "JournalReader",
    "load_memory",
    "memory_size_check",
    "recalled",
    "shadow_name",
]
