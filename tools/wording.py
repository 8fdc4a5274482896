"""Checks wording by the rule files in tools/words: names by the syntax tree, and prose.

The rules are in Vale's substitution format. Prose is Markdown, docstrings,
comments, and every string with a blank in it: help texts, log and error messages. What users of
the product meet has rules of its own.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import yaml

from tools.texts import of_module

ROOT = Path(__file__).resolve().parent.parent
RULES = ROOT / "tools" / "words"
PATHS = ("README.md", "docs", "dlsched", "tools")
_CODE = re.compile(r"^(```|~~~).*?^\1|``.*?``|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_NAME_PART = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


@dataclass(frozen=True)
class Text:
    """A piece of a file: the line it begins on, and whether it is a name or prose."""

    line: int
    text: str
    scope: str = "text"
    owner: str = ""
    """The class, with a dot, of which this is a declared field."""


@dataclass(frozen=True)
class Rule:
    """One rule file: what to avoid, what to write instead."""

    name: str
    message: str
    level: str
    scope: str
    swap: tuple[tuple[re.Pattern[str], str], ...]
    exceptions: frozenset[str]

    def findings(self, piece: Text) -> Iterator[tuple[int, str]]:
        """Line and message of everything that this rule finds in that piece."""
        text = _CODE.sub(lambda code: re.sub(r"[^\n]", "`", code[0]), piece.text)
        if self.scope == "names":
            text = " ".join(_NAME_PART.findall(text))
        for pattern, plain in self.swap if piece.scope == self.scope else ():
            for match in pattern.finditer(text):
                shown = piece.text if self.scope == "names" else " ".join(match[0].split())
                if not {shown.lower(), piece.owner + shown} & self.exceptions:
                    yield (
                        piece.line + text.count("\n", 0, match.start()),
                        self.message % (shown, plain),
                    )


def load_rule(path: Path) -> Rule:
    """The rule in that file; raises ValueError where it is none of Vale's substitutions."""
    raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(raw, dict) or raw.get("extends") != "substitution":
        raise ValueError(f"{path}: extends: not 'substitution'")
    flags = re.IGNORECASE if raw.get("ignorecase") else re.NOFLAG
    swap = tuple(
        (re.compile(rf"\b(?:{found})\b".replace(" ", r"\s+"), flags), plain)
        for found, plain in raw["swap"].items()
    )
    kept = frozenset(raw.get("exceptions", ()))
    return Rule(path.stem, raw["message"], raw["level"], raw.get("scope", "text"), swap, kept)


def _name(node: ast.AST) -> str | None:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.alias(asname=name):
            return name
        case ast.arg(arg=name) | ast.Name(name, ast.Store()) | ast.Attribute(_, name, ast.Store()):
            return name
    return None


def python_texts(source: str, stem: str) -> Iterator[Text]:
    """Names that a module defines, its own among them, and its prose."""
    yield Text(1, stem, "names")
    inside: set[ast.AST] = set()
    owners: dict[ast.AST, str] = {}
    for node in ast.walk(ast.parse(source)):
        line = getattr(node, "lineno", 1)
        if name := _name(node):
            yield Text(line, name, "names", owners.get(node, ""))
        match node:
            case ast.ClassDef(name=owner, body=body):
                fields = (part.target for part in body if isinstance(part, ast.AnnAssign))
                owners |= dict.fromkeys(fields, f"{owner}.")
            case ast.JoinedStr(values=parts):
                inside.update(parts)
                plain = (part.value if isinstance(part, ast.Constant) else "{}" for part in parts)
                yield Text(line, "".join(map(str, plain)))
            case ast.Constant(value=str(text)) if " " in text and node not in inside:
                yield Text(line, text)
    comment, began, last = "", 0, -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != last + 1:
                yield Text(began, comment)
                comment, began = "", token.start[0]
            comment, last = f"{comment}{token.string.lstrip('#')}\n", token.start[0]
    yield Text(began, comment)


def findings(path: Path, rules: Sequence[Rule]) -> Iterator[tuple[str, str]]:
    """Level and line to print, for everything in that file that the rules find."""
    source, shown = path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()
    pieces = list(python_texts(source, path.stem)) if path.suffix == ".py" else [Text(1, source)]
    if path.suffix == ".py" and shown.startswith("dlsched/"):
        pieces += [Text(line, text, "shown") for line, text in of_module(source, shown)]
    for piece, rule in product(pieces, rules):
        for line, message in rule.findings(piece):
            yield rule.level, f"{shown}:{line}: {rule.level}: {message} ({rule.name})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each finding; 1 where one is an error."""
    parser = argparse.ArgumentParser(description="check wording")
    parser.add_argument("--suggest", action="store_true", help="print suggestions, too")
    parser.add_argument("paths", nargs="*", help=f"instead of {' '.join(PATHS)}")
    options = parser.parse_args(arguments)
    rules = [load_rule(path) for path in sorted(RULES.glob("[A-Z]*.yml"))]
    failed = False
    for root in (ROOT / name for name in options.paths or PATHS):
        for path in [root] if root.is_file() else sorted(root.rglob("*.[pm][yd]")):
            for level, line in findings(path, rules):
                failed |= level == "error"
                if level == "error" or options.suggest:
                    print(line)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
