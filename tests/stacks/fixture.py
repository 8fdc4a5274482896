"""An extract of what a real program exported or printed, as a text file with a header."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "fixtures"

_HEADER = "#: "
_PAGE = "#: page"
_LOG = "#: log"
# Line ends inside a line: a progress bar's carriage returns, and the escapes of terminals.
_SHOWN = {"\r": "␍", "\x1b": "␛"}


@dataclass(frozen=True)
class Extract:
    """What is kept of one run."""

    stack: str
    made: str
    """Versions, where and when it ran."""
    command: str
    kept: str
    """Which part of what it exported or printed this is."""
    truth: dict[str, Any]
    """What the program measured itself."""
    pages: tuple[bytes, ...] = ()
    log: tuple[tuple[float, bytes], ...] = field(default=())
    """The lines with the time at which they arrived, in seconds since the start."""


def path_of(stack: str) -> Path:
    return FOLDER / f"{stack}.txt"


def written(extract: Extract) -> str:
    """The file's content."""
    lines = [
        f"{_HEADER}{name}: {value}"
        for name, value in (
            ("stack", extract.stack),
            ("made", extract.made),
            ("command", extract.command),
            ("kept", extract.kept),
            ("truth", json.dumps(extract.truth)),
        )
    ]
    for page in extract.pages:
        lines += [_PAGE, *page.decode().splitlines()]
    if extract.log:
        lines += [_LOG, *(f"{at_s:9.3f} {_visible(text)}" for at_s, text in extract.log)]
    return "\n".join(lines) + "\n"


def load(path: Path) -> Extract:
    """The extract in that file."""
    # Only \n ends a line here.
    head, pages, log = {}, [], []
    now: list[str] | None = None
    for line in path.read_text(encoding="utf-8").removesuffix("\n").split("\n"):
        if line == _PAGE:
            now = []
            pages.append(now)
        elif line == _LOG:
            now = log
        elif now is not None:
            now.append(line)
        else:
            name, _, value = line.removeprefix(_HEADER).partition(": ")
            head[name] = value
    return Extract(
        stack=head["stack"],
        made=head["made"],
        command=head["command"],
        kept=head["kept"],
        truth=json.loads(head["truth"]),
        pages=tuple("".join(f"{line}\n" for line in page).encode() for page in pages),
        log=tuple((float(line[:9]), _printed(line[10:])) for line in log),
    )


def lines_of(chunks: Sequence[tuple[float, bytes]]) -> list[tuple[float, bytes]]:
    """What was printed as lines, each with the time at which its end arrived. A carriage return
    ends a line too, unless a line feed follows."""
    lines: list[tuple[float, bytes]] = []
    rest = b""
    for at_s, chunk in chunks:
        rest = (rest + chunk).replace(b"\r\n", b"\n")
        begin = 0
        for index in range(len(rest)):
            if rest[index] in b"\r\n" and rest[index + 1 : index + 2] != b"":
                lines.append((at_s, rest[begin : index + 1]))
                begin = index + 1
        rest = rest[begin:]
        if rest.endswith(b"\n"):
            lines.append((at_s, rest))
            rest = b""
    if rest:
        lines.append((chunks[-1][0], rest))
    return lines


def _visible(line: bytes) -> str:
    text = line.decode("utf-8", "backslashreplace").removesuffix("\n")
    for sign, shown in _SHOWN.items():
        text = text.replace(sign, shown)
    return text


def _printed(text: str) -> bytes:
    """The line's bytes: one that ends with a carriage return has no line feed."""
    for sign, shown in _SHOWN.items():
        text = text.replace(shown, sign)
    return text.encode() if text.endswith("\r") else f"{text}\n".encode()
