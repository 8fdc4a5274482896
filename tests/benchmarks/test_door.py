"""The one door to the benches: all are listed, each is found, and its options reach it."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

import benchmarks
from benchmarks.__main__ import BENCHES, Bench, main
from benchmarks.places import RESULTS, ROOT, TRACES


def test_list_prints_every_bench(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "GROUP", "TAKES", "ENGINE", "SHOWS"]
    assert [line.split()[0] for line in lines] == list(BENCHES)
    for line, bench in zip(lines, BENCHES.values(), strict=True):
        assert all(cell in line for cell in (bench.group, bench.takes, bench.engine, bench.shows))


def test_groups_stand_together() -> None:
    groups = [bench.group for bench in BENCHES.values()]
    assert groups == sorted(groups, key=groups.index)


def modules_with_a_main() -> set[str]:
    """By their text: what is not in the table must not be run to be found."""
    found = set()
    (folder,) = map(Path, benchmarks.__path__)
    for file in folder.rglob("*.py"):
        module = ".".join((folder.name, *file.relative_to(folder).with_suffix("").parts))
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name == "main" and node.args.args:
                found.add(module)
    return found - {"benchmarks.__main__"}


def test_whatever_has_a_main_with_arguments_is_listed() -> None:
    assert modules_with_a_main() == {bench.module for bench in BENCHES.values()}


@pytest.mark.parametrize("module", sorted({bench.module for bench in BENCHES.values()}))
def test_each_bench_is_where_it_is_said_to_be(module: str) -> None:
    assert callable(import_module(module).main)


def test_whatever_make_bench_measures_can_be_run_alone() -> None:
    bench = import_module(BENCHES["bench"].module)
    assert set(bench.PARTS) <= set(BENCHES)
    assert set(bench.TWICE) <= set(bench.PARTS)


def test_run_passes_options_on_and_returns_the_exit_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[list[str]] = []

    def play(arguments: list[str]) -> int:
        given.append(arguments)
        return 3

    monkeypatch.setitem(sys.modules, "benchmarks.played", SimpleNamespace(main=play))
    bench = Bench("benchmarks.played", "real", "1 s", "no", "nothing")
    monkeypatch.setitem(BENCHES, "played", bench)
    monkeypatch.setattr(sys, "argv", ["door"])
    assert main(["run", "played", "--seeds", "2", "-h", "last"]) == 3
    assert main(["run", "played"]) == 3
    assert given == [["--seeds", "2", "-h", "last"], []]


def test_the_help_of_a_bench_says_how_it_was_called(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["door"])
    with pytest.raises(SystemExit):
        main(["run", "readme", "--help"])
    assert capsys.readouterr().out.startswith("usage: python -m benchmarks run readme [-h]")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("trainning", "like it: training, adaptive-training; "),
        ("gpu", "like it: gpu-pacing, gpu-placement, gpu-move, gpu-truth; "),
        ("sim_vs_real", "like it: sim-vs-real"),
        ("wholly else", ""),
        ("", ""),
    ],
)
def test_an_unknown_name_gets_one_line_with_what_is_like_it(
    capsys: pytest.CaptureFixture[str], name: str, told: str
) -> None:
    assert main(["run", name]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"benchmarks: no bench {name!r}; {told}")
    assert err.endswith("all: python -m benchmarks list\n")
    assert err.count("\n") == 1


@pytest.mark.process
def test_the_door_opens_as_a_command() -> None:
    words = [sys.executable, "-m", "benchmarks", "run", "unheard-of"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("benchmarks: no bench 'unheard-of'")


def test_places_are_those_of_the_checkout() -> None:
    assert (ROOT / "pyproject.toml").is_file()
    assert (RESULTS / "TABLES.md").is_file()
    assert list(TRACES.glob("*.yaml"))
