"""`dlsched probe`: the table, the commands that it proposes, JSON, and no engine."""

from __future__ import annotations

import json
import math
import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlsched.cli.commands.probing import _goal, _just_now, _proposal, _round_seconds
from dlsched.model.errors import EngineUnavailable
from dlsched.runtime.docker import probe as package
from dlsched.runtime.docker.probe import Probed, ProbedPort, ProbeOptions, ProbeReading
from dlsched.runtime.docker.probe.probed import NO_REQUEST, HostUse, PortTimes
from tests.cli.conftest import Program
from tests.status_source import FakeSource
from tests.texts import same_text

pytestmark = pytest.mark.timed

SERVICE = Probed(
    "asr",
    "1" * 64,
    "acme/asr:7",
    None,
    preset="fastapi",
    where="port 8000",
    sources=("fastapi",),
    reading=ProbeReading("latency", 0.143, None, 0.95, 120, 10.0),
    cpu_cores=1.234,
    memory_bytes=214 << 20,
    ports=(ProbedPort(8000, ("0.0.0.0",)), ProbedPort(9000, ("::",)), ProbedPort(9001, ("::",))),
)
TRAINING = Probed(
    "train",
    "2" * 64,
    "acme/gpt",
    None,
    preset="nanogpt",
    where="its log",
    sources=("nanogpt",),
    reading=ProbeReading("training", lines=9, of_lines=200, step=750, metrics=(("val_loss", 2.5),)),
    cpu_cores=3.9,
    memory_bytes=3 << 30,
    gpu_memory_bytes=11 << 30,
    ports=(),
)
SILENT = Probed(
    "postgres",
    "3" * 64,
    "postgres:17",
    None,
    cpu_cores=0.4,
    memory_bytes=81 << 20,
    ports=(ProbedPort(5432, ("0.0.0.0", "::")),),
)
TIMED = Probed(
    "api",
    "8" * 64,
    "acme/api",
    None,
    reading=ProbeReading("latency", 0.0113, None, 0.95, 97, 5.0),
    timed=18999,
    cpu_cores=0.21,
    memory_bytes=35 << 20,
    ports=(ProbedPort(18999, ("::",), PortTimes(99, 5.0, 97, 1, 0.0101, 0.0113, 0.0098, 0.0109)),),
)
MUTE = Probed(
    "grpc",
    "9" * 64,
    "acme/grpc",
    None,
    cpu_cores=0.31,
    memory_bytes=35 << 20,
    ports=(ProbedPort(50051, ("::",), PortTimes(0, 5.0, 0, 0, unmeasured=("HTTP/2",))),),
)
BURNING = Probed("encoder", "7" * 64, "acme/encode", None, cpu_cores=0.93, ports=())
CLOSED = Probed(
    "sgl",
    "4" * 64,
    "lmsysorg/sglang",
    None,
    "sglang",
    unread="port 30000: answers with status 404; start it with --enable-metrics",
    ports=(ProbedPort(30000, ("::",)),),
)
OURS = Probed("ours", "5" * 64, "x", "adopted by its labels", cpu_cores=None)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[ProbeOptions, Any]]:
    """What the command asked for; all eight are found."""
    calls: list[tuple[ProbeOptions, Any]] = []

    def probe(
        _: object, __: object, options: ProbeOptions, managed: Any = None
    ) -> tuple[Probed, ...]:
        calls.append((options, managed))
        return (SERVICE, TIMED, MUTE, TRAINING, SILENT, BURNING, CLOSED, OURS)

    monkeypatch.setattr(package, "probe", probe)
    return calls


def test_each_container_is_shown_with_what_adopts_it(program: Program, asked: list[Any]) -> None:
    result = program("probe", env={"COLUMNS": "80"})
    assert (result.exit_code, result.stderr) == (0, "")
    same_text("probe", result.stdout)


@pytest.mark.parametrize(
    ("cores", "ports", "proposal"),
    [
        (0.93, (), "dlsched adopt x --background"),
        (0.93, None, "if no one waits for the container's answers: dlsched adopt x --background"),
        (0.04, (), "leave it"),
        (None, (), "leave it"),
        (
            0.93,
            (ProbedPort(80, ("::",)),),
            "if no one waits for the container's answers: dlsched adopt x --background",
        ),
    ],
)
def test_a_container_that_only_burns_cpu_is_proposed_as_background(
    cores: float | None, ports: tuple[ProbedPort, ...] | None, proposal: str
) -> None:
    assert _proposal(Probed("x", "8" * 64, "y", None, cpu_cores=cores, ports=ports)) == proposal


