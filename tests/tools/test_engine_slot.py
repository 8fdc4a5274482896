"""Slots of private engines, and which engine answers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tools.engine_slot import Slot, existing_slots, free_slot, locked

HOLDER = """
import sys
from pathlib import Path
from tools.engine_slot import free_slot
with free_slot(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_each_caller_has_a_slot_of_its_own_and_a_left_one_is_used_again(tmp_path: Path) -> None:
    with free_slot(tmp_path) as first, free_slot(tmp_path) as second:
        assert first.folder != second.folder
        assert first.cgroup_parent != second.cgroup_parent
        with locked(first) as held:
            assert not held
    with free_slot(tmp_path) as again:
        assert again == first
    assert existing_slots(tmp_path) == [first, second]


@pytest.mark.process
def test_the_lock_ends_with_a_killed_process(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).resolve().parents[2],
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with locked(Slot(tmp_path / "0")) as held:
            assert not held
        os.kill(holder.pid, signal.SIGKILL)
    with locked(Slot(tmp_path / "0")) as held:
        assert held


def test_a_slot_with_something_left_to_clear_is_not_handed_out(tmp_path: Path) -> None:
    with free_slot(tmp_path) as first:
        first.remember(Path("/run/somewhere"))
    assert first.recorded_run_folder() == Path("/run/somewhere")
    with free_slot(tmp_path) as other:
        assert other != first
    first.forget()
    assert first.recorded_run_folder() is None
