"""A writer without a thread, for the tests of what frameworks' callbacks tell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlsched.report import pacing
from dlsched.report import writer as writing
from dlsched.report.writer import Writer
from tests.report.jobs import told


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[dict[str, Any]]]:
    """What this process has reported since it was asked last, without time and writer."""
    monkeypatch.delenv("RANK", raising=False)
    path = tmp_path / "metrics.jsonl"
    writer = Writer(str(path), threaded=False, monotonic=lambda: 0.0)
    monkeypatch.setattr(writing, "_current", writer)
    seen = 0

    def lines() -> list[dict[str, Any]]:
        nonlocal seen
        writer.flush()
        new = told(path)[seen:] if path.exists() else []
        seen += len(new)
        return [{key: line[key] for key in line if key not in ("t", "w")} for line in new]

    return lines


@pytest.fixture
def sections(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is said to be the GPU's time: each beginning and end, in order."""
    calls: list[str] = []

    class Noting:
        def __enter__(self) -> None:
            calls.append("begin")

        def __exit__(self, *_: object) -> None:
            calls.append("end")

    monkeypatch.setattr(pacing, "pace", Noting())
    return calls
