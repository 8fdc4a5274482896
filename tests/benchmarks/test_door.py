"""The one door to the benches: all are listed, each is found, and its options reach it."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import benchmarks
from benchmarks.__main__ import BENCHES, Bench, main


def test_list_prints_every_bench(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "GROUP", "TAKES", "ENGINE", "SHOWS"]
    assert [line.split()[0] for line in lines] == list(BENCHES)
    for line, bench in zip(lines, BENCHES.values(), strict=True):
        assert all(cell in line for cell in (bench.group, bench.takes, bench.engine, bench.shows))


def modules_with_a_main() -> set[str]:
    """By their text: what is not in the table must not be run to be found."""
    found = set()
    (folder,) = map(Path, benchmarks.__path__)
    for file in folder.rglob("*.py"):
        module = ".".join((folder.name, *file.relative_to(folder).with_suffix("").parts))
        for node in ast.parse(file.read_text()).body:
            if (
                isinstance(node, ast.FunctionDef)
                and node.name.startswith("main")
                and node.args.args
            ):
                found.add(module if node.name == "main" else f"{module}:{node.name}")
    return found - {"benchmarks.__main__"}


def test_whatever_has_a_main_with_arguments_is_listed() -> None:
    assert modules_with_a_main() == {bench.module for bench in BENCHES.values()}


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


def test_an_unknown_name_is_refused_with_all_names(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "trainning"])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "trainning" in told
    assert all(name in told for name in BENCHES)
