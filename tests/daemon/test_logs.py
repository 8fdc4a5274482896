"""The log's three shapes: one line an event, whatever a container managed to get into it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from dlsched.daemon import logs


@pytest.fixture(autouse=True)
def root_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers, root.level = handlers, level


def told(capsys: pytest.CaptureFixture[str], message: str, level: int = logging.WARNING) -> str:
    logging.getLogger("dlsched.test").log(level, "%s", message)
    return capsys.readouterr().err


def test_a_line_is_forged_by_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up("info", "text")
    line = told(capsys, "job\n2026-01-01 info all is well\x1b[2J")
    assert line.count("\n") == 1
    assert "\x1b" not in line


def test_json_lines_carry_level_and_logger(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up("info", "json")
    line = json.loads(told(capsys, 'a "quoted" word'))
    assert (line["level"], line["logger"], line["message"]) == (
        "warning",
        "dlsched.test",
        'a "quoted" word',
    )


def test_under_systemd_the_level_is_a_prefix(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOURNAL_STREAM", "8:1")
    logs.set_up("info", "text")
    assert told(capsys, "engine lost", logging.ERROR) == "<3>engine lost\n"


def test_what_is_below_the_level_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up("warning", "text")
    assert told(capsys, "chatter", logging.INFO) == ""
