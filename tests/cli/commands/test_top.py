"""The command itself: where it refuses, and a whole run in a real pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from dlsched.cli.commands.top import _unfit
from tests.cli.conftest import Program
from tests.status_source import FakeSource, example_report

pytestmark = pytest.mark.timed

TOP = [sys.executable, "-m", "dlsched", "top"]


def test_without_a_terminal_it_refuses_in_one_line(program: Program, daemon: FakeSource) -> None:
    result = program("top")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "error: top needs a terminal, and standard input is not one; "
        "`dlsched ps` prints a table anywhere\n"
    )


@pytest.mark.parametrize(
    ("files", "term", "said"),
    [
        ("", "xterm", None),
        ("stdin", "xterm", "top needs a terminal, and standard input is not one"),
        ("stdout", "xterm", "top needs a terminal, and standard output is not one"),
        ("stderr", "xterm", "top needs a terminal, and standard error is not one"),
        ("", "dumb", "top needs a terminal that can be drawn on, and TERM is 'dumb'"),
    ],
)
def test_each_of_the_three_must_be_a_terminal_that_can_be_drawn_on(
    monkeypatch: pytest.MonkeyPatch, files: str, term: str, said: str | None
) -> None:
    for name in ("stdin", "stdout", "stderr"):
        stream = SimpleNamespace(isatty=lambda is_file=name == files: not is_file)
        monkeypatch.setattr(f"sys.{name}", stream)
    monkeypatch.setenv("TERM", term)
    assert _unfit() == said


class Terminal:
    """A pseudo-terminal, read as a terminal does."""

    def __init__(self, rows: int = 24, columns: int = 100) -> None:
        self._end, self.inner = pty.openpty()
        fcntl.ioctl(self.inner, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.drawn = b""

    def until(self, wanted: bytes) -> None:
        until_s = time.monotonic() + 60
        while wanted not in self.drawn:
            left_s = until_s - time.monotonic()
            assert left_s > 0, self.drawn[-2000:]
            if select.select([self._end], [], [], left_s)[0]:
                self.drawn += os.read(self._end, 1 << 16)

    def type(self, keys: bytes) -> None:
        os.write(self._end, keys)

    def close(self) -> None:
        os.close(self._end)
        os.close(self.inner)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    yield terminal
    terminal.close()


@pytest.mark.process
@pytest.mark.parametrize("end", ["q", "SIGTERM"])
def test_it_draws_and_gives_the_terminal_back(
    terminal: Terminal, daemon: FakeSource, end: str
) -> None:
    before = termios.tcgetattr(terminal.inner)
    daemon.stream.publish(example_report())
    streams = {"stdin": terminal.inner, "stdout": terminal.inner, "stderr": terminal.inner}
    with subprocess.Popen(TOP, env={**os.environ, "TERM": "xterm-256color"}, **streams) as process:  # type: ignore[call-overload]
        terminal.until(b"digits-resnet")
        terminal.until(b"Quit")
        if end == "q":
            terminal.type(b"q")
        else:
            process.terminate()
        terminal.until(b"\x1b[?1049l")  # the screen from before
        assert process.wait(60) == 0
    assert b"\x1b[?1049h" in terminal.drawn
    assert b"Traceback" not in terminal.drawn
    assert termios.tcgetattr(terminal.inner) == before


def test_it_names_the_extra_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlsched.cli.commands.top.find_spec", lambda _: None)
    assert _unfit() == "top needs the package textual: pip install 'dlsched[top]'"
