"""What reads what: the stacks that were tried, out of the tests' own table and extracts."""

from __future__ import annotations

from dlsched.config.metrics.loading import package_presets
from docs.generate.markdown import table
from tests.stacks.fixture import load, path_of
from tests.stacks.stack import Stack, Tried
from tests.stacks.table import RUN, STACKS, counts


def markdown() -> str:
    """The three counts, and a table of every stack."""
    programs = len({one.packages[0] for one in RUN})
    said = ", ".join(f"{tried} {count}" for tried, count in counts().items())
    said = said.replace(",", f" (of {programs} programs),", 1)
    head = ("program", "preset", "tried", "what is read", "what it needs")
    return f"{said[0].upper()}{said[1:]}.\n\n{table(head, map(_row, STACKS))}"


def _row(stack: Stack) -> tuple[str, str, str, str, str]:
    tried = str(stack.tried)
    if stack.tried is Tried.RUN:
        tried = f"{tried}: {load(path_of(stack.name)).made.partition(';')[0]}"
    needs = "; ".join(filter(None, (_needed(stack.preset), stack.note)))
    return stack.title, f"`{stack.preset}`" if stack.preset else "", tried, stack.reads, needs


def _needed(preset: str) -> str:
    fields = package_presets().plain(preset) if preset else {}
    return f"`{fields['needs']}`" if "needs" in fields else ""
