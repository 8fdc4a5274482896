"""What all benches share at their command lines: options, and how an interrupted run ends.

Also for jobs that run by another Python, from 3.8 on.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any


def options(
    doc: str | None, arguments: Sequence[str] | None, **known: tuple[Any, str | None]
) -> argparse.Namespace:
    """What a bench is asked for. `known`: by option, its default and what it is.

    A default of False makes a switch; a type, an option without a default; a tuple of names, an
    option that takes some of these names by comma.
    """
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    for name, (default, words) in known.items():
        more: dict[str, Any] = {"default": default, "type": type(default)}
        if default is False:
            more = {"action": "store_true"}
        elif isinstance(default, tuple):
            more.update(type=_some_of(default), metavar=",".join(default))
        elif isinstance(default, type):
            more = {"type": default}
        hidden = argparse.SUPPRESS if words is None else words
        parser.add_argument(f"--{name.replace('_', '-')}", help=hidden, **more)
    return parser.parse_args(arguments)


def _some_of(names: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    def chosen(text: str) -> tuple[str, ...]:
        for one in text.split(","):
            if one not in names:
                raise argparse.ArgumentTypeError(f"no {one!r}; there are {', '.join(names)}")
        return tuple(text.split(","))

    return chosen


def stage(text: str) -> None:
    """Print which part of a bench begins."""
    print(f"== {text}", flush=True)


def end_on_terminate() -> None:
    """SIGTERM, and the end of the terminal, end the program in order: what it started is cleared
    away."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup has it
            signal.signal(number, lambda number, _: sys.exit(128 + number))