@pytest.mark.parametrize(
    ("failed", "lost", "known", "waits"),
    [
        (0, 0, "port 8000: 7 requests in 5.0 s, none answered yet", True),
        (2, 0, "port 8000: 7 requests in 5.0 s, 2 failed, 5 not answered yet", True),
        (7, 0, "port 8000: 7 requests in 5.0 s, 7 failed", False),
        (0, 7, "", False),
    ],
)
def test_one_that_was_asked_and_has_not_answered_is_no_background_job(
    failed: int, lost: int, known: str, waits: bool
) -> None:
    port = ProbedPort(8000, ("::",), PortTimes(7, 5.0, 0, failed, lost=lost))
    one = Probed("x", "8" * 64, "y", None, cpu_cores=0.93, ports=(port,))
    assert _just_now(one) == known
    when = "if callers wait for the container's answers, set TIME to what they need"
    adopt = f"{when}: dlsched adopt x --latency TIME"
    assert _proposal(one) == (adopt if waits else "leave it")


def test_a_container_with_a_page_is_no_background_job() -> None:
    one = Probed("x", "8" * 64, "y", None, where="port 9100", sources=("port=9100",), cpu_cores=2.0)
    assert _proposal(one) == "leave it, or: dlsched adopt x --minimum 2"


def test_a_latency_within_a_bucket_is_proposed_at_its_bound() -> None:
    reading = ProbeReading("latency", 0.25, 0.1, 0.95, 40, 2.0)
    one = replace(SERVICE, reading=reading)
    assert _proposal(one) == "dlsched adopt asr --latency 250ms --quantile p95 --metrics fastapi"
    # A round figure above an odd bound would lie within the next bucket.
    odd = replace(one, reading=replace(reading, seconds=0.075))
    assert "--latency 75ms" in _proposal(odd)
    assert _just_now(one) == "p95 latency 100 to 250 ms of 40 requests in 2.0 s"


def streaming(gaps: int, first_s: float) -> Probed:
    times = PortTimes(40, 5.0, 40, 0, 1.9, 2.1, first_s, 1.1 * first_s, gaps)
    reading = ProbeReading("latency", 2.1, None, 0.95, 40, 5.0)
    at = (ProbedPort(18999, ("::",), times),)
    return replace(TIMED, name="llm", reading=reading, ports=at)


@pytest.mark.parametrize(
    ("gaps", "first_s", "target"),
    [
        (800, 0.2, "--of first-byte --latency 250ms --quantile p95"),
        (80, 0.2, "--latency 2.5s --quantile p95"),
        (800, 1.2, "--latency 2.5s --quantile p95"),
    ],
    ids=["tokens", "few parts", "the first comes late"],
)
def test_of_a_stream_the_first_byte_is_proposed(gaps: int, first_s: float, target: str) -> None:
    assert _proposal(streaming(gaps, first_s)) == f"dlsched adopt llm {target}"


def test_what_a_busy_host_just_meets_is_no_target() -> None:
    busy = "measured on a busy host (3.9 of 4 cores used), so set TIME to what users need: "
    short = HostUse(3.9, 4.0)
    wanted = f"{busy}dlsched adopt api --latency TIME --quantile p95"
    assert _proposal(replace(TIMED, host=short)).replace("3.90", "3.9") == wanted
    assert "--of first-byte --latency TIME" in _proposal(replace(streaming(800, 0.2), host=short))
    assert _proposal(replace(TIMED, host=HostUse(2.0, 4.0))) == _proposal(TIMED)
    assert _proposal(replace(TRAINING, host=short)) == _proposal(TRAINING)


def test_json_has_everything_and_the_proposal(program: Program, asked: list[Any]) -> None:
    result = program("probe", "--json", "--no-http", "--over", "5s", "asr")
    found = {one["name"]: one for one in json.loads(result.stdout)}
    assert found["asr"]["reading"]["seconds"] == 0.143
    assert found["asr"]["proposal"].startswith("dlsched adopt asr --latency")
    ((options, managed),) = asked
    assert (options.names, options.http, options.over_s) == (("asr",), False, 5.0)
    # Without a daemon nothing is known to be managed but by labels.
    assert managed == {}


