"""Lists every text that a user can meet: messages, reasons, forecasts, alarms, help, the page.

    python -m tools.texts                    all, each with where it is
    python -m tools.texts --draw 200 --seed 1   as many of them, drawn, for readers to explain

A reader of a drawn text gets one line beside it: the file and the function that it comes from. A
text is right if such a reader says what happened, and what to do. A placeholder is shown by its
expression. A part that a function names, and then puts into one longer text, is shown within that.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).resolve().parent.parent
LENGTH_MIN = 3
"""Of what is no key, name or unit."""
UNSHOWN = (
    "simulation/cluster/invariants.py",
    "/creation.py _PASSING",
    "/stop.py Sign",
    "/calls.py OUT",
)
"""Parts of the places whose texts developers alone meet, or that are compared with an engine's."""
_PAGE = re.compile(r"(?<![\w$])(?:\"([^\"\n]+)\"|'([^'\n]+)'|`([^`]+)`)")
_DOCUMENTED = ("Keys", "Settings", "Parameters", "AlarmKey")
"""Ends of the names of classes whose fields' docstrings are in the reference."""
_CLICK = ("command", "group", "option", "argument")
_CODE = re.compile(
    r"(?:SELECT|INSERT|ALTER|CREATE|DELETE|UPDATE|PRAGMA|BEGIN;|AND|FROM|import|from)\b|<|default-src"
    r"|\"use strict\"|Metadata-Version|\{method\} \{path\} HTTP"
)
"""How a text begins that is a program, a header, or a picture."""
Defined = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module


@dataclass(frozen=True)
class Shown:
    """A text, and where it comes from."""

    where: str
    text: str


def of_module(source: str, place: str) -> Iterator[Shown]:
    """The texts of a Python module: strings of several words, and docstrings of commands."""
    yield from _of(ast.parse(source), place, "")


def _of(
    node: ast.AST,
    place: str,
    owner: str,
    commands: bool = False,
    parts: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Shown]:
    if isinstance(node, Defined):
        owner = getattr(node, "name", owner)
        commands = _is_command(node)
        if ast.get_docstring(node) is not None and not commands:
            node.body = node.body[1:]
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            parts = _parts(node)
        case ast.Assign(targets=[ast.Name(id=name)]) if name in parts:
            return  # shown within the whole
        case ast.Assign(targets=[ast.Name(id=name)]) if not parts and name.isupper():
            owner = f"{owner} {name}".lstrip()
        case ast.Call(func=ast.Attribute(attr="debug")):
            return
    documents = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    if documents and not commands and not owner.endswith(_DOCUMENTED):
        return
    if any(one in f"{place} {owner}" for one in UNSHOWN):
        return
    text = _text(node, parts)
    if text is not None and _length(text) >= LENGTH_MIN and not _CODE.match(text.lstrip()):
        yield Shown(f"{place}:{getattr(node, 'lineno', 1)} {owner}", " ".join(text.split()))
    for child in ast.iter_child_nodes(node):
        if not (isinstance(node, ast.JoinedStr) and isinstance(child, ast.Constant)):
            yield from _of(child, place, owner, commands, parts)


def _parts(node: ast.AST) -> dict[str, str]:
    """The texts that this function names once and puts into a longer one, by name."""
    used = {
        one.value.id
        for one in ast.walk(node)
        if isinstance(one, ast.FormattedValue) and isinstance(one.value, ast.Name)
    }
    given: dict[str, list[str | None]] = {}
    for one in ast.walk(node):
        match one:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in used:
                given.setdefault(name, []).append(_choice(value))
    return {name: text for name, (text, *more) in given.items() if text and not more}


def _choice(node: ast.AST) -> str | None:
    """The text, or both of a condition's."""
    if isinstance(node, ast.IfExp):
        both = [_text(one) for one in (node.body, node.orelse)]
        return None if None in both else f"[{' | '.join(map(str, both))}]"
    return _text(node)


def _is_command(node: Defined) -> bool:
    calls = (ast.unparse(one) for one in getattr(node, "decorator_list", ()))
    return any(re.search(rf"\b(?:{'|'.join(_CLICK)})\(", call) for call in calls)


def _text(node: ast.AST, parts: Mapping[str, str] = MappingProxyType({})) -> str | None:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=pieces):
            return "".join(
                str(one.value) if isinstance(one, ast.Constant) else _placed(one, parts)
                for one in pieces
            )
    return None


def _placed(node: ast.AST, parts: Mapping[str, str]) -> str:
    """A placeholder: its expression, or the text that it stands for."""
    shown = ast.unparse(getattr(node, "value", node))
    return parts.get(shown, f"{{{shown}}}")


def _length(text: str) -> int:
    """How many parts of it are no key, name, unit, tag or expression."""
    text = re.sub(r"<[^>]*>|\{[^}]*\}|`[^`]*`", " ", text)
    return sum(bool(re.fullmatch(r"[(]?[A-Za-z'-]{2,}[.,;:)?]*", one)) for one in text.split())


def of_page(source: str, place: str) -> Iterator[Shown]:
    """The strings of several words in a script of the page."""
    for found in _PAGE.finditer(re.sub(r"(?m)^\s*(?://|\*|/\*).*$", "", source)):
        text = next(one for one in found.groups() if one is not None)
        if _length(text) >= LENGTH_MIN:
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
