"""`/v1/history`: what it answers, and every bad question."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException

from dlsched.api.client import Daemon
from dlsched.api.codec import read
from dlsched.api.history import OneReading, asked_range, asked_usage
from dlsched.api.history_schema import History
from dlsched.api.server import ApiServer
from dlsched.api.usage import usage_status
from dlsched.api.usage_schema import UsageStatus
from dlsched.control.cpu_account import CpuAccount
from dlsched.model.errors import Refused
from dlsched.store.journal.history import CpuUsage, Curves, Range, read_curves
from tests.status_source import FakeSource, example_report
from tests.store.journal.hours import BEGIN_S, cycle, view, write
from tests.texts import same_text
from tests.waiting import until

pytestmark = pytest.mark.timed


@pytest.fixture
def source(tmp_path: Path) -> FakeSource:
    """Ten minutes of `alpha`, which is silent in the last five, and `beta`."""
    source = FakeSource(replace(example_report(), wall_time="2025-11-21T09:50:00Z"))
    source.journal = tmp_path / "journal.db"
    write(
        source.journal,
        (
            cycle(
                number,
                view("alpha", ratio=2.0 if number < 300 else None),
                view("beta", limit_cores=None),
                changed=["alpha"] if number == 100 else [],
            )
            for number in range(1, 600)
        ),
    )
    return source


def asked(daemon: Daemon, query: str, path: str = "/v1/history") -> dict[str, Any]:
    return daemon._status.ask("GET", f"{path}?{query}")


def refused(daemon: Daemon, query: str, path: str = "/v1/history") -> tuple[int, str]:
    with pytest.raises(Refused) as caught:
        asked(daemon, query, path)
    assert "\n" not in str(caught.value)
    return caught.value.status, str(caught.value)


def test_a_range_is_answered_in_columns_with_its_changes(daemon: Daemon) -> None:
    found = asked(daemon, f"from={BEGIN_S:.0f}&to={BEGIN_S + 600:.0f}")
    same_text("history", yaml.safe_dump(found, sort_keys=False, width=100))


def test_the_default_is_the_last_hour_of_all_jobs(daemon: Daemon) -> None:
    history = read(History, asked(daemon, ""))
    assert history.to_s == BEGIN_S + 600, "the last cycle's time"
    assert history.from_s == BEGIN_S - 3000
    assert history.step_s == 60
    assert set(history.jobs) == {"alpha", "beta"}
    assert history.jobs["beta"]["usage_cores"][:50] == (None,) * 50


def test_jobs_are_those_asked_for_whatever_their_capitals(daemon: Daemon) -> None:
    found = asked(daemon, "jobs=Alpha,alpha")
    assert list(found["jobs"]) == ["alpha"]
    known_now = asked(daemon, "jobs=digits-resnet")
    assert known_now["jobs"] == {}, "it has no record in this range, but is a job"


def test_a_range_begins_with_a_whole_step(daemon: Daemon) -> None:
    found = asked(daemon, f"from={BEGIN_S + 77:.0f}&to={BEGIN_S + 500.5}&step=60")
    assert found["times"][0] == BEGIN_S + 60
    assert found["to_s"] == BEGIN_S + 500.5
    assert len(found["times"]) == len(found["jobs"]["alpha"]["ratio"]) == 8


def test_the_effect_stands_beside_its_change(source: FakeSource, daemon: Daemon) -> None:
    at_s = BEGIN_S + 601
    resized = cycle(601, view("digits-resnet"), view("other"), changed=["digits-resnet", "other"])
    write(source.journal, [resized])
    history = read(History, asked(daemon, f"from={at_s - 1}&to={at_s + 60}"))
    effects = dict(zip([one.job for one in history.changes], history.effects, strict=True))
    assert effects["other"] is None
    effect = effects["digits-resnet"]
    assert effect is not None
    assert (effect.cycle, effect.verdict) == (601, "helped")


@pytest.mark.parametrize(
    ("query", "line"),
    [
        ("from=-5", "from is '-5', must be seconds from 0 to 99999999999, in digits"),
        ("to=nan", "to is 'nan', must be seconds"),
        ("to=inf", "to is 'inf', must be seconds"),
        ("to=1e9", "to is '1e9', must be seconds"),
        ("to=", "to is '', must be seconds"),
        ("from=1_000", "from is '1_000', must be seconds"),
        ("from=%D9%A1", r"from is '\u0661', must be seconds"),
        ("from=123456789012", "from is '123456789012', must be seconds"),
        ("from=" + "9" * 5000, "from is '99999999999999999999', must be seconds"),
        ("from=1000&to=1000", "from is 1000, must be before to, which is 1000"),
        ("from=2000&to=1000", "from is 2000, must be before to, which is 1000"),
        ("from=0&to=99999999999", "the range is 1157407 days, must be at most 366"),
        ("step=0", "step is 0 s, must be from 60 s to 31622400 s"),
        ("step=59.9", "step is 59.9 s, must be from 60 s"),
        ("step=99999999999", "step is 1e+11 s, must be from 60 s to 31622400 s"),
        ("step=-60", "step is '-60', must be seconds"),
        (
            "from=1000000000&to=1000086400&step=60",
            "the range has 1441 steps of 60 s, must have at most 1000: ask for a step of 87 s",
        ),
        ("jobs=", "jobs names 0 jobs, must name from 1 to 256"),
        ("jobs=,,", "jobs names 0 jobs, must name from 1 to 256"),
        (
            "jobs=" + ",".join(f"j{n}" for n in range(257)),
            "jobs names 257 jobs, must name from 1 to 256",
        ),
    ],
)
def test_a_bad_question_is_one_clear_line(query: str, line: str) -> None:
    with pytest.raises(HTTPException) as caught:
        asked_range(QueryParams(query), BEGIN_S)
    assert caught.value.status_code == 400
    assert caught.value.detail.startswith(line)
    assert len(caught.value.detail) < 200
    assert "\n" not in caught.value.detail


def test_the_step_that_is_proposed_is_taken() -> None:
    assert asked_range(QueryParams("from=1000000000&to=1000086400&step=87"), 0.0).points <= 1000


def test_a_job_that_is_not_known_is_named_with_those_that_are(daemon: Daemon) -> None:
    status, text = refused(daemon, "jobs=alpha,%1b%5b31mghost")
    assert status == 404
    assert text.startswith(r"no job '\x1b[31mghost' in this range; known are alpha, beta, digits-")


def test_of_many_known_jobs_some_are_named(source: FakeSource, daemon: Daemon) -> None:
    write(source.journal, [cycle(601, *(view(f"job-{number:02}") for number in range(60)))])
    _, text = refused(daemon, f"from={BEGIN_S:.0f}&to={BEGIN_S + 660:.0f}&jobs=ghost")
    assert text.endswith("job-11, job-12 and 50 more")


def test_too_many_values_are_one_clear_line(
    source: FakeSource, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlsched.store.journal.history.VALUES_MAX", 11)
    status, text = refused(daemon, f"from={BEGIN_S:.0f}&to={BEGIN_S + 600:.0f}&step=60")
    assert status == 400
    assert text.startswith("10 steps of 2 jobs or more are over 11 values: ask for a longer step")


@pytest.mark.parametrize("path", ["/v1/history", "/v1/usage"])
def test_a_journal_that_is_not_there_or_damaged_is_one_line(
    source: FakeSource, daemon: Daemon, path: str
) -> None:
    source.journal = source.journal.with_name("absent.db")
    status, text = refused(daemon, "", path)
    assert (status, text) == (503, f"{source.journal}: no such journal")
    source.journal.write_bytes(b"no database at all " * 100)
    status, text = refused(daemon, "", path)
    assert (status, text.startswith(f"{source.journal}: ")) == (503, True)


class Held:
    """A source whose reading takes until it is let go, and notices when it is cancelled."""

    def __init__(self, source: FakeSource) -> None:
        self.begun, self.go, self.ended = (threading.Event() for _ in range(3))
        self.cancelled = False
        self._source = source
        source.curves = self.curves  # type: ignore[method-assign]

    def curves(self, asked: Range, stopped: Callable[[], bool]) -> Curves:
        self.begun.set()
        while not (self.go.wait(0.01) or stopped()):
            pass
        self.cancelled = stopped()
        self.ended.set()
        return read_curves(self._source.journal, asked, stopped)


def test_a_second_reader_waits_for_its_turn(
    source: FakeSource, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, take_turn = threading.Semaphore(0), OneReading._take_turn

    async def counted(self: OneReading) -> None:
        begun.release()
        await take_turn(self)

    monkeypatch.setattr(OneReading, "_take_turn", counted)
    held = Held(source)
    found: list[dict[str, Any]] = []
    readers = [threading.Thread(target=lambda: found.append(asked(daemon, ""))) for _ in range(2)]
    for one in readers:
        one.start()
        assert begun.acquire(timeout=60)
    held.go.set()
    for one in readers:
        one.join(60)
    assert [set(one["jobs"]) for one in found] == [{"alpha", "beta"}] * 2


def test_a_reader_who_waits_too_long_is_refused_and_the_rest_is_answered(
    source: FakeSource, server: ApiServer, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlsched.api.history.TURN_MAX_S", 0.2)
    held = Held(source)
    found: list[dict[str, Any]] = []
    first = threading.Thread(target=lambda: found.append(asked(daemon, "")))
    first.start()
    assert held.begun.wait(60)
    line = "the journal is being read for another request: ask again in a second"
    assert refused(daemon, "") == (503, line)
    assert refused(daemon, "", "/v1/usage") == (503, line)
    assert daemon.about()["policy"] == "dqoes", "the API answers everything else"
    held.go.set()
    first.join(60)
    assert set(found[0]["jobs"]) == {"alpha", "beta"}
    assert not held.cancelled
    assert set(asked(daemon, "")["jobs"]) == {"alpha", "beta"}


def test_who_goes_away_ends_the_reading(
    source: FakeSource, server: ApiServer, daemon: Daemon
) -> None:
    held = Held(source)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(server.status_path))
        connection.sendall(b"GET /v1/history HTTP/1.1\r\nHost: dlsched\r\n\r\n")
        assert held.begun.wait(60)
    assert held.ended.wait(60)
    assert held.cancelled
    held.go.set()
    assert until(lambda: answers(daemon), "an answer")


def answers(daemon: Daemon) -> bool:
    try:
        return bool(asked(daemon, "")["jobs"])
    except Refused as error:
        assert error.status == 503
        return False


def test_reading_that_takes_too_long_is_given_up(
    source: FakeSource, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(source)
    monkeypatch.setattr("dlsched.api.history.READ_MAX_S", 0.05)
    status, text = refused(daemon, "")
    assert status == 503
    assert text == "reading this range takes more than 0 s: ask a shorter one"
    assert held.ended.wait(60)
    assert held.cancelled


# ---------------------------------------------------------------------- usage


def test_usage_is_answered_by_user_and_by_job(source: FakeSource, daemon: Daemon) -> None:
    users = read(UsageStatus, asked(daemon, "since=3600", "/v1/usage"))
    assert [(row.name, row.owner, row.jobs) for row in users.rows] == [("no owner", None, 2)]
    jobs = read(UsageStatus, asked(daemon, "since=3600&by=job", "/v1/usage"))
    assert [row.name for row in jobs.rows] == ["alpha", "beta"]
    assert users.total == jobs.total == users.rows[0].cpu
    assert users.used_core_s == pytest.approx(users.total.used_core_s)
    assert users.total.used_core_s == pytest.approx(598.0)
    assert (users.recorded_s, users.capacity_core_s) == (598.0, 4 * 598.0)


@pytest.mark.parametrize(
    ("query", "line"),
    [
        ("since=59", "since is 59 s ago, must be 60 to 31622400 s ago"),
        ("since=31622401", "since is 3.16224e+07 s ago, must be 60 to 31622400 s ago"),
        ("since=-1", "since is '-1', must be seconds"),
        ("since=1d", "since is '1d', must be seconds"),
        ("by=group", "`by` is 'group', must be `user` or `job`"),
    ],
)
def test_a_bad_question_of_usage_is_one_clear_line(query: str, line: str) -> None:
    with pytest.raises(HTTPException) as caught:
        asked_usage(QueryParams(query), BEGIN_S)
    assert caught.value.status_code == 400
    assert caught.value.detail.startswith(line)


def test_bad_questions_are_refused_by_the_server(daemon: Daemon) -> None:
    assert refused(daemon, "step=1")[0] == refused(daemon, "by=x", "/v1/usage")[0] == 400


def test_the_answer_is_strict_json_in_ascii(server: ApiServer, daemon: Daemon) -> None:
    parts = b"".join(daemon._status.stream("GET", "/v1/history", 10.0))
    assert parts.isascii()
    json.loads(parts, parse_constant=pytest.fail)


def test_those_who_used_least_share_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlsched.api.usage.ROWS_MAX", 2)
    accounts = {(1000 + n, f"job-{n}"): CpuAccount(used=float(n)) for n in range(5)}
    for by in ("user", "job"):
        found = usage_status(CpuUsage(accounts, 1.0, 10.0, 10.0), by, 0.0, 60.0)  # type: ignore[arg-type]
        assert [row.cpu.used_core_s for row in found.rows] == [4.0, 3.0, 3.0]
        assert (found.rows[-1].name, found.rows[-1].jobs) == ("(3 others)", 3)
        assert found.total.used_core_s == 10.0
