"""Command-line options, with bounds.

Owns parsing: a bad value ends in one line that names option, value and bound, and in exit code 2.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """The standard parser, its complaint one line without the usage text."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def whole(low: int, high: int) -> Callable[[str], int]:
    """A parser of whole numbers from low to high, both allowed."""

    def parse(text: str) -> int:
        # The length goes first: Python refuses, with a traceback, numbers of thousands of digits.
        if not (len(text) <= 12 and text.isascii() and text.isdigit() and low <= int(text) <= high):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, {low} to {high}")
        return int(text)

    return parse


def positive(high: float) -> Callable[[str], float]:
    """A parser of numbers above zero, up to `high`."""

    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = 0.0
        if not 0 < number <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0, up to {high:g}")
        return number

    return parse
