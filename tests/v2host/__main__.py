"""`make test-v2`: the tests marked v2host, in an emulated host with cgroup v2 and systemd.

    python -m tests.v2host [--gate] [--debian 13]
    python -m tests.v2host COMMAND...

Owns the order of things and the report of their duration. With `--debian` the engine is that
Debian's, and the tests are those of the gate and the contract of the engine's adapter. COMMAND is a
shell command to run there instead of the tests, such as `docker info`.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import time
from collections.abc import Sequence

from tests.v2host.build import build
from tests.v2host.machine import needed, perform
from tools.environment import ROOT
from tools.private_engine import unpacked_engine
from tools.steps import SetupError, say

# The interpreter's own end would take ten seconds in there.
PYTEST = "import os, pytest, sys; code = pytest.main(); sys.stdout.flush(); os._exit(code)"
OPTIONS = ("-p", "no:cacheprovider", "--durations=9", "-m")
ALL = ("v2host", "tests/v2host")
CONTRACT = "(v2host and gate) or (contract and not slow)"
WITHIN_S = 1500.0
"""Everything is 15 to 20 times slower in there, and slower still beside other work."""


def choice(*, gate: bool, contract: bool) -> tuple[str, ...]:
    """Arguments of pytest: which cases, and the files that have them. To read the others would take
    minutes in there."""
    if contract:
        return (
            CONTRACT,
            *files_with("gate", "tests/v2host"),
            *files_with("contract", "tests/runtime"),
        )
    return ("v2host and gate", *files_with("gate", "tests/v2host")) if gate else ALL


def files_with(marker: str, folder: str) -> list[str]:
    """Test files that use the marker."""
    files = sorted((ROOT / folder).rglob("test_*.py"))
    used = f"mark.{marker}"
    return [str(one.relative_to(ROOT)) for one in files if used in one.read_text(encoding="utf-8")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, boot, run, and say how long it took."""
    parser = argparse.ArgumentParser(prog="python -m tests.v2host", description=main.__doc__)
    parser.add_argument("--gate", action="store_true", help="only what `.ci/run` runs")
    parser.add_argument("--debian", type=int, choices=[13], help="the engine of that Debian")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    options = parser.parse_args(arguments)
    tests = ("-c", PYTEST, *OPTIONS, *choice(gate=options.gate, contract=bool(options.debian)))
    command = " ".join(options.command) or shlex.join(("python3", *tests))
    first = () if options.command else (sys.executable, *tests, "--collect-only")
    # Ended by another signal than Ctrl-C, it cleans up all the same.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    began_s = time.monotonic()
    try:
        built = build()
        ready_s = time.monotonic()
        engine = unpacked_engine(options.debian) if options.debian else None
        code = perform(built, command, needed(), WITHIN_S, first=first, engine=engine)
    except SetupError as error:
        say(f"error: {error}")
        return 1
    ended_s = time.monotonic()
    say(f"cgroup v2 host: {ready_s - began_s:.0f} s building, {ended_s - ready_s:.0f} s running")
    return code


if __name__ == "__main__":
    sys.exit(main())
