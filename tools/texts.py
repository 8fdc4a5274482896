"""Lists every text of a Python module that a user can meet: messages, reasons, alarms, help.

A placeholder is shown by its expression.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

LENGTH_MIN = 3
"""Of what is no key, name or unit."""
UNSHOWN = (
    "simulation/cluster/invariants.py",
    "/creation.py _PASSING",
    "/stop.py Sign",
    "/calls.py OUT",
)
"""Parts of the places whose texts developers alone meet, or that are compared with an engine's."""
_DOCUMENTED = ("Keys", "Settings", "Parameters", "AlarmKey")
"""Ends of the names of classes whose fields' docstrings are in the reference."""
_CLICK = ("command", "group", "option", "argument")
_CODE = re.compile(
    r"(?:SELECT|INSERT|ALTER|CREATE|DELETE|UPDATE|PRAGMA|BEGIN;|AND|FROM|import|from)\b|<|default-src"
    r"|\"use strict\"|Metadata-Version|\{method\} \{path\} HTTP"
)
"""How a text begins that is a program, a header, or a picture."""
Defined = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module


def of_module(source: str, place: str) -> Iterator[tuple[int, str]]:
    """Line and text of a Python module's strings of several words, and docstrings of commands."""
    yield from _of(ast.parse(source), place, "")


def _of(node: ast.AST, place: str, owner: str, commands: bool = False) -> Iterator[tuple[int, str]]:
    if isinstance(node, Defined):
        owner = getattr(node, "name", owner)
        commands = _is_command(node)
        if ast.get_docstring(node) is not None and not commands:
            node.body = node.body[1:]
    match node:
        case ast.Assign(targets=[ast.Name(id=name)]) if name.isupper():
            owner = f"{owner} {name}".lstrip()
        case ast.Call(func=ast.Attribute(attr="debug")):
            return
    documents = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    if documents and not commands and not owner.endswith(_DOCUMENTED):
        return
    if any(one in f"{place} {owner}" for one in UNSHOWN):
        return
    text = _text(node)
    if text is not None and _length(text) >= LENGTH_MIN and not _CODE.match(text.lstrip()):
        yield getattr(node, "lineno", 1), " ".join(text.split())
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
    """How many parts of it are no key, name, unit, tag or expression."""
    text = re.sub(r"<[^>]*>|\{[^}]*\}|`[^`]*`", " ", text)
    return sum(bool(re.fullmatch(r"[(]?[A-Za-z'-]{2,}[.,;:)?]*", one)) for one in text.split())
