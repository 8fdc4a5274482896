"""Lists every text that a user can meet: messages, reasons, forecasts, alarms, help, the page.

    python -m tools.texts                    all, each with where it is
    python -m tools.texts --draw 200 --seed 1   as many of them, drawn, for readers to explain

A reader of a drawn text gets one line beside it: the file and the function that it comes from. A
text is right if such a reader says what happened, and what to do. A placeholder is shown by its
expression. A part that is named, and then put into a longer text, is shown within that, as
[one | or another]: a local name, a constant, what a small function returns, what += adds.
"""

from __future__ import annotations

import argparse
import ast
import math
import random
import re
from collections import defaultdict
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
    "/stop.py Step",
    "/container.py Busy",
    "/calls.py OUT",
    "/images.py _FOR_GOOD",
    "/probe.py _LACKS",
    "/threads.py VARIABLES",
)
"""Parts of the places whose texts developers alone meet, or that are compared with an engine's."""
_PAGE = re.compile(
    r"(?<![\w$])(?:\"([^\"\n]+)\"|'([^'\n]+)'"
    r"|`((?:[^`$]|\$(?!\{)|\$\{(?:[^`{}]|`[^`]*`|\{[^{}]*\})*\})+)`)"
)
"""A template is one text with those in its placeholders."""
_ELEMENT = re.compile(r"\", el\(\"\w+\", \{ text: \"?([^\"{}]*)\"? \}\)(?:, \")?")
"""An element in the midst of a sentence."""
_DOCUMENTED = ("Keys", "Settings", "Parameters", "AlarmKey")
"""Ends of the names of classes whose fields' docstrings are in the reference."""
_CLICK = ("command", "group", "option", "argument")
_CODE = re.compile(
    r"(?:SELECT|INSERT|ALTER|CREATE|DELETE|UPDATE|PRAGMA|BEGIN|AND|FROM|import|from)\b|<|default-src"
    r"|\"use strict\"|Metadata-Version|\{method\} \{path\} HTTP"
)
"""How a text begins that is a program, a header, or a picture."""
_NOTHING: Mapping[str, str] = MappingProxyType({})
_Step = tuple[ast.Assign | ast.AugAssign, str | None]
"""What assigns a local text or adds to it, and that text."""
Defined = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module


@dataclass(frozen=True)
class Shown:
    """A text, and where it comes from."""

    where: str
    text: str


def of_module(source: str, place: str, known: Mapping[str, str] = _NOTHING) -> Iterator[Shown]:
    """The texts of a Python module: strings of several words, and docstrings of commands. `known`:
    constants that it may import."""
    tree = ast.parse(source)
    yield from _of(tree, place, "", parts=_shared(tree, known))


def _of(
    node: ast.AST,
    place: str,
    owner: str,
    commands: bool = False,
    parts: Mapping[str, str] = _NOTHING,
    local: bool = False,
) -> Iterator[Shown]:
    if isinstance(node, Defined):
        owner = getattr(node, "name", owner)
        commands = _is_command(node)
        if ast.get_docstring(node) is not None and not commands:
            node.body = node.body[1:]
    match node:
        case ast.stmt() if getattr(node, "whole", None) == "":
            return  # shown within the whole
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            parts, local = _parts(node, parts), True
        case ast.Assign(targets=[ast.Name(id=name)]) if not local and name.isupper():
            owner = f"{owner} {name}".lstrip()
        case ast.Call(func=ast.Attribute(attr="debug")):
            return
    documents = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    if documents and not commands and not owner.endswith(_DOCUMENTED):
        return
    if any(one in f"{place} {owner}" for one in UNSHOWN):
        return
    whole: str | None = getattr(node, "whole", None)
    said = isinstance(node, ast.Constant | ast.JoinedStr)
    text = whole or (_text(node, parts) if said else None)
    if text is not None and _length(text) >= LENGTH_MIN and not _CODE.match(text.lstrip()):
        yield Shown(f"{place}:{getattr(node, 'lineno', 1)} {owner}", " ".join(text.split()))
    for child in () if whole else ast.iter_child_nodes(node):
        if not (isinstance(node, ast.JoinedStr) and _text(child, parts) is not None):
            yield from _of(child, place, owner, commands, parts, local)


def _shared(tree: ast.Module, known: Mapping[str, str] = _NOTHING) -> dict[str, str]:
    """The texts of a module's constants and small functions, by name. Marks those that longer texts
    alone use."""
    inside = [one.value for one in ast.walk(tree) if isinstance(one, ast.FormattedValue)]
    within = {id(one.func if isinstance(one, ast.Call) else one) for one in inside}
    names = [one for one in ast.walk(tree) if isinstance(one, ast.Name)]
    alone = {one.id for one in names if isinstance(one.ctx, ast.Load) and id(one) not in within}
    found: dict[str, str] = {}
    for one in tree.body:
        ends: list[tuple[ast.stmt, ast.expr]] = []
        parts: Mapping[str, str] = found
        match one:
            case ast.ImportFrom(names=imported):
                keys = {each.name: f"{one.module}.{each.name}" for each in imported}
                found |= {name: known[key] for name, key in keys.items() if key in known}
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name.isupper():
                ends = [(one, value)]
            case ast.FunctionDef(name=name):
                ends = [
                    (x, x.value) for x in ast.walk(one) if isinstance(x, ast.Return) and x.value
                ]
                parts = _parts(one, found)
        texts = [_text(value, parts) for _, value in ends]
        if ends and None not in texts and max(_length(str(text)) for text in texts) >= LENGTH_MIN:
            found[name] = _either(texts)
            for end, _ in ends if name.startswith("_") and name not in alone else ():
                vars(end)["whole"] = ""
    return found


