"""Mutants: one small fault at a time in the code, and which of them the tests of its folder miss.

Owns which faults there are. A mutant is tried on the test folder that mirrors its file's, its own
test file first, without cases that need processes or an engine. Two commits can be compared: the
mutants are drawn by a seed from functions that are equal in both, wherever they stand, and those
that survive now are tried at the earlier one.

    python -m benchmarks run mutants                        writes benchmarks/results/mutants.json
    python -m benchmarks run mutants --before COMMIT --count 20   prints alone
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from queue import Queue
from random import Random
from typing import Any

from benchmarks.options import options
from benchmarks.places import ROOT
from benchmarks.publish import results

NAME = "mutants"
COUNT, SEED = 300, 33
FOLDERS = ("control", "policies", "estimate", "config", "store", "runtime")
WITHIN_S = 600.0
"""A mutant that makes a loop endless is noticed, too."""

_SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}  # fmt: skip


Function = tuple[str, str]
"""Its name, with that of its class, and its code without comments and places."""

Mutant = tuple[Function, int]
"""A function, and the number of a fault in it."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of it."""

    file: str
    line: int
    fault: str
    survived: bool


def faults(tree: ast.AST) -> Iterator[tuple[int, str, Callable[[], object]]]:
    """Every fault that there can be: its line, what it is, and what puts it into the tree."""
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPPED:
            words, new = _swapped(node.ops[0])
            yield line, words, partial(node.ops.__setitem__, 0, new)
        elif isinstance(node, (ast.BoolOp, ast.BinOp)) and type(node.op) in _SWAPPED:
            words, new = _swapped(node.op)
            yield line, words, partial(setattr, node, "op", new)
        elif isinstance(node, (ast.If, ast.IfExp, ast.While)):
            words = f"the condition of {type(node).__name__} is reversed"
            yield line, words, partial(setattr, node, "test", ast.UnaryOp(ast.Not(), node.test))
        elif isinstance(node, ast.Constant) and type(node.value) in (bool, int, float):
            value = not node.value if isinstance(node.value, bool) else node.value + 1
            yield line, f"{node.value} becomes {value}", partial(setattr, node, "value", value)
        elif isinstance(node, (ast.FunctionDef, ast.For, ast.With)):
            for index, one in enumerate(node.body):
                if isinstance(one, (ast.Expr, ast.AugAssign)) and not _is_text(one):
                    words = f"{type(one).__name__} becomes Pass"
                    yield one.lineno, words, partial(node.body.__setitem__, index, ast.Pass())


def _swapped(old: ast.AST) -> tuple[str, Any]:
    new = _SWAPPED[type(old)]
    return f"{type(old).__name__} becomes {new.__name__}", new()


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def functions(tree: ast.Module) -> Iterator[tuple[Function, ast.AST]]:
    """Every function and method that is not within another one."""
    for outer in tree.body:
        within = outer.body if isinstance(outer, ast.ClassDef) else [outer]
        prefix = f"{outer.name}." if isinstance(outer, ast.ClassDef) else ""
        for node in within:
            if isinstance(node, ast.FunctionDef):
                yield (prefix + node.name, ast.dump(node)), node


def functions_in(folder: Path) -> dict[Function, tuple[str, ast.AST]]:
    """The functions of the folders, the file of each and its code; those that stand twice are left
    out."""
    found: dict[Function, list[tuple[str, ast.AST]]] = {}
    for name in FOLDERS:
        for path in sorted((folder / "dlsched" / name).rglob("*.py")):
            for function, node in functions(ast.parse(path.read_text(encoding="utf-8"))):
                found.setdefault(function, []).append((str(path.relative_to(folder)), node))
    return {function: there[0] for function, there in found.items() if len(there) == 1}


def mutated(text: str, mutant: Mutant) -> tuple[int, str, str]:
    """The line, the fault and the source with it."""
    tree = ast.parse(text)
    function, number = mutant
    line, fault, put = list(faults(dict(functions(tree))[function]))[number]
    put()
    return line, fault, ast.unparse(ast.fix_missing_locations(tree))