def test_beside_a_daemon_its_containers_are_named(
    program: Program, daemon: FakeSource, asked: list[Any]
) -> None:
    assert program("probe").exit_code == 0
    ((_, managed),) = asked
    assert managed
    assert all("`dlsched why " in how for how in managed.values())


def test_a_hostile_name_or_metric_stays_one_word_of_the_command(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = Probed(
        "a;reboot",
        "6" * 64,
        "\x1b[31mimage\n\n",
        None,
        sources=("name=$(reboot)",),
        where="port 1",
        reading=ProbeReading("latency", 0.1, requests=3),
    )
    monkeypatch.setattr(package, "probe", lambda *_: (evil,))
    result = program("probe", "-o", "json")
    (one,) = json.loads(result.stdout)
    assert shlex.split(one["proposal"])[2] == "a;reboot"
    assert shlex.split(one["proposal"])[-1] == "name=$(reboot)"
    assert "\x1b" not in program("probe").stdout


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.143, "150ms"), (0.15, "150ms"), (1.9, "2s"), (0.00004, "0.1ms"), (85.0, "100s"),
     (0.999, "1s"), (0.61, "800ms")],
)  # fmt: skip
def test_a_proposed_target_is_the_next_round_figure(seconds: float, text: str) -> None:
    assert _round_seconds(seconds) == text


@pytest.mark.parametrize(
    ("metric", "value", "options"),
    [
        ("map", 0.551, "--reach map=0.6"),
        ("accuracy", 0.991, "--reach accuracy=0.9919"),
        ("accuracy", 98.0, "--reach accuracy=98.2"),
        ("reward", 250.0, "--reach reward=280"),
        ("val_loss", 1.35, "--reach val_loss=1.2"),
        ("val_loss", math.nan, "--reach val_loss=VALUE --good-enough VALUE"),
        ("score", 3.0, "--reach score=VALUE --good-enough VALUE"),
    ],
)
def test_a_proposed_goal_is_a_tenth_of_the_way_further(
    metric: str, value: float, options: str
) -> None:
    assert " ".join(_goal(metric, value)) == options


def test_what_is_not_to_be_read_yet_says_when(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    several = "the page's requests are of several model: a, b: choose by where.model"
    found = (
        replace(SERVICE, reading=None, unread=NO_REQUEST),
        replace(SERVICE, name="many", reading=None, unread=several, sources=("triton",)),
        replace(
            TRAINING,
            reading=ProbeReading("training", lines=1, of_lines=2, metrics=(("loss", math.nan),)),
        ),
    )
    monkeypatch.setattr(package, "probe", lambda *_: found)
    proposals = [one["proposal"] for one in json.loads(program("probe", "--json").stdout)]
    assert proposals == [
        "when the container has answered requests: dlsched probe asr",
        "when the problem shown is solved: dlsched adopt many --latency TIME --metrics triton",
        "dlsched adopt train --reach loss=VALUE --good-enough VALUE --metrics nanogpt",
    ]
    assert "loss nan (1 of 2 lines): diverged" in program("probe", env={"COLUMNS": "200"}).stdout


def test_without_the_right_to_ask_the_engine_it_says_who_has_it(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = tmp_path / "root.sock"
    socket.touch(mode=0o600)
    monkeypatch.setattr(os, "access", lambda path, *_, **__: Path(path) != socket)

    def refused(*_: object) -> None:
        raise EngineUnavailable("no answer from the Docker Engine at x: Permission denied")

    monkeypatch.setattr(package, "probe", refused)
    result = program("probe", env={"DOCKER_HOST": f"unix://{socket}"})
    assert result.exit_code == 3
    assert "Permission denied; run as root: only root may use the engine's socket" in result.stderr


def test_wrong_words_and_no_engine(program: Program, tmp_path: Path) -> None:
    assert "--over" in program("probe", "--over", "1h").stderr
    missing = {"DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    result = program("probe", env=missing)
    assert result.exit_code == 3
    assert result.stderr.startswith("error: no answer from the Docker Engine at ")
