"""What the set-up says: silent success, shown failure."""

from __future__ import annotations

import sys

import pytest

from tools.steps import SetupError, run_step

pytestmark = pytest.mark.timed


@pytest.mark.process
def test_a_failed_command_shows_its_output_and_code(capsys: pytest.CaptureFixture[str]) -> None:
    script = "import sys; print('the reason'); sys.exit(3)"
    with pytest.raises(SetupError, match=r"work: .* ended with code 3"):
        run_step("work", [sys.executable, "-c", script])
    said = capsys.readouterr().err
    assert "the reason" in said
    assert "failed" in said
