"""Result files as Markdown: one table or several, each with the facts of its own host."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.publish import results


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    return tmp_path


def test_a_result_with_one_table_has_its_title():
    results.save("one", {"cores": 2}, [1], [], title="One", table=[{"a": 1, "b": None}, {"a": 2}])
    assert results.tables(["one", "absent"]) == [
        "**One**\n\n| a | b |\n| --- | --- |\n| 1 | never |\n| 2 | - |",
        "Host: cores 2.",
    ]


def test_a_result_with_several_tables_has_them_by_title_and_its_headlines_below():
    tables = {"First": [{"a": 0.12345}], "Second": [{"b": "x"}]}
    results.save("two", {"cores": 2}, [1], [], tables=tables, headlines=["best -1 %, mean +2 %"])
    texts = results.tables(["two"])
    assert [text.partition("\n")[0] for text in texts] == [
        "**First**",
        "**Second**",
        "best -1 %, mean +2 %",
        "Host: cores 2.",
    ]
    assert "| 0.123 |" in texts[0]


@pytest.mark.parametrize(
    "rows", [[], [{"a": 1.5, "b": None}], [{"a": "x\n"}, {"b": [1, {"c": 2}]}]]
)
def test_what_is_saved_is_loaded(rows: list[dict[str, object]]) -> None:
    results.save("one", {"cores": 2}, [1, 2], rows, title="One", table=[])
    saved = {"host": {"cores": 2}, "seeds": [1, 2], "title": "One", "table": [], "rows": rows}
    assert results.load("one") == saved
