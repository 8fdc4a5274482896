"""`dlsched web`'s port before a real API: who gets anything from it, what is passed on, and how it
ends."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dlsched.api import web_proxy
from dlsched.api.server import CONNECTIONS_MAX, ApiServer
from dlsched.api.sockets import open_tcp
from dlsched.api.stream import Stream
from dlsched.api.web_proxy import FORWARDED_MAX, WebProxy, WebServer
from tests.api.conftest import serving
from tests.status_source import FakeSource, example_report
from tests.waiting import until

pytestmark = pytest.mark.timed


class Web:
    """The port, in a thread."""

    def __init__(self, daemon: Path) -> None:
        listening = open_tcp("127.0.0.1", 0)
        self.port = listening.getsockname()[1]
        self.proxy = WebProxy(daemon, self.port)
        self.url, _, self.token = self.proxy.address.partition("/#")
        self._server = WebServer(self.proxy, listening)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._server.answer())

    def end(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._server.end)
        self._thread.join(60)
        assert not self._thread.is_alive(), "it does not end"

    def enter(self, token: str | None = None) -> httpx2.Response:
        given = self.token if token is None else token
        headers = {"X-Dlsched-Token": given.encode("latin-1")}
        return httpx2.post(f"{self.url}/enter", headers=headers, timeout=60)

    def opened(self) -> httpx2.Client:
        """A browser that has been let in. Its base is the page."""
        answer = self.enter()
        base = f"{self.url}{answer.json()['path']}"
        return httpx2.Client(base_url=base, cookies=answer.cookies, timeout=60)


@pytest.fixture
def web(server: ApiServer) -> Iterator[Web]:
    web = Web(server.status_path)
    yield web
    web.end()


@pytest.fixture
def browser(web: Web) -> Iterator[httpx2.Client]:
    with web.opened() as client:
        yield client


def refusal(answer: httpx2.Response) -> tuple[int, str]:
    """Status and line of a refusal, which is one line."""
    line = answer.json()["error"]
    assert "\n" not in line
    return answer.status_code, line


NOT_OPEN = "this page is not open to you: use the address that `dlsched web` printed; it works once"
USED = "this address has been used already, or is wrong: start `dlsched web` again"


# ------------------------------------------------------------------------------ who gets in


@pytest.mark.parametrize(
    "path", ["/v1/jobs", "/v1/stream", "/metrics", "/static/x", "/enter", "//"]
)
def test_without_the_cookie_nothing_is_read(web: Web, source: FakeSource, path: str) -> None:
    assert refusal(httpx2.get(web.url + path, timeout=60)) == (403, NOT_OPEN)
    assert source.asked == []


def test_the_entrance_says_in_one_line_what_to_do(web: Web) -> None:
    answer = httpx2.get(f"{web.url}/", timeout=60)
    assert answer.status_code == 403
    assert f'<p id="line">{NOT_OPEN}</p>' in answer.text
    assert "<script>" not in answer.text, "a strict policy runs no script in the page"
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    script = httpx2.get(f"{web.url}/enter.js", timeout=60)
    assert (script.status_code, script.headers["content-type"][:15]) == (200, "text/javascript")
    secrets = (web.token, web.proxy._session, web.proxy._path)
    assert not any(one in answer.text + script.text for one in secrets)


def test_the_page_path_alone_and_a_wrong_cookie_open_nothing(web: Web) -> None:
    path = web.enter().json()["path"]
    name = f"dlsched-{web.port}"
    for cookie in (
        "",
        f"{name}=",
        f"{name}=x",
        f"{name}={web.token}",
        f"{name}; ;=\xff",
        "=" * 999,
    ):
        headers = {"Cookie": cookie.encode("latin-1")}
        answer = httpx2.get(f"{web.url}{path}v1/about", headers=headers, timeout=60)
        assert refusal(answer) == (403, NOT_OPEN), cookie


def test_the_cookie_alone_opens_nothing(web: Web, source: FakeSource) -> None:
    """A server on another port may be sent the cookie, but learns no path."""
    answer = web.enter()
    headers = {"Cookie": answer.headers["set-cookie"].partition(";")[0]}
    for path in ("/v1/about", "/x/v1/about", f"{answer.json()['path'][:-2]}x/v1/about"):
        assert refusal(httpx2.get(web.url + path, headers=headers, timeout=60)) == (403, NOT_OPEN)
    right = f"{answer.json()['path']}v1/about"
    assert httpx2.get(web.url + right, headers=headers, timeout=60).status_code == 200


def test_a_token_works_once(web: Web) -> None:
    assert web.enter().status_code == 200
    assert refusal(web.enter()) == (403, USED)


def test_a_wrong_token_gets_nothing_and_spoils_nothing(web: Web) -> None:
    for wrong in ("", "x", web.token[:-1], web.token + "x", "\xe4"):
        assert refusal(web.enter(wrong)) == (403, USED)
        assert "set-cookie" not in web.enter(wrong).headers
    assert web.enter().status_code == 200


def test_the_token_has_128_bits_and_every_run_another(web: Web, server: ApiServer) -> None:
    assert len(web.token) * 6 >= 128
    secrets = {
        one
        for proxy in (web.proxy, WebProxy(server.status_path, web.port))
        for one in (proxy.address, proxy._session, proxy._path)
    }
    assert len(secrets) == 6


def test_the_cookie_is_of_this_port_and_path_and_no_script_reads_it(web: Web) -> None:
    answer = web.enter()
    cookie, *rest = answer.headers["set-cookie"].split("; ")
    assert cookie.startswith(f"dlsched-{web.port}=")
    path = answer.json()["path"]
    assert {one.lower() for one in rest} == {
        "httponly",
        f"path={path}".lower(),
        "samesite=strict",
    }
    assert len(path) > 22


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_a_foreign_host_name_is_refused_also_with_the_cookie(
    web: Web, browser: httpx2.Client, host: str
) -> None:
    status, line = refusal(browser.get("v1/about", headers={"Host": host}))
    assert (status, "the Host header names" in line) == (403, True)
    token = {"X-Dlsched-Token": web.token, "Host": host}
    assert refusal(httpx2.post(f"{web.url}/enter", headers=token, timeout=60))[0] == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_is_changed_through_it(
    browser: httpx2.Client, source: FakeSource, method: str
) -> None:
    for path in ("v1/release", "v1/jobs/digits-resnet/stop", "enter"):
        assert refusal(browser.request(method, path)) == (
            405,
            "this port only shows the status, and takes no changes",
        )
    assert source.asked == []


# ------------------------------------------------------------------------------ what is passed on


@pytest.mark.parametrize("other", ["x", "a b=c", "a@b=1", "path=/", 'q="', "\xff", ";;", "="])
def test_cookies_of_other_servers_on_this_host_shut_nobody_out(web: Web, other: str) -> None:
    answer = web.enter()
    own = answer.headers["set-cookie"].partition(";")[0]
    page = f"{web.url}{answer.json()['path']}v1/about"
    for cookies in (f"{own}; {other}", f"{other}; {own}"):
        headers = {"Cookie": cookies.encode("latin-1")}
        assert httpx2.get(page, headers=headers, timeout=60).status_code == 200, cookies


def test_with_the_cookie_the_daemon_answers(browser: httpx2.Client, source: FakeSource) -> None:
    assert browser.get("v1/about").json()["pid"] == 4711
    why = browser.get("v1/jobs/digits-resnet/why?limit=3")
    assert why.json()["job"]["name"] == "digits-resnet"
    assert ("changes", "digits-resnet", 3) in source.asked
    assert refusal(browser.get("v1/jobs/nobody/why"))[0] == 404
    head = browser.head("v1/about")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] != "0"


def test_each_answer_is_for_this_page_alone(browser: httpx2.Client) -> None:
    headers = browser.get("v1/about").headers
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"
    assert len(headers.get_list("date")) == 1


def test_a_stream_is_passed_on_as_it_comes_and_from_where_it_was(
    browser: httpx2.Client, source: FakeSource
) -> None:
    source.stream.publish(cycle(1))
    source.stream.publish(cycle(2))
    with browser.stream("GET", "v1/stream", headers={"Last-Event-ID": "run1:1"}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        ids = (line for line in answer.iter_lines() if line.startswith("id: "))
        assert next(ids) == "id: run1:2"
        source.stream.publish(cycle(3))  # only now, so that the line came unbuffered
        assert next(ids) == "id: run1:3"


def cycle(number: int) -> Any:
    report = example_report()
    snapshot = replace(report.snapshot, cycle=number, now_s=1000.0 + number)
    return replace(report, snapshot=snapshot)


def test_a_browser_that_leaves_frees_its_stream(browser: httpx2.Client, source: FakeSource) -> None:
    with browser.stream("GET", "v1/stream"):
        until(lambda: sum(source.stream.followers.values()) == 1, "one follower")
    until(lambda: sum(source.stream.followers.values()) == 0, "no follower")


# ------------------------------------------------------------------------------ bounds and ends


def test_streams_are_limited(web: Web, browser: httpx2.Client, source: FakeSource) -> None:
    with contextlib.ExitStack() as open_ones:
        for _ in range(FORWARDED_MAX):
            open_ones.enter_context(browser.stream("GET", "v1/stream"))
        status, line = refusal(browser.get("v1/about"))
        assert (status, line) == (
            503,
            f"{FORWARDED_MAX} requests are being answered already: try again later",
        )
    until(lambda: browser.get("v1/about").status_code == 200, "an answer")


def test_a_thousand_connections_are_closed_but_for_some(web: Web, source: FakeSource) -> None:
    with contextlib.ExitStack() as open_ones:
        connections = [
            open_ones.enter_context(socket.create_connection(("127.0.0.1", web.port)))
            for _ in range(1000)
        ]
        until(
            lambda: sum(closed(one) for one in connections) >= 1000 - CONNECTIONS_MAX,
            "the others to be closed",
        )
        assert source.asked == []
    until(lambda: answers(web), "an answer")


def closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def answers(web: Web) -> bool:
    try:
        return httpx2.get(f"{web.url}/", timeout=60).status_code == 403
    except httpx2.TransportError:
        return False


def test_it_ends_with_open_streams_and_none_looks_complete(
    web: Web, browser: httpx2.Client, source: FakeSource, capsys: pytest.CaptureFixture[str]
) -> None:
    with browser.stream("GET", "v1/stream") as answer:
        parts = answer.iter_raw()
        next(parts)
        web.end()
        with pytest.raises(httpx2.TransportError):
            list(parts)
    until(lambda: sum(source.stream.followers.values()) == 0, "no follower")
    assert capsys.readouterr().err == ""


def test_without_a_daemon_it_says_so_and_goes_on_with_the_next(
    browser: httpx2.Client, server: ApiServer, source: FakeSource
) -> None:
    folder = server.status_path.parent
    with browser.stream("GET", "v1/stream") as answer:
        server.stop()
        with contextlib.suppress(httpx2.TransportError):
            list(answer.iter_raw())
    status, line = refusal(browser.get("v1/about"))
    assert (status, line[:30]) == (503, f"no daemon answers on {folder}"[:30])
    source.stream = Stream("run2")
    with serving(folder, source):
        assert browser.get("v1/about").json()["pid"] == 4711


@contextlib.contextmanager
def browser_before(
    path: Path, does: Callable[[socket.socket], object]
) -> Iterator[tuple[httpx2.Client, threading.Thread]]:
    """A browser before a daemon that takes one connection, reads the request, and does that."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                does(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        web = Web(path)
        with web.opened() as browser:
            yield browser, thread
        web.end()
        thread.join(60)
        assert not thread.is_alive()


HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_a_slow_browser_is_disconnected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_proxy, "SLOW_S", 0.3)

    def flood(connection: socket.socket) -> None:
        connection.sendall(HEAD)
        with contextlib.suppress(ConnectionError):
            while True:
                connection.sendall(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")

    with (
        browser_before(tmp_path / "d.sock", flood) as (browser, flooding),
        browser.stream("GET", "v1/stream") as answer,
    ):
        flooding.join(60)  # it is broken off although nothing was read
        assert not flooding.is_alive()
        with pytest.raises(httpx2.TransportError):
            list(answer.iter_raw())


@pytest.mark.parametrize(
    "said", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n"]
)
def test_a_daemon_that_breaks_off_is_said_in_one_line(tmp_path: Path, said: bytes) -> None:
    with browser_before(tmp_path / "d.sock", lambda one: one.sendall(said)) as (browser, _):
        line = f"the daemon on {tmp_path / 'd.sock'} does not answer"
        assert refusal(browser.get("v1/about")) == (503, line)


def test_an_answer_that_breaks_off_does_not_look_complete(tmp_path: Path) -> None:
    with (
        browser_before(tmp_path / "d.sock", lambda one: one.sendall(HEAD + b"1\r\nx")) as (
            browser,
            _,
        ),
        pytest.raises(httpx2.TransportError),
    ):
        browser.get("v1/about")


def test_a_browser_that_leaves_before_the_answer_frees_its_place(tmp_path: Path) -> None:
    asked, left = threading.Event(), threading.Event()

    def hangs(connection: socket.socket) -> None:
        asked.set()
        assert connection.recv(1) == b"", "the connection to the daemon is closed"
        left.set()

    with browser_before(tmp_path / "d.sock", hangs) as (browser, _):
        path = f"{browser.base_url.path}v1/about"
        cookies = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        address = (browser.base_url.host, browser.base_url.port)
        with socket.create_connection(address) as connection:
            request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookies}\r\n\r\n"
            connection.sendall(request.encode())
            assert asked.wait(60)
        assert left.wait(web_proxy.SILENT_S / 2)


def test_a_hung_daemon_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_proxy, "SILENT_S", 0.3)
    with browser_before(tmp_path / "d.sock", lambda one: one.recv(1)) as (browser, _):
        assert refusal(browser.get("v1/about"))[0] == 503
