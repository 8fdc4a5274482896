"""Fixtures of the tests that start private engines."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.tools.live import ROOT, run_folder_of
from tests.waiting import until
from tools.engine_probe import answers
from tools.engine_slot import Slot
from tools.private_engine import clear_crashed


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[Path]:
    """A folder for private engines; whatever a failing test leaves of them is cleared."""
    yield tmp_path
    clear_crashed(tmp_path)


@pytest.fixture
def caller(engines: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs a long command with a private engine in slot 0, once that answers."""
    command = [sys.executable, "-m", "tools.engine", "--engines", str(engines)]
    process = subprocess.Popen(
        [*command, "run", "--private", "--", "sleep", "1000"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        slot = Slot(engines / "0")
        until(slot.recorded_run_folder, "the caller records its engine")
        host = f"unix://{run_folder_of(slot)}/engine.sock"
        until(lambda: answers(host), "the engine answers")
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
