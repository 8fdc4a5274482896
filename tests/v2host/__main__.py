"""`make test-v2`: the tests marked v2host, in an emulated host with cgroup v2 and systemd.

Owns the order of things and the words on their duration. With arguments it runs them instead of
the tests, as a shell command: `python -m tests.v2host docker info`.
"""

from __future__ import annotations

import signal
import sys
import time

from tests.v2host.build import build
from tests.v2host.machine import perform
from tests.v2host.packages import needed
from tools.steps import SetupError, say

TESTS = "python3 -m pytest -p no:cacheprovider -m v2host tests/v2host"
WITHIN_S = 1500.0
"""Everything is 15 to 20 times slower in there, and slower still beside other work."""


def main(words: list[str]) -> int:
    """Build, boot, run, and tell how long it took."""
    # Ended by another signal than Ctrl-C, it cleans up all the same.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    began_s = time.monotonic()
    try:
        built = build()
        ready_s = time.monotonic()
        code = perform(built, " ".join(words) or TESTS, needed(), WITHIN_S)
    except SetupError as error:
        say(f"error: {error}")
        return 1
    ended_s = time.monotonic()
    say(f"cgroup v2 host: {ready_s - began_s:.0f} s building, {ended_s - ready_s:.0f} s running")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
