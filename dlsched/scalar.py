"""What one unquoted YAML scalar means, where every reader of YAML agrees; else why it is refused.

Owns the traps of YAML 1.1 and 1.2. It must not know where a scalar stands.
"""

from __future__ import annotations

import re

from dlsched.units import shown

_BOOLEANS = {"true": True, "True": True, "TRUE": True}
_BOOLEANS |= {"false": False, "False": False, "FALSE": False}
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17}|(?=\.[0-9]))(?:\.[0-9]{0,17})")
EXPONENT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+")
"""Text to one reader of YAML, a number to another; kept as text, which is what commands want."""
_TRAPS = (
    (re.compile(r"yes|Yes|YES|on|On|ON"), "is true to some readers of YAML"),
    (re.compile(r"no|No|NO|off|Off|OFF"), "is false to some readers of YAML"),
    (re.compile(r"[-+]?0[0-9_]+"), "is octal to some readers of YAML"),
    (re.compile(r"[-+]?0[xob][0-9a-fA-F_]+"), "is a number in another base to YAML"),
    (re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"), "is base 60 to YAML"),
    (re.compile(r"[-+]?(?=.*_)[0-9][0-9_]*(?:\.[0-9_]*)?"), "is a number to some readers of YAML"),
    (re.compile(r"[-+]?(?:[0-9]{19,}\.?[0-9]*|[0-9]*\.[0-9]{18,})"), "has too many digits"),
    (re.compile(r"[-+]?\.(?:inf|Inf|INF|nan|NaN|NAN)"), "is no number that can be meant"),
    (re.compile(r"=|<<"), "is an operator of YAML"),
)
_TRUTH = {"is true": "true", "is false": "false"}


class WrittenInt(int):
    """A whole number that remembers how it was written, for where text is meant."""

    text: str


class WrittenFloat(float):
    """A number that remembers how it was written: a label `version: 1.10` must not become 1.1."""

    text: str


Scalar = None | bool | WrittenInt | WrittenFloat | str


def read_plain(text: str) -> Scalar:
    """What an unquoted scalar means; ValueError with the reason where readers differ."""
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    for pattern, why in _TRAPS:
        if pattern.fullmatch(text):
            raise ValueError(f"{shown(text)} {why}: {_remedy(text, why)}")
    if _INTEGER.fullmatch(text):
        number = WrittenInt(text)
        number.text = text
        return number
    if _FLOAT.fullmatch(text):
        real = WrittenFloat(text)
        real.text = text
        return real
    return text


def _remedy(text: str, why: str) -> str:
    for start, boolean in _TRUTH.items():
        if why.startswith(start):
            return f'write "{text}" in quotes for the word, or {boolean}'
    quoted = text if len(text) <= 30 else "it"
    return f'write "{quoted}" in quotes for the text, or a plain decimal number'
