"""What the numbers that somebody has chosen behind the policy `adaptive` are good for.

Owns which numbers those are, and the trial: each is halved and doubled in a copy of the program.
It is worth its place if a figure of the screening set moves by 1 %, or if a test fails that names
a hazard. Of a part between a half and one the rest to one is halved and doubled, and of a factor
between one and two what it has above one: `0.95` becomes `0.975` and `0.9`. A number that neither
moves guards against a hazard if a test fails without it: with a thousandth, or a thousand times it.

    python -m benchmarks run numbers       writes benchmarks/results/numbers.json
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

import dlsched
from benchmarks.places import ROOT
from benchmarks.publish import results

NAME = "numbers"
PACKAGE = Path(dlsched.__file__).parent
BEHIND = (
    "policies/adaptive",
    "estimate/latency",
    "estimate/learning.py",
    "estimate/evaluations.py",
    "estimate/finish.py",
    "estimate/tuning.py",
)
NOT_CHOSEN = {
    "against division by zero, overflow and what no job can do": {
        "_LEAST", "_LEAST_CORES", "_LEAST_CORE_S", "LEAST_CORE_S", "_LEAST_SPREAD", "_LEAST_SLOPE",
        "_LEAST_WEIGHT", "_ROUNDING", "_MOST_STEPS", "_MOST_SPREAD", "VALUE_MOST", "_LATEST_S",
        "_SHORTEST_S", "_LONGEST_S", "_UNTOLD_CORES",
    },
    "digits, and what is kept or computed at most": {
        "_DIGITS", "_KEPT", "MOST_POINTS", "LEAST_POINTS", "_LEAST_POINTS", "_LAST_POINTS",
        "_OUTLOOK_S", "_OUTLOOK_JOB_S",
    },
    "the grid of curves that are fitted, and its quadrature": {
        "_SCALES", "_SCALE_OF_LAST", "_SCALE_OF_ALL", "_EXPONENTS", "_SPREAD", "_CURVES",
    },
    "follow from what they stand for": {
        "_ASSUMED_S", "_ASSUMED", "EDGE", "_TIER_AT", "_PRIOR_DELIVER", "_PRIOR_FINISH",
        "_INTERVAL",
    },
    "as users and the papers have it": {"BAND_RATIO", "_KEPT_RATIO", "EVALUATIONS"},
}  # fmt: skip
"""Constants that are no choice of ours, by reason."""

FELT_RATIO, FELT_RATIO_OF_UPDATES = 0.01, 0.1
"""So much of itself a figure moves at least; counts of updates differ by more without a reason."""
TESTS = ("tests/policies/adaptive", "tests/estimate")
NO_HAZARD = ("test_golden.py", "test_numbers.py")
"""They fail at any change."""
TRIAL_S = 600.0


@dataclass(frozen=True, slots=True)
class Number:
    """One number in the code."""

    module: str
    """From the package on."""
    name: str
    value: float
    line: int
    column: int
    end_column: int

    @property
    def others(self) -> tuple[float, float]:
        """It halved and doubled."""
        if 0.5 < self.value < 1.0:
            rest = 1.0 - self.value
            return 1.0 - rest / 2.0, 1.0 - 2.0 * rest
        if 1.0 < self.value < 2.0:
            above = self.value - 1.0
            return 1.0 + above / 2.0, 1.0 + 2.0 * above
        if isinstance(self.value, int):
            return (self.value + 1) // 2, 2 * self.value
        return self.value / 2.0, 2.0 * self.value

    @property
    def without(self) -> tuple[float, float]:
        """As good as none, and as good as endless."""
        none = 0 if isinstance(self.value, int) else self.value / 1000.0
        return none, 1000 * self.value

    @property
    def kinds(self) -> tuple[str, ...]:
        """What of the screening set can feel it."""
        if "tuning" in self.module:
            return ("services", "trainings")
        of_trainings = any(part in self.module for part in ("trainings", "learning", "finish"))
        return ("trainings",) if of_trainings else ("services",)


@dataclass(frozen=True)
class Row:
    """One number with another value."""

    module: str
    name: str
    value: float
    tried: float
    figure: str
    """That moved most; empty: none moved."""
    before: float | None
    after: float | None
    failed: str
    """The first test that fails; empty where a figure moved, or none does."""

    @property
    def is_felt(self) -> bool:
        """Whether anything told it from the number as it is."""
        return bool(self.figure or self.failed)


def chosen_numbers() -> list[Number]:
    """All of them, as they are in the code."""
    never = set().union(*NOT_CHOSEN.values())
    found = []
    for path in _files():
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.Assign):
                continue
            names = [one.id for one in ast.walk(node.targets[0]) if isinstance(one, ast.Name)]
            constants = [
                one
                for one in ast.walk(node.value)
                if isinstance(one, ast.Constant) and type(one.value) in (int, float) and one.value
            ]
            if not set(names) <= never:
                constants.sort(key=lambda one: one.col_offset)
                named = names if len(names) == len(constants) else [", ".join(names)] * 9
                for name, one in zip(named, constants, strict=False):
                    found.append(_number(path, name, one))
    return found


def _number(path: Path, name: str, node: ast.Constant) -> Number:
    assert isinstance(node.value, (int, float)) and node.end_col_offset is not None
    module = str(path.relative_to(PACKAGE))
    return Number(module, name, node.value, node.lineno, node.col_offset, node.end_col_offset)


def _files() -> Iterator[Path]:
    for one in BEHIND:
        path = PACKAGE / one
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def copied(into: Path, number: Number | None, value: float) -> Path:
    """The program with that number changed."""
    for part in ("dlsched", "benchmarks", "tests", "tools", "examples", "pyproject.toml"):
        whole = ROOT / part
        if whole.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "results")
            shutil.copytree(whole, into / part, ignore=ignored)
        else:
            shutil.copy(whole, into / part)
    if number is not None:
        path = into / "dlsched" / number.module
        lines = path.read_text().splitlines(keepends=True)
        line = lines[number.line - 1]
        before, after = line[: number.column], line[number.end_column :]
        lines[number.line - 1] = f"{before}{value!r}{after}"
        path.write_text("".join(lines))
    return into


def screened(folder: Path, kinds: Sequence[str]) -> dict[str, float]:
    """Figures of the program in that folder; none where it fails or does not end."""
    only = [f"--only={kind}" for kind in kinds]
    told = _ran(folder, "-m", "benchmarks", "run", "screening", *only)
    figures: dict[str, float] = json.loads(told.stdout) if told and not told.returncode else {}
    return figures


def first_failure(folder: Path) -> str:
    """The first test that fails there; empty: none."""
    ignored = [f"--ignore-glob=*{name}" for name in NO_HAZARD]
    told = _ran(folder, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *ignored, *TESTS)
    if told is None:
        return "does not end"
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", told.stdout, re.MULTILINE)
    return found.group(1).partition("[")[0] if found else ""


def _ran(folder: Path, *command: str) -> subprocess.CompletedProcess[str] | None:
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        return subprocess.run(
            [sys.executable, *command],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TRIAL_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None


def most_moved(before: Mapping[str, float], after: Mapping[str, float]) -> str:
    """The figure that moved most, of those that moved; empty: none did."""
    moved = {}
    for name, was in before.items():
        if name in after:
            felt = FELT_RATIO_OF_UPDATES if "updates" in name else FELT_RATIO
            ratio = abs(after[name] - was) / was if was else math.inf * (after[name] != was or 0)
            if ratio >= felt:
                moved[name] = ratio / felt
    return max(moved, key=lambda name: moved[name]) if moved else ""


def trials(number: Number, figures: Mapping[str, float]) -> list[Row]:
    """It halved and doubled; where nothing tells those from it, without it too."""
    rows = [tried(number, value, figures) for value in number.others]
    if not any(row.is_felt for row in rows):
        rows += [tried(number, value, figures) for value in number.without]
    return rows


def tried(number: Number, value: float, figures: Mapping[str, float]) -> Row:
    """One trial."""
    with tempfile.TemporaryDirectory() as folder:
        copy = copied(Path(folder), number, value)
        after = screened(copy, number.kinds)
        figure = most_moved(figures, after) if after else "the set does not run"
        failed = "" if figure else first_failure(copy)
    return Row(
        *(number.module, number.name, number.value, value, figure),
        *(figures.get(figure), after.get(figure), failed),
    )


def table_of(rows: Sequence[Row]) -> list[dict[str, object]]:
    """One line a trial."""
    return [
        {
            "number": f"{row.module}: {row.name}",
            "is": row.value,
            "tried": round(row.tried, 4),
            "moves": row.figure or "no figure",
            "from": row.before,
            "to": row.after,
            "or fails": row.failed,
        }
        for row in rows
    ]


def headline(rows: Sequence[Row]) -> str:
    """How many are worth their place."""
    numbers = dict.fromkeys((row.module, row.name, row.value) for row in rows)
    felt = {(row.module, row.name, row.value) for row in rows if row.is_felt}
    idle = sorted(name for module, name, value in numbers if (module, name, value) not in felt)
    reached = "reached" if not idle else f"not reached ({', '.join(idle)})"
    return (
        f"Numbers behind `adaptive` that, halved or doubled, move a figure of the screening set by "
        f"1 %, or without which a test fails: {len(felt)} of {len(numbers)}: {reached}"
    )


def main(arguments: list[str] | None = None) -> int:
    """Try all, print and save; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", help="numbers with this in module or name; not saved")
    chosen = parser.parse_args(arguments)
    numbers = [
        one for one in chosen_numbers() if (chosen.only or "") in f"{one.module}: {one.name}"
    ]
    with tempfile.TemporaryDirectory() as folder:
        figures = screened(copied(Path(folder), None, 0.0), ("services", "trainings"))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        rows = [
            row for found in pool.map(lambda one: trials(one, figures), numbers) for row in found
        ]
    table, told = table_of(rows), headline(rows)
    if not chosen.only:
        results.save(
            NAME,
            results.host_facts("none"),
            [],
            [asdict(row) for row in rows],
            title="The chosen numbers behind `adaptive`, halved and doubled",
            table=table,
            headlines=[told],
        )
    console = Console()
    results.show(console, {NAME: table})
    console.print(f"\n{told}", markup=False, soft_wrap=True)
    return 0
