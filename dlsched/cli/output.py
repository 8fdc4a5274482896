"""What commands print: data on stdout, messages on stderr, and nothing that controls a terminal."""

from __future__ import annotations

import codecs
import json
import re

import click

from dlsched.model.units import plain_text

# What a terminal obeys: control sequences, titles and the like; then any control left over.
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
    """`text` without control characters, newlines and tabs among them, so that it adds no line."""
    return plain_text(clean(text))


def say(text: str) -> None:
    click.echo(clean(text), err=True)


def print_text(text: str) -> None:
    click.echo(clean(text))


def print_json(value: object) -> None:
    """Print JSON on stdout, with control characters escaped."""
    click.echo(json.dumps(value, indent=2))


class LogText:
    """Turns a log's bytes, in chunks of any size, into text that is safe to print."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._held = ""

    def feed(self, chunk: bytes, *, last: bool = False) -> str:
        """The text that can be printed now. A possible half of a control sequence is held back."""
        text = self._held + self._decode(chunk, last)
        half = max(text.rfind("\x1b", -64), len(text) - 1 if text.endswith("\r") else -1)
        whole = _SEQUENCE.match(text, half) if half >= 0 else None
        if half < 0 or last or (whole is not None and whole.end() < len(text)):
            half = len(text)
        self._held = text[half:]
        return clean(text[:half])
