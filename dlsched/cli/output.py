"""What commands print: data on stdout, words on stderr, and nothing that steers a terminal.

Owns the cleaning of foreign text. It must not know what the text says.
"""

from __future__ import annotations

import codecs
import json
import re

import click

from dlsched.model.units import plain_text

# What a terminal would obey: control sequences, titles and the like, then any control left over.
_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"
    r"|\x1b(?![\[\]PX^_])[ -/]*[0-~]"
)


def clean(text: str) -> str:
    """`text` without control characters; lines and tabs stay."""
    bare = _SEQUENCE.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return re.sub(r"[^\n\t]+", lambda match: plain_text(match[0]), bare)


def one_line(text: str) -> str:
    """`text` without control characters, newlines and tabs among them: it forges no line."""
    return plain_text(clean(text))


def say(text: str) -> None:
    """A word to whoever called, on stderr."""
    click.echo(clean(text), err=True)


def tell(text: str) -> None:
    """Data, on stdout."""
    click.echo(clean(text))


def tell_json(value: object) -> None:
    """Data for a program; JSON escapes what a terminal would obey."""
    click.echo(json.dumps(value, indent=2))


class LogText:
    """Turns a log's bytes, which come in any pieces, into text that is safe to print."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._held = ""

    def feed(self, chunk: bytes, *, last: bool = False) -> str:
        """What can be printed now; the end of a piece is held while it may be half a sequence."""
        text = self._held + self._decode(chunk, last)
        half = max(text.rfind("\x1b", -64), len(text) - 1 if text.endswith("\r") else -1)
        whole = _SEQUENCE.match(text, half) if half >= 0 else None
        if half < 0 or last or (whole is not None and whole.end() < len(text)):
            half = len(text)
        self._held = text[half:]
        return clean(text[:half])
