"""Does what a tutorial says, as a reader would: writes its files, types its commands, compares.

A page's fenced blocks count, in order:

- `console`: a line that begins with `$ ` is typed; the lines below it are what should be seen, from
  the top of the output. `...` stands for anything, spaces for spaces, and a number for one that is
  at most a quarter away. What is only looked at (`dlsched ps`, `cat`) is tried until it fits.
- any other language: a file, if the first line is a comment that is a file's name.
"""

from __future__ import annotations

import re
import secrets
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_BLOCK = re.compile(r"^```([a-z]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\S+\.[a-z]+)\n")
_LOOKS = ("dlsched ps", "dlsched why", "docker logs", "cat ")
_NUMBER = re.compile(r"(?<![\w.-])\d+(?:\.\d+)?(?![\w.-])")
TOLERANCE_RATIO = 0.25


@dataclass(frozen=True)
class Typed:
    """A line that the reader types, and what the page says that it shows."""

    command: str
    shown: tuple[str, ...] = ()


def steps(page: str) -> list[Typed]:
    """What a reader of that page types, files included."""
    found: list[Typed] = []
    for language, body in _BLOCK.findall(page):
        if language == "console":
            found += _typed(body)
        elif name := _FILE.match(body):
            found.append(Typed(f"cat > {name[1]} <<'END-OF-FILE'\n{body}END-OF-FILE"))
    return found


def _typed(body: str) -> list[Typed]:
    found: list[Typed] = []
    for line in body.splitlines():
        if line.startswith("$ "):
            found.append(Typed(line[2:]))
        else:
            found[-1] = Typed(found[-1].command, (*found[-1].shown, line))
    return found


def fits(shown: tuple[str, ...], output: str) -> bool:
    """Whether the output begins as the page shows it."""
    numbers: list[float] = []

    def pattern(line: str) -> str:
        parts = []
        for words in line.split():
            if words == "...":
                parts.append(r".*")
            elif _NUMBER.fullmatch(words):
                numbers.append(float(words))
                parts.append(r"(\d+(?:\.\d+)?)")
            else:
                parts.append(re.escape(words))
        return r"\s*" + r"\s*".join(parts).replace(r".*\s*", ".*") + r"\s*"

    whole = re.compile(r"\n".join(pattern(line) for line in shown) + r"(\n.*)?", re.DOTALL)
    found = whole.fullmatch(output.strip("\n"))
    if found is None:
        return False
    seen = [float(one) for one in found.groups()[: len(numbers)]]
    return all(
        abs(one - meant) <= TOLERANCE_RATIO * meant
        for one, meant in zip(seen, numbers, strict=True)
    )


class Reader:
    """Somebody with one shell who follows a page."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=folder,
            env=dict(environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def follow(self, page: str, *, patience_s: float) -> None:
        """Do all that the page says. AssertionError where something else is seen."""
        for step in steps(page):
            self._do(step, patience_s)

    def _do(self, step: Typed, patience_s: float) -> None:
        deadline_s = time.monotonic() + patience_s
        while True:
            code, output = self.type(step.command)
            right = fits(step.shown, output) if step.shown else True
            refused = any(line.startswith("error: ") or ":1: " in line for line in step.shown)
            if right and (code == 0 or refused):
                return
            looks = step.command.startswith(_LOOKS)
            if not looks or time.monotonic() > deadline_s:
                meant = "\n".join(step.shown)
                raise AssertionError(f"$ {step.command}\n{output}\nexit {code}; meant:\n{meant}")
            time.sleep(1)

    def type(self, command: str) -> tuple[int, str]:
        """The exit code of a command, and what it wrote."""
        mark = secrets.token_hex(8)
        stdin, stdout = self._pipes()
        stdin.write(f"{command}\nprintf '\\n%s %s\\n' {mark} $?\n")
        stdin.flush()
        lines: list[str] = []
        for line in stdout:
            if line.startswith(mark):
                return int(line.split()[1]), "".join(lines).removesuffix("\n")
            lines.append(line)
        raise AssertionError(f"$ {command}\n{''.join(lines)}\nthe shell ended")

    def close(self) -> None:
        """End the shell and what it still runs."""
        stdin, stdout = self._pipes()
        with suppress(BrokenPipeError):
            stdin.write("kill $(jobs -p) 2>/dev/null; wait\n")
            stdin.close()
        self._shell.wait(timeout=60)
        stdout.close()

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        return self._shell.stdin, self._shell.stdout
