"""Lists every text that a user can meet: messages, reasons, forecasts, alarms, help, the page.

    python -m tools.texts                    all, each with where it is
    python -m tools.texts --draw 200 --seed 1   as many of them, drawn, for readers to explain

A reader of a drawn text gets one line beside it: the file and the function that it comes from. A
text is right if such a reader says what happened, and what to do. A placeholder is shown by its
expression, and a text that is made of parts as its parts.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEAST_LENGTH = 3
"""In what is no key, name or unit, by spaces."""
_PAGE = re.compile(r"(?<![\w$])(?:\"([^\"\n]+)\"|'([^'\n]+)'|`([^`]+)`)")
_DOCUMENTED = ("Keys", "Settings", "Parameters", "AlarmKey")
"""Ends of the names of classes whose fields' docstrings are in the reference."""
_CLICK = ("command", "group", "option", "argument")
_CODE = re.compile(r"(?:SELECT|INSERT|ALTER|CREATE|DELETE|UPDATE|PRAGMA|import|from) ")
"""How a text begins that is a program."""
Defined = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module


@dataclass(frozen=True)
class Shown:
    """A text, and where it comes from."""

    where: str
    text: str


def of_module(source: str, place: str) -> Iterator[Shown]:
    """The texts of a Python module: strings of several words, and docstrings of commands."""
    yield from _of(ast.parse(source), place, "")


def _of(node: ast.AST, place: str, owner: str, commands: bool = False) -> Iterator[Shown]:
    if isinstance(node, Defined):
        owner = getattr(node, "name", owner)
        commands = _is_command(node)
        if ast.get_docstring(node) is not None and not commands:
            node.body = node.body[1:]
    documents = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    if documents and not commands and not owner.endswith(_DOCUMENTED):
        return
    text = _text(node)
    if text is not None and _length(text) >= LEAST_LENGTH and not _CODE.match(text.lstrip()):
        yield Shown(f"{place}:{getattr(node, 'lineno', 1)} {owner}", " ".join(text.split()))
    for child in ast.iter_child_nodes(node):
        if not (isinstance(node, ast.JoinedStr) and isinstance(child, ast.Constant)):
            yield from _of(child, place, owner, commands)


def _is_command(node: Defined) -> bool:
    calls = (ast.unparse(one) for one in getattr(node, "decorator_list", ()))
    return any(re.search(rf"\b(?:{'|'.join(_CLICK)})\(", call) for call in calls)


def _text(node: ast.AST) -> str | None:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(
                str(part.value)
                if isinstance(part, ast.Constant)
                else f"{{{ast.unparse(getattr(part, 'value', part))}}}"
                for part in parts
            )
    return None


def _length(text: str) -> int:
    """The number of words that are no key, name, unit, tag or expression."""
    text = re.sub(r"<[^>]*>|\{[^}]*\}|`[^`]*`", " ", text)
    return sum(bool(re.fullmatch(r"[(]?[A-Za-z'-]{2,}[.,;:)?]*", one)) for one in text.split())


def of_page(source: str, place: str) -> Iterator[Shown]:
    """The strings of several words in a script of the page."""
    for found in _PAGE.finditer(re.sub(r"(?m)^\s*(?://|\*|/\*).*$", "", source)):
        text = next(one for one in found.groups() if one is not None)
        if _length(text) >= LEAST_LENGTH:
            yield Shown(place, " ".join(text.split()))


def all_texts(root: Path = ROOT) -> list[Shown]:
    """All of the product, in the order of its files."""
    found: list[Shown] = []
    for path in sorted((root / "dlsched").rglob("*")):
        place = path.relative_to(root).as_posix()
        if path.suffix == ".py":
            found += of_module(path.read_text(encoding="utf-8"), place)
        elif path.suffix == ".js" and "vendor" not in path.parts:
            found += of_page(path.read_text(encoding="utf-8"), place)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print them."""
    parser = argparse.ArgumentParser(description="list what users can meet")
    parser.add_argument("--draw", type=int, help="only so many, drawn")
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    options = parser.parse_args(arguments)
    texts = all_texts()
    chosen = random.Random(options.seed).sample(texts, options.draw) if options.draw else texts
    for number, one in enumerate(chosen, 1):
        print(f"{number}. [{one.where}] {one.text}")
    if not options.draw:
        print(f"{len(texts)} texts")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
