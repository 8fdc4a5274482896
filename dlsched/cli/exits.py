"""Exit codes of commands."""

FAILURE = 1
INVALID = 2
"""Wrong usage, or an invalid file."""
UNREACHABLE = 3
"""No daemon or no engine, or the daemon cannot answer yet: it has just started, or is busy."""