def drawn(nodes: Mapping[Function, ast.AST], count: int, seed: int) -> list[Mutant]:
    """So many faults of these functions."""
    every = [
        (function, number)
        for function in sorted(nodes)
        for number, _ in enumerate(faults(nodes[function]))
    ]
    return Random(seed).sample(every, min(count, len(every)))


def paths_of_tests(folder: Path, file: str) -> list[str]:
    """Its own test file, if there is one, and the folder that mirrors its own."""
    mirror = Path("tests", *Path(file).parts[1:])
    own = mirror.with_name(f"test_{mirror.name}")
    above = mirror.parent
    while not list((folder / above).glob("test_*.py")):
        above = above.parent
    return [str(one) for one in (own, above) if (folder / one).exists()]


def try_out(folder: Path, name: str, mutant: Mutant) -> Tried:
    """Run the tests with that fault in that file of the folder."""
    file = folder / name
    text = file.read_text(encoding="utf-8")
    line, fault, changed = mutated(text, mutant)
    file.write_text(changed, encoding="utf-8")
    try:
        survived = all(_passes(folder, tests) for tests in paths_of_tests(folder, name))
    finally:
        file.write_text(text, encoding="utf-8")
    return Tried(name, line, fault, survived)


def _passes(folder: Path, tests: str) -> bool:
    words = [
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "--gate",
        "--lane=unit,timed",
        tests,
    ]
    try:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            timeout=WITHIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode in (0, 5)  # 5: it has no case of that lane


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """The files of a commit, in a folder of their own."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", commit], cwd=ROOT, capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        yield Path(folder)


def run(commit: str, mutants: Sequence[Mutant], processes: int) -> list[Tried]:
    """Try them at that commit, in copies of its files beside each other."""
    free: Queue[Path] = Queue()

    def one(mutant: Mutant) -> Tried:
        folder = free.get()
        try:
            found = try_out(folder, files[mutant[0]][0], mutant)
        finally:
            free.put(folder)
        if found.survived:
            print(f"{commit}: {found.file}:{found.line}: {found.fault}: survived", flush=True)
        return found

    with ExitStack() as copies, ThreadPoolExecutor(processes) as pool:
        for _ in range(processes):
            folder = copies.enter_context(checked_out(commit))
            if mutants and not _passes(folder, "tests/config"):
                raise SystemExit(f"{commit}: its tests fail without a fault, so they show nothing")
            free.put(folder)
        files = functions_in(folder)
        return list(pool.map(one, mutants))


def main(arguments: list[str] | None = None) -> int:
    """Try them; returns the exit code: 1 if one survives that did not before."""
    chosen = options(
        __doc__,
        arguments,
        before=(str, "a commit to compare with"),
        count=(COUNT, "how many; another number: not saved"),
    )
    before = chosen.before or "HEAD"
    with checked_out(before) as earlier_folder, checked_out("HEAD") as folder:
        there = functions_in(earlier_folder)
        both = {one: node for one, (_, node) in functions_in(folder).items() if one in there}
        mutants = drawn(both, chosen.count, SEED)
    print(f"{len(both)} functions are equal in {before} and HEAD", flush=True)
    processes = len(os.sched_getaffinity(0))
    now = run("HEAD", mutants, processes)
    # What the tests notice now cannot survive newly.
    left = [mutant for mutant, one in zip(mutants, now, strict=True) if one.survived]
    then = run(before, left, processes) if chosen.before else [one for one in now if one.survived]
    earlier = {mutant: one.survived for mutant, one in zip(left, then, strict=True)}
    newly = sum(not survived for survived in earlier.values())
    line = f"{len(left)} of {len(now)} mutants survive, {newly} of them newly"
    print(line, flush=True)
    if chosen.count == COUNT:
        rows = [
            asdict(one) | {"survived_before": earlier.get(mutant)}
            for mutant, one in zip(mutants, now, strict=True)
        ]
        results.save(NAME, results.host_facts("none"), [SEED], rows, headlines=[line])
    return 1 if newly else 0
