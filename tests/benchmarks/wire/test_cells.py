"""How cells of the wire and first minutes are judged, and that clients and wire are compared."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from benchmarks.places import ROOT
from benchmarks.publish.results import verdict
from benchmarks.wire import bench, cells, client, first_minute
from benchmarks.wire.cells import NOT_MEASURED, WITHIN, Seen
from benchmarks.wire.first_minute import KINDS, headline, is_reached, target_ms
from dlsched.estimate.sketch import from_latencies
from tools.steps import SetupError

ANSWERED: dict[str, Any] = {
    "answered": 400, "sent": 400, "failed": 0, "unsent": 0, "cpu_ratio": 0.1, "seconds": 40.0,
    **{f"{kind}_{name}": 10.0 for kind in ("whole", "first") for name in ("p50", "p95")},
}  # fmt: skip


def row(seconds: float, count: int = 400, **more: Any) -> dict[str, Any]:
    sketch = from_latencies([seconds] * count)
    return cells.compared(ANSWERED, Seen(sketch, sketch, **more))


@pytest.mark.parametrize(
    ("wire_ms", "client_ms", "near"),
    [(10.9, 10.0, True), (11.1, 10.0, False), (8.9, 10.0, False), (0.6, 0.2, True),
     (None, 1.0, True), (5.0, None, True)],
)  # fmt: skip
def test_five_percent_and_half_a_millisecond(
    wire_ms: float | None, client_ms: float | None, near: bool
) -> None:
    assert cells.is_near(wire_ms, client_ms) is near


def test_a_cell_is_right_where_all_four_numbers_are() -> None:
    assert cells.judged(row(0.0101)) == WITHIN
    assert cells.judged(row(0.0101) | {"first p95, wire": 20.0}) == "OUT: first p95"


def test_requests_that_nobody_reports_make_a_cell_wrong() -> None:
    assert cells.judged(row(0.010, 300)) == "OUT: 300 of 400 requests"
    assert cells.judged(row(0.010, 300, dropped=5)) == WITHIN
    assert cells.judged(row(0.010, 300, unmeasured={"HTTP/2": 1})) == WITHIN


def test_a_cell_without_a_number_is_not_measured() -> None:
    assert cells.judged(row(0.010, 0)) == NOT_MEASURED


def test_a_rate_that_the_server_cannot_keep_is_beyond_it() -> None:
    assert cells.beyond(ANSWERED, 10.0) == ""
    assert cells.beyond(ANSWERED, 20.0) == cells.BEYOND_SERVER
    assert cells.beyond(ANSWERED | {"unsent": 1}, 10.0) == cells.BEYOND_SERVER
    assert cells.beyond(ANSWERED | {"cpu_ratio": 0.6}, 10.0) == cells.BEYOND_CLIENT


def test_one_wrong_cell_is_enough_to_fail() -> None:
    rows = [{"verdict": WITHIN}, {"verdict": NOT_MEASURED}, {"verdict": cells.BEYOND_SERVER}]
    assert bench.headline("truth", rows).endswith(" can: reached.")
    rows.append({"verdict": "OUT: first p95"})
    assert bench.headline("truth", rows).endswith(": not reached.")


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.timed
@pytest.mark.parametrize("keep", [True, False])
def test_the_client_counts_each_answer_once(keep: bool) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        loop = client.OpenLoop(client.Plan("127.0.0.1", server.server_port, 500.0, 20, keep=keep))
        loop.ask_all()
        loop.close()
        server.shutdown()
        thread.join()
    tally = loop.tally
    assert (len(tally.whole), len(tally.first), tally.failed, tally.unsent) == (20, 20, 0, 0)
    assert all(0 < first <= whole for first, whole in zip(tally.first, tally.whole, strict=True))


@pytest.mark.process
def test_one_cell_of_the_bench_agrees_with_its_client() -> None:
    if os.geteuid() != 0:
        pytest.skip("namespaces and packet sockets need root")
    command = [sys.executable, "-m", "benchmarks", "run", "wire", "--quick", "--only", "truth"]
    done = subprocess.run(
        [*command, "--cell", "full accept queue"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verdict=within" in done.stdout, done.stdout + done.stderr


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


def test_target_is_twice_what_the_server_needs_alone() -> None:
    assert [target_ms(alone_ms) for alone_ms in (3.0, 25.0, 25.1, 58.0)] == [
        50.0,
        50.0,
        60.0,
        120.0,
    ]
