"""Progress lines of the set-up: one for each step, with signs of life during long ones. Standard
library only, Python 3.8 and later, since it runs before the virtual environment exists."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Deque, Iterator, Mapping, Optional, Sequence

FIRST_SIGN_S = 3.0
SIGN_EVERY_S = 4.5
TAIL_LINES = 25
NOTE_WIDTH = 70


class SetupError(Exception):
    """The set-up cannot continue; the text is the one clear line for the user."""


def say(line: str) -> None:
    """Print one line for the user on stderr, unbuffered."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def step(title: str) -> Iterator[Callable[[str], None]]:
    """Time a step: signs of life while it runs, one line with the seconds at its end. Yields a
    function that takes the newest detail for the next sign of life."""
    began_s = time.monotonic()
    ended = threading.Event()
    newest = ""

    def note(detail: str) -> None:
        nonlocal newest
        newest = detail.strip()[:NOTE_WIDTH]

    def show_life() -> None:
        pause_s = FIRST_SIGN_S
        while not ended.wait(pause_s):
            say(f"  ...  {time.monotonic() - began_s:6.1f} s  {title}: {newest or 'working'}")
            pause_s = SIGN_EVERY_S

    life = threading.Thread(target=show_life, daemon=True)
    life.start()
    verdict = "failed"
    try:
        yield note
        verdict = "ok"
    finally:
        ended.set()
        life.join()
        say(f"  {verdict:<6}{time.monotonic() - began_s:5.1f} s  {title}")


def run_step(
    title: str,
    argv: Sequence[str],
    *,
    cwd: Optional[Path] = None,
    env: Optional[Mapping[str, str]] = None,
) -> None:
    """Run a command as one step; its output is shown only when it fails. Raises SetupError when the
    command is missing or ends with another code than 0."""
    tail: Deque[str] = deque(maxlen=TAIL_LINES)
    with step(title) as note:
        try:
            child = subprocess.Popen(
                argv,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
        except OSError as error:
            raise SetupError(f"{title}: cannot run {argv[0]}: {error.strerror}") from error
        with child:
            assert child.stdout is not None
            for line in child.stdout:
                tail.append(line.rstrip())
                note(line)
        if child.returncode != 0:
            for line in tail:
                say(f"         | {line}")
            raise SetupError(f"{title}: {argv[0]} ended with code {child.returncode} (see above)")
