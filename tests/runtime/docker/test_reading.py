"""Where a container's endpoint is asked: at its own address, or at its proxy's."""

from __future__ import annotations

import pytest

from dlsched.model.errors import EngineUnavailable
from dlsched.model.sources import LabelFilter, LogPattern, Metric, MetricsEndpoint
from dlsched.model.spec import AccuracyTarget
from dlsched.runtime.docker import reading
from dlsched.runtime.docker.engine import EngineRefused
from dlsched.runtime.docker.reading import _named_in, _names, _Proxy
from dlsched.runtime.progress.http_page import Unanswered


def test_a_proxys_address_is_asked_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, asked = [100.0], []
    monkeypatch.setattr(reading.time, "monotonic", lambda: now_s[0])

    def address_of(name: str) -> str:
        asked.append(name)
        return f"10.0.0.{len(asked)}"

    proxy = _Proxy("edge", address_of)
    assert [proxy.locate(80), proxy.locate(80)] == ["10.0.0.1", "10.0.0.1"]
    now_s[0] += reading.PROXY_KEPT_S
    assert (proxy.locate(80), asked) == ("10.0.0.2", ["edge", "edge"])


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (EngineRefused(404, "No such container: edge"), "there is no such container"),
        (EngineUnavailable("does not answer"), "does not answer"),
        (ValueError("not understood"), "not understood"),
        (None, "that container has no address of its own"),
    ],
)
def test_a_proxy_that_is_not_found_is_said(error: Exception | None, why: str) -> None:
    def address_of(_: str) -> None:
        if error is not None:
            raise error

    with pytest.raises(Unanswered, match=why):
        _Proxy("edge", address_of).locate(80)


def test_the_containers_name_stands_in_the_filter_as_proxies_write_it() -> None:
    metric = Metric(name="m", where=(LabelFilter("service", "${container}@docker"),))
    named = _named_in(MetricsEndpoint((80,), metrics=(metric,)), "my_app.1")
    (one,) = named.metrics[0].where
    assert one.pattern == r"(?:my_app\.1|my\-app\-1)@docker"


def test_the_presets_group_takes_the_name_of_the_targets_metric() -> None:
    source = LogPattern("(?P<map50>.) (?P<map>.)", metric="map")
    assert _names(source, AccuracyTarget("quality", 0.5, 0.6)) == {"map": "quality"}
    assert _names(source, AccuracyTarget("map50", 0.5, 0.6)) == {}
    assert _names(source, None) == {}
