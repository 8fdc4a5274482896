"""The journal: every cycle kept exactly, for as long as its bounds allow.

Owns the history file. `writer` writes it off the loop's path, `reader` answers questions beside the
running daemon, `coding` turns reports into rows, `frames` tells what changed,
`told` what is worth a row of its own; `store` and `schema` are the file.
It must not decide anything: what is lost with it is history, never a job.
"""

from dlsched.journal.coding import load_memory, memory_size_check
from dlsched.journal.reader import Growth, JournalReader
from dlsched.journal.told import Change, Event
from dlsched.journal.writer import Journal

__all__ = [
    "Change",
    "Event",
    "Growth",
    "Journal",
    "JournalReader",
    "load_memory",
    "memory_size_check",
]
