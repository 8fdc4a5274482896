"""Where a container's endpoint is asked: at its own address, or at its proxy's."""

from __future__ import annotations

from typing import Any

import pytest

from dlsched.model.errors import EngineUnavailable
from dlsched.model.sources import LabelFilter, LogPattern, Metric, MetricsEndpoint
from dlsched.model.spec import AccuracyTarget
from dlsched.runtime.docker import reading
from dlsched.runtime.docker.engine import EngineRefused
from dlsched.runtime.docker.reading import Outside, _names, _Proxy, named_in
from dlsched.runtime.progress.http_page import Unanswered

FOLLOW: Any = None
"""No log is followed here."""


def container(number: int) -> dict[str, Any]:
    """A running proxy with that address, as the engine describes it."""
    networks = {"net": {"IPAddress": f"10.0.0.{number}"}} if number else {}
    return {
        "Id": "e" * 64,
        "Name": "/edge",
        "State": {"Status": "running", "Pid": 7, "StartedAt": "2026-01-01T00:00:00Z"},
        "Config": {"Labels": {}, "Image": "proxy"},
        "HostConfig": {},
        "NetworkSettings": {"Networks": networks},
    }


def test_a_proxy_is_inspected_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, asked = [100.0], []
    monkeypatch.setattr(reading.time, "monotonic", lambda: now_s[0])

    def inspect(name: str) -> dict[str, Any]:
        asked.append(name)
        return container(len(asked))

    proxy = _Proxy("edge", Outside(FOLLOW, inspect))
    assert [proxy.locate(80), proxy.locate(80)] == ["10.0.0.1", "10.0.0.1"]
    now_s[0] += reading.PROXY_KEPT_S
    assert (proxy.locate(80), asked) == ("10.0.0.2", ["edge", "edge"])


@pytest.mark.timed
def test_a_proxy_in_the_hosts_network_is_asked_where_it_listens_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def loopback_of(pid: int, container: str, port: int, *_: object) -> str:
        asked.append((pid, container, port))
        return "127.0.0.1"

    monkeypatch.setattr(reading, "loopback_of", loopback_of)
    proxy = _Proxy("edge", Outside(FOLLOW, lambda _: container(0)))
    assert [proxy.locate(80), proxy.locate(80)] == ["127.0.0.1"] * 2
    assert asked == [(7, "e" * 64, 80)] * 2, "each time"


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (EngineRefused(404, "No such container: edge"), "there is no such container"),
        (EngineUnavailable("does not answer"), "does not answer"),
        (None, "its description is not understood"),
    ],
)
@pytest.mark.timed
def test_a_proxy_that_is_not_found_is_said(error: Exception | None, why: str) -> None:
    def inspect(_: str) -> dict[str, Any]:
        if error is not None:
            raise error
        return {"Id": 5}

    with pytest.raises(Unanswered, match=why):
        _Proxy("edge", Outside(FOLLOW, inspect)).locate(80)


def test_the_containers_name_stands_in_the_filter_as_proxies_write_it() -> None:
    metric = Metric(name="m", where=(LabelFilter("service", "${container}@docker"),))
    named = named_in(MetricsEndpoint((80,), metrics=(metric,)), "my_app.1")
    (one,) = named.metrics[0].where
    assert one.pattern == r"(?:my_app\.1|my\-app\-1)@docker"


def test_the_presets_group_takes_the_name_of_the_targets_metric() -> None:
    source = LogPattern("(?P<map50>.) (?P<map>.)", metric="map")
    assert _names(source, AccuracyTarget("quality", 0.5, 0.6)) == {"map": "quality"}
    assert _names(source, AccuracyTarget("map50", 0.5, 0.6)) == {}
    assert _names(source, None) == {}
