"""The live page's files: to whom they are sent, with which headers, and that nothing is foreign."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from dlsched.api.routes import HEADERS, WEB
from dlsched.model.spec import BAND_RATIO
from tests.api.conftest import client_of, kept_port, serving
from tests.status_source import FakeSource, example_report

FILES = sorted(str(path.relative_to(WEB)) for path in WEB.rglob("*") if path.is_file())
OURS = [name for name in FILES if not name.startswith("vendor/")]

# Of uplot 1.6.32 as npm has it (`make vendor`).
VENDORED = {
    "LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, httpx2.Client]]:
    """A client at each address."""
    folder, source = tmp_path_factory.mktemp("page"), FakeSource(example_report())
    with (
        kept_port() as port,
        serving(folder, source, listen=("127.0.0.1", port)) as server,
        client_of(server.status_path) as status,
        client_of(server.control_path) as control,
        httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as listen,
    ):
        yield {"status": status, "control": control, "listen": listen}


def test_vendored_files_are_those_of_their_makers() -> None:
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (WEB / "vendor").iterdir()
    }
    assert found == VENDORED


@pytest.mark.parametrize("address", ["status", "control", "listen"])
@pytest.mark.timed
def test_every_address_has_the_page_with_all_its_headers(
    served: dict[str, httpx2.Client], address: str
) -> None:
    client = served[address]
    for path in ("/", *(f"/static/{name}" for name in FILES)):
        answer = client.get(path)
        assert answer.status_code == 200
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        assert "access-control-allow-origin" not in answer.headers
    assert client.get("/").content == (WEB / "index.html").read_bytes()
    for name in ("main", "band"):
        script = client.get(f"/static/js/{name}.js")
        assert script.headers["content-type"].startswith("text/javascript")
    assert script.text == f"export const BAND = {BAND_RATIO};\n"


def test_the_policy_allows_nothing_of_others_and_nothing_inline() -> None:
    policy = dict(part.split(maxsplit=1) for part in HEADERS["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["form-action"] == policy["base-uri"] == "'none'"


@pytest.mark.parametrize(
    "path",
    [
        "nothing.js",
        "../api/routes.py",
        "%2e%2e/api/routes.py",
        "js%2F..%2Findex.html",
        "/etc/passwd",
        "",
    ],
)
@pytest.mark.timed
def test_nothing_else_is_sent(served: dict[str, httpx2.Client], path: str) -> None:
    answer = served["listen"].get(f"/static/{path}")
    assert answer.status_code == 404
    assert "error" in answer.json()


def test_every_file_that_the_page_names_is_there_and_no_other() -> None:
    index = (WEB / "index.html").read_text()
    named = set(re.findall(r'(?:src|href)="static/([^"]+)"', index))
    for name in OURS:
        if name.endswith(".js"):
            imported = re.findall(r'from "\./([^"]+)"', (WEB / name).read_text())
            named |= {f"js/{one}" for one in imported}
    assert named - {"js/band.js"} == set(FILES) - {"index.html", "vendor/LICENSE"}


@pytest.mark.parametrize("name", OURS)
def test_our_files_are_short_load_nothing_else_and_make_no_markup_of_text(name: str) -> None:
    text = (WEB / name).read_text().replace("http://www.w3.org/2000/svg", "")
    assert len(text.splitlines()) <= 400
    for word in ("://", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert word not in text
    assert not re.search(r"<(?:script|[a-z]+)[^>]*\s(?:style|on[a-z]+)=", text)


@pytest.mark.timed
def test_a_page_goes_on_in_the_stream_where_it_was(tmp_path: Path) -> None:
    source = FakeSource(example_report())
    with serving(tmp_path, source) as server, client_of(server.status_path) as client:
        source.stream.publish(example_report())
        kept = client.get("/v1/stream?follow=0").text
        assert "id: run1:77\n" in kept
        assert "run1:77" not in client.get("/v1/stream?follow=0&after=run1:77").text
        # What the browser itself sends is newer than what the page was opened with.
        again = client.get("/v1/stream?follow=0&after=run1:77", headers={"Last-Event-ID": "run1:1"})
        assert "id: run1:77\n" in again.text