def _parts(node: ast.AST, outer: Mapping[str, str]) -> dict[str, str]:
    """The texts by name that a function puts into longer ones, and those around it. Marks what is
    shown within another text, and what is added to by its whole."""
    first: dict[str, int] = {}
    for one in ast.walk(node):
        if isinstance(one, ast.FormattedValue) and isinstance(one.value, ast.Name):
            first[one.value.id] = min(first.get(one.value.id, one.lineno), one.lineno)
    found, given = dict(outer), defaultdict[str, list[_Step]](list)
    steps = [one for one in ast.walk(node) if isinstance(one, ast.Assign | ast.AugAssign)]
    for one in sorted(steps, key=lambda step: step.lineno):
        target = one.targets[0] if isinstance(one, ast.Assign) else one.target
        if isinstance(target, ast.Name):
            given[target.id].append((one, _text(one.value, found)))
            found.pop(target.id, None)
            if target.id in first and (text := _whole(given[target.id], first[target.id])):
                found[target.id] = text
    for name, own in given.items():
        grown = any(isinstance(one, ast.AugAssign) and text for one, text in own)
        shown = [(one, text or f"{{{ast.unparse(one.value)}}}") for one, text in own]
        whole = _whole(shown) if grown else ""
        for one, _ in own if whole or name in found else ():
            vars(one)["whole"], whole = whole, ""
    return found


def _whole(steps: Sequence[_Step], before: float = math.inf) -> str | None:
    """The text and what is added to it before that line; None: it is not known, or set again."""
    sets = [
        None if one.lineno >= before else text for one, text in steps if isinstance(one, ast.Assign)
    ]
    adds = [text for one, text in steps if isinstance(one, ast.AugAssign) and one.lineno < before]
    if not sets or None in sets:
        return None
    return _either(sets) + "".join(f"[ | {text}]" for text in adds if text)


def _either(texts: Sequence[str | None]) -> str:
    return texts[0] or "" if len(texts) == 1 else f"[{' | '.join(map(str, texts))}]"


def _text(node: ast.AST, parts: Mapping[str, str] = _NOTHING) -> str | None:
    """The text, that of a name or a small function, or both of a condition's."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=pieces):
            texts = ((_text(one, parts), getattr(one, "value", one)) for one in pieces)
            return "".join(
                f"{{{ast.unparse(one)}}}" if text is None else text for text, one in texts
            )
        case ast.FormattedValue(value=value):
            return _text(value, parts)
        case ast.IfExp(body=body, orelse=orelse):
            both = [_text(one, parts) for one in (body, orelse)]
            return None if None in both else _either(both)
        case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)):
            return parts.get(name)
    return None


def _is_command(node: Defined) -> bool:
    calls = (ast.unparse(one) for one in getattr(node, "decorator_list", ()))
    return any(re.search(rf"\b(?:{'|'.join(_CLICK)})\(", call) for call in calls)


def _length(text: str) -> int:
    """How many parts of it are no key, name, unit, tag or expression."""
    text = re.sub(r"<[^>]*>|\{[^}]*\}|`[^`]*`", " ", text)
    return sum(bool(re.fullmatch(r"[\[(]?[A-Za-z'-]{2,}[\].,;:)?]*", one)) for one in text.split())


def of_page(source: str, place: str) -> Iterator[Shown]:
    """The strings of several words in a script of the page."""
    source = _ELEMENT.sub(r"`\1`", re.sub(r"(?m)^\s*(?://|\*|/\*).*$", "", source))
    for found in _PAGE.finditer(source):
        text = next(one for one in found.groups() if one is not None)
        if _length(text) >= LENGTH_MIN:
            yield Shown(place, " ".join(text.split()))


def all_texts(root: Path = ROOT) -> list[Shown]:
    """All of the product, in the order of its files."""
    found: list[Shown] = []
    known: dict[str, str] = {}
    for path in sorted((root / "dlsched").rglob("*.py")):
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        for name, text in _shared(ast.parse(path.read_text(encoding="utf-8"))).items():
            known[f"{module}.{name}"] = text
    for path in sorted((root / "dlsched").rglob("*")):
        place = path.relative_to(root).as_posix()
        if path.suffix == ".py":
            found += of_module(path.read_text(encoding="utf-8"), place, known)
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
