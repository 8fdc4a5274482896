"""The bench of the first minute: its commands, and when its figure is reached."""

from __future__ import annotations

import pytest

from benchmarks.publish.results import verdict
from benchmarks.wire import first_minute
from benchmarks.wire.first_minute import KINDS, headline, is_reached
from tools.steps import SetupError


def test_each_server_is_adopted_by_one_command_with_its_target() -> None:
    commands = [" ".join(kind.adopt) for kind in KINDS]
    assert commands[0] == "adopt first-service --latency 50ms --quantile p95"
    assert [one.partition(" --of ")[2] for one in commands[-2:]] == ["first-byte", "gap"]


@pytest.mark.parametrize(
    ("met_s", "p95_ms", "reached"),
    [
        (30.0, 50.0, True),
        (30.1, 50.0, False),
        (None, 10.0, False),
        (5.0, 50.1, False),
        (5.0, None, False),
    ],
)
def test_status_and_client_must_both_say_met(
    met_s: float | None, p95_ms: float | None, reached: bool
) -> None:
    assert is_reached(met_s, p95_ms, 50.0) is reached


def test_one_server_that_cannot_be_brought_is_enough_to_miss() -> None:
    rows = [{"verdict": verdict(True)}] * 2
    assert headline(rows).endswith("in 2 of 2 rows: reached.")
    rows.append({"verdict": "not brought here: no program node on this host"})
    assert headline(rows).endswith("in 2 of 3 rows: not reached.")


def test_a_program_that_the_host_lacks_is_one_line() -> None:
    with pytest.raises(SetupError, match="no program no-such-server on this host"):
        first_minute.contained(["no-such-server", "1"])
