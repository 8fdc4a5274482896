"""How commands end: their exit codes. It must not decide which one is due."""

FAILURE = 1
INVALID = 2
"""Wrong usage, or an invalid file."""
UNREACHABLE = 3
"""No daemon, or no engine."""
