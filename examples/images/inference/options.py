"""Command-line options that also come from the environment, as containers like them.

Owns parsing and bounds: a bad value ends in one line that names option, value and bound, and in
exit code 2, whether it came from the command line or from the environment.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import NoReturn

from classifier import catalogue


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


def seconds(text: str) -> float:
    """A duration above zero, up to a day."""
    return positive(text, 86_400)


def positive(text: str, high: float) -> float:
    """A number above zero, up to `high`."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= high:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0, up to {high:g}")
    return number


def model(text: str) -> str:
    """The name of a network that models/ holds."""
    known = sorted(catalogue())
    if text not in known:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(known)}")
    return text


def add_model(parser: argparse.ArgumentParser) -> None:
    """--model and --threads, or MODEL and THREADS."""
    parser.add_argument(
        "--model",
        type=model,
        default=os.environ.get("MODEL", "mobilenet"),
        help="network to run (environment: MODEL; default mobilenet)",
    )
    parser.add_argument(
        "--threads",
        type=whole(1, 64),
        default=os.environ.get("THREADS", "1"),
        help="threads of ONNX Runtime (environment: THREADS; default 1)",
    )
