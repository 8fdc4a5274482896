"""What the set-up says: silent success, shown failure."""

from __future__ import annotations

import sys

import pytest

from tools import steps
from tools.steps import SetupError, run_step, step

pytestmark = pytest.mark.timed


@pytest.mark.process
def test_a_failed_command_shows_its_output_and_code(capsys: pytest.CaptureFixture[str]) -> None:
    script = "import sys; print('the reason'); sys.exit(3)"
    with pytest.raises(SetupError, match=r"work: .* ended with code 3"):
        run_step("work", [sys.executable, "-c", script])
    said = capsys.readouterr().err
    assert "the reason" in said
    assert "failed" in said


def test_a_long_step_shows_signs_of_life_with_the_newest_detail(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "FIRST_SIGN_S", 0.0)
    monkeypatch.setattr(steps, "SIGN_EVERY_S", 0.01)
    said = ""
    with step("long work") as note:
        note("package 7 of 9")
        while "long work: package 7 of 9" not in said:
            said += capfd.readouterr().err
    assert "ok" in capfd.readouterr().err
