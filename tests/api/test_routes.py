"""Every route, over a real socket."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from dlsched.api.codec import as_json
from dlsched.api.server import ApiServer
from dlsched.model.actions import Outcome, Start
from dlsched.model.cycle import RejectedFile
from dlsched.model.errors import EngineUnavailable
from dlsched.model.spec import Limits
from tests.api.conftest import answers, client_of
from tests.status_source import CHANGE, EVENT, FakeSource, example_report

pytestmark = pytest.mark.timed

Ask = Callable[..., httpx2.Response]


@pytest.fixture
def ask(server: ApiServer) -> Any:
    with client_of(server.control_path) as client:
        yield client.request


def test_metrics_are_of_the_last_cycle(ask: Ask, source: FakeSource) -> None:
    before = ask("GET", "/metrics")
    assert before.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "\ndlsched_cycles_total 1.0\n" in before.text
    source.report = replace(example_report(), engine_ok=False)
    after = ask("GET", "/metrics").text
    assert "\ndlsched_engine_up 0.0\n" in after
    assert "\ndlsched_cycles_total 2.0\n" in after


@pytest.mark.parametrize("page", ["/why", "/logs"])
def test_a_container_s_name_may_be_given_with_its_capitals(ask: Ask, page: str) -> None:
    assert ask("GET", f"/v1/jobs/Queued{page}").status_code == 200


def test_why_tells_history_and_the_last_cycle(ask: Ask, source: FakeSource) -> None:
    answer = ask("GET", "/v1/jobs/digits-resnet/why?limit=3").json()
    assert answer["changes"] == [as_json(CHANGE)]
    assert answer["events"] == [as_json(EVENT)]
    assert answer["job"]["name"] == "digits-resnet"
    assert answer["now"]["guard"] == "1.4 cores cut to 1.25: the node is full"
    assert ("changes", "digits-resnet", 3) in source.asked


def test_why_remembers_a_job_that_is_gone(ask: Ask) -> None:
    answer = ask("GET", "/v1/jobs/gone/why").json()
    assert answer["job"] is None
    assert answer["changes"]


@pytest.mark.parametrize("what", ["stop", "start"])
def test_wishes_are_handed_on(ask: Ask, source: FakeSource, what: str) -> None:
    assert ask("POST", f"/v1/jobs/queued/{what}").status_code == 202
    assert source.asked == [(what, "queued")]
    assert ask("GET", f"/v1/jobs/queued/{what}").status_code == 405


@pytest.mark.parametrize("path", ["containers/queued/adopt", "jobs/queued/stop"])
def test_what_is_refused_is_409(ask: Ask, source: FakeSource, path: str) -> None:
    source.refuses = "queued: it does not run (exited)"
    answer = ask("POST", f"/v1/{path}", json={"labels": {}})
    assert (answer.status_code, answer.json()) == (409, {"error": source.refuses})


@pytest.mark.parametrize("body", [b"", b"[]", b'{"labels": {"a": 1}}', b"\xfe\xff\0{"])
def test_a_body_without_labels_is_400(ask: Ask, source: FakeSource, body: bytes) -> None:
    answer = ask("POST", "/v1/containers/queued/adopt", content=body)
    assert (answer.status_code, source.asked) == (400, [])


def test_a_body_that_is_too_long_is_413(ask: Ask, source: FakeSource) -> None:
    body = b'{"labels": {"a": "%s"}}' % (b"x" * (64 << 10))
    answer = ask("POST", "/v1/containers/queued/adopt", content=body)
    assert (answer.status_code, source.asked) == (413, [])
    assert answer.json() == {"error": "the body is longer than 65536 bytes"}


def test_everything_is_given_back_and_resumed(ask: Ask, source: FakeSource) -> None:
    back = {"job": "a", "container_id": "c", "adopted": True, "now": "1 cores", "failure": None}
    source.given_back = [back]
    answer = ask("POST", "/v1/release")
    assert (answer.status_code, answer.json()) == (200, {"containers": [back]})
    assert ask("POST", "/v1/resume").status_code == 202
    assert source.asked == [("release",), ("resume",)]
    assert ask("GET", "/v1/release").status_code == 405


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/jobs/nobody/why"),
        ("GET", "/v1/jobs/nobody/logs"),
        ("POST", "/v1/jobs/nobody/stop"),
        ("POST", "/v1/jobs/nobody/start"),
    ],
)
def test_an_unknown_job_is_404_with_the_known_ones(ask: Ask, method: str, path: str) -> None:
    answer = ask(method, path)
    assert answer.status_code == 404
    assert answer.json()["error"].startswith("no job 'nobody'; known are digits-mobilenet, ")


@pytest.mark.parametrize("limit", ["0", "1001", "-1", "1e3", "x", "", "٣", "99999999999999999999"])
def test_a_bad_number_is_400_with_the_bound(ask: Ask, limit: str) -> None:
    answer = ask("GET", f"/v1/jobs/queued/why?limit={limit}")
    assert answer.status_code == 400
    assert answer.json()["error"].endswith("must be a whole number from 1 to 1000")


@pytest.mark.parametrize("failed", [None, "1 control cycle in a row failed"])
def test_before_the_first_cycle_is_503(ask: Ask, source: FakeSource, failed: str | None) -> None:
    source.report, source.failed = None, failed
    line = f"the first cycle is not done yet{f': {failed}' if failed else ''}"
    for path in ("/v1/jobs", "/metrics"):
        answer = ask("GET", path)
        assert (answer.status_code, answer.json()) == (503, {"error": line})


def test_an_unknown_path_is_json_too(ask: Ask) -> None:
    answer = ask("GET", "/v2")
    assert answer.status_code == 404
    assert "error" in answer.json()


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (EngineUnavailable("no answer from the engine"), 503, "no answer from the engine"),
        (KeyError("queued"), 404, "job queued has no container"),
    ],
)
def test_logs_that_cannot_be_read_are_one_line(
    ask: Ask,
    source: FakeSource,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    status: int,
    line: str,
) -> None:
    # However late the reader's thread runs.
    monkeypatch.setattr("dlsched.api.routes.FIRST_CHUNK_S", 30.0)

    def failing() -> Any:
        raise error
        yield b""

    source.log = failing()
    answer = ask("GET", "/v1/jobs/queued/logs")
    assert (answer.status_code, answer.json()) == (status, {"error": line})


def test_a_file_name_that_is_no_text_is_told_all_the_same(source: FakeSource, ask: Ask) -> None:
    name = os.fsdecode(b"caf\xe9.yaml")
    bad = RejectedFile(name, None, (f"{name}: is not UTF-8 text",))
    source.report = replace(example_report(), rejected=(bad,))
    answer = ask("GET", "/v1/jobs")
    assert answer.status_code == 200
    assert "caf\\udce9.yaml" in answer.text


def test_no_answer_has_a_secret_of_a_job(server: ApiServer, source: FakeSource) -> None:
    source.stream.publish(example_report())
    start = Start(example_report().snapshot.jobs[1].spec, Limits(1.0), 1024)
    source.report = replace(example_report(), outcomes=(Outcome(start, "failed", "no image"),))
    with client_of(server.control_path) as client:
        found = answers(client, "digits-resnet")
    unread = {path for path, answer in found.items() if answer.status_code != 200}
    assert unread == {
        *("/v1/history", "/v1/usage"),  # without a journal
        "/v1/containers/digits-resnet/labels",  # of none that was adopted
    }
    outcome = found["/v1/jobs/digits-resnet/why"].json()["now"]["outcomes"][0]
    spec = outcome["action"]["spec"]
    assert spec["container"]["environment"] == [["TOKEN", "***"]]
    assert (spec["digest"], spec["container_digest"]) == ("", "")
    texts = {path: answer.text for path, answer in found.items()}
    assert [path for path, text in texts.items() if "hunter2" in text] == []
    assert [path for path, text in texts.items() if "d-digits" in text] == []
