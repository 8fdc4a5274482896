"""Chooses a Docker Engine for demo, tests and benchmarks, and runs commands with it.

An engine that answers is used as it is; where none does, root gets a private one.

    python -m tools.engine run [--optional] [--private] [--debian 13] -- COMMAND...
    python -m tools.engine clear
"""

from __future__ import annotations

import _weakrefset
import argparse
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tools import debian
from tools.engine_probe import answering_host
from tools.environment import BUILD
from tools.private_engine import RELEASE, Engine, NoEngine, clear_crashed, private_engine
from tools.steps import SetupError, say

ENGINES = BUILD / "engine"
OF_DEBIAN = "engine-debian-"
"""The same of another Debian's engine, before its number."""
REQUIRE = "DLSCHED_REQUIRE_ENGINE"
MISSING = "DLSCHED_ENGINE_MISSING"
CGROUP_PARENT = "DLSCHED_ENGINE_CGROUP"
CHILD_GRACE_S = 60.0
FINALIZERS = (weakref.__file__, _weakrefset.__file__, "<frozen importlib")
"""Files whose functions Python calls when something is no longer used, such as the lock of a module
that was imported."""


@contextmanager
def engine(*, private: bool = False, engines: Path = ENGINES) -> Iterator[Engine]:
    """The engine that answers, or a private one; with `private` always that. Raises NoEngine."""
    host = None if private else answering_host(os.environ)
    if host is not None:
        say(f"using the Docker Engine at {host}")
        yield Engine(host)
        return
    named = os.environ.get("DOCKER_HOST")
    if named and not private:
        say(f"no Docker Engine answers at DOCKER_HOST={named}")
    with private_engine(engines) as own:
        yield own


def run_command(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the command to its end, passing signals on to it; returns its exit code."""
    deadline_s: float | None = None
    child = subprocess.Popen(command, env=environment)

    def pass_on(number: int, _frame: FrameType | None) -> None:
        nonlocal deadline_s
        deadline_s = time.monotonic() + CHILD_GRACE_S
        # The terminal sends Ctrl-C to the whole foreground group, the child included.
        if not (number == signal.SIGINT and sys.stdin is not None and sys.stdin.isatty()):
            child.send_signal(number)

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [(number, signal.signal(number, pass_on)) for number in signals]
    try:
        while True:
            try:
                code = child.wait(timeout=1.0)
                return code if code >= 0 else 128 - code
            except subprocess.TimeoutExpired:
                if deadline_s is not None and time.monotonic() > deadline_s:
                    child.kill()
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def run(command: Sequence[str], *, private: bool, optional: bool, engines: Path = ENGINES) -> int:
    """Run a command with DOCKER_HOST set to an engine that answers.

    With `optional`, and unless DLSCHED_REQUIRE_ENGINE is 1, the command also runs without an
    engine, with the reason in DLSCHED_ENGINE_MISSING.
    """
    environment = dict(os.environ)
    try:
        with engine(private=private, engines=engines) as chosen:
            environment["DOCKER_HOST"] = chosen.host
            if chosen.cgroup_parent is not None:
                environment[CGROUP_PARENT] = chosen.cgroup_parent
            return run_command(command, environment)
    except NoEngine as reason:
        if not optional or environment.get(REQUIRE) == "1":
            raise
        say(f"going on without a Docker Engine: {reason}")
        environment[MISSING] = str(reason)
        environment.pop("DOCKER_HOST", None)
    return run_command(command, environment)


def end_with_signal(number: int, frame: FrameType | None) -> None:
    """Turn a signal into an exit, so that every `finally` on the way runs."""
    if _drops_exceptions(frame):
        threading.Timer(0.05, os.kill, (os.getpid(), number)).start()
        return
    raise SystemExit(128 + number)


def _drops_exceptions(frame: FrameType | None) -> bool:
    """Whether a finalizer may run: Python ignores what is raised there."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "__del__" or code.co_filename.startswith(FINALIZERS):
            return True
        frame = frame.f_back
    return False


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command with a Docker Engine, or clear what crashed runs have left."""
    parser = argparse.ArgumentParser(prog="python -m tools.engine", description=main.__doc__)
    parser.add_argument(
        "--engines", type=Path, help="where private engines keep their data (.build/engine)"
    )
    actions = parser.add_subparsers(dest="action", required=True)
    runner = actions.add_parser("run", help="run COMMAND with DOCKER_HOST set")
    runner.add_argument("--optional", action="store_true", help="run it without an engine, too")
    runner.add_argument("--private", action="store_true", help="even where an engine answers")
    runner.add_argument(
        "--debian",
        type=int,
        choices=[release for release in debian.SUITES if release != debian.RELEASE],
        help="a private engine of that Debian's packages; nothing is installed",
    )
    runner.add_argument("command", nargs="+", metavar="COMMAND")
    actions.add_parser("clear", help="clear what crashed runs have left")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, end_with_signal)
    signal.signal(signal.SIGHUP, end_with_signal)
    try:
        if options.action == "clear":
            kept = [options.engines] if options.engines else [ENGINES, *BUILD.glob(f"{OF_DEBIAN}*")]
            living = sum(clear_crashed(folder.resolve()) for folder in kept)
            if living:
                say(f"error: {living} private engines are in use by running commands")
            return min(living, 1)
        engines = options.engines or ENGINES
        if options.debian:
            # Read by private engines that the command starts, too. Images are kept apart: an older
            # engine need not read what a newer one has written.
            os.environ[RELEASE] = str(options.debian)
            engines = options.engines or BUILD / f"{OF_DEBIAN}{options.debian}"
        return run(
            options.command,
            private=options.private or bool(options.debian),
            optional=options.optional,
            engines=engines.resolve(),
        )
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except SetupError as error:
        say(f"error: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
