"""A container that exports nothing is read at the proxy before it."""

from __future__ import annotations

from typing import Any

import pytest

from dlsched.cli.probing import _proposal
from dlsched.config.metrics.keys import MetricsKeys
from dlsched.config.metrics.loading import package_presets
from dlsched.model.sources import MetricsEndpoint
from dlsched.runtime.docker.probe.probed import NO_REQUEST
from dlsched.runtime.docker.probe.proxied import alias_of
from dlsched.runtime.progress.http_page import Unanswered
from tests.runtime.docker.probe.test_sampling import Fetch, PlayedEngine, body, page, pages, probed

__all__ = ["pages"]

pytestmark = pytest.mark.usefixtures("without_threads")

COMPOSE = {
    "com.docker.compose.project": "my_shop",
    "com.docker.compose.service": "web",
    "com.docker.compose.container-number": "1",
    "com.docker.compose.oneoff": "False",
}


def traefik(counts: dict[str, int], mean_s: float = 0.07) -> bytes:
    """Its page, with that many requests of each service."""
    name = "traefik_service_request_duration_seconds"
    lines = [f"# TYPE {name} histogram"]
    for service, count in counts.items():
        labels = f'code="200",method="GET",protocol="http",service="{service}"'
        lines += [
            f'{name}_bucket{{{labels},le="0.1"}} {count}',
            f'{name}_bucket{{{labels},le="+Inf"}} {count}',
            f"{name}_sum{{{labels}}} {count * mean_s}",
            f"{name}_count{{{labels}}} {count}",
        ]
    return ("\n".join(lines) + "\n").encode()


def edge(number: int = 0, **config: Any) -> dict[str, Any]:
    made = {"Image": "traefik:v3.1", "ExposedPorts": {"80/tcp": {}}, **config}
    return body(number, config=made, Name="/edge")


def serve(pages: list[Fetch], *answers: bytes, address: str = "10.9.0.1", port: int = 8080) -> None:
    """The proxy answers these pages in turn, and no other container any."""
    left = list(answers)

    def answer(at: str, asked: int, path: str, _: float) -> bytes:
        if (at, asked, path) != (address, port, "/metrics"):
            raise Unanswered("Connection refused")
        return left.pop(0) if len(left) > 1 else left[0]

    pages.append(answer)


def test_its_requests_are_read_at_the_proxy_and_so_it_is_adopted(pages: list[Fetch]) -> None:
    first, second = ({"c001@docker": n, "c003@docker": 5, "x@file": 9} for n in (1000, 1040))
    serve(pages, traefik(first), traefik(second))
    found = probed(PlayedEngine(edge(), body(1), body(2), body(3)))
    one = found["c001"]
    assert (one.preset, one.where, one.sources) == ("traefik", "at edge", ("traefik", "via=edge"))
    assert (one.reading.requests, one.reading.quantile) == (40, 0.95)
    assert one.reading.over_s is not None
    assert _proposal(one).startswith("dlsched adopt c001 --latency 100ms --quantile p95 ")
    assert _proposal(one).endswith("--metrics traefik --metrics via=edge")
    # Without a request in between, all that the proxy counted.
    quiet = found["c003"].reading
    assert quiet is not None and (quiet.requests, quiet.over_s) == (5, None)
    assert (found["c002"].preset, found["c002"].sources) == (None, ()), "no service of the proxy"
    assert not any(source.startswith("via=") for source in found["edge"].sources)


def test_what_is_proposed_is_what_was_read(pages: list[Fetch]) -> None:
    """The keys of the proposal name the series that were read."""
    serve(pages, traefik({"web-my-shop@docker": 30}), port=80)
    one = probed(PlayedEngine(edge(), body(1, config={"Labels": COMPOSE})))["c001"]
    assert one.sources == ("traefik", "port=80", "via=edge", "where.service=web-my-shop@docker")
    keys = MetricsKeys(
        base="traefik", port=(80,), via="edge", where={"service": "web-my-shop@docker"}
    )
    (source,) = package_presets().sources(keys)
    assert isinstance(source, MetricsEndpoint)
    assert (source.ports, source.via) == ((80,), "edge")
    (where,) = {one for metric in source.metrics for one in metric.where}
    assert str(where) == "service: web-my-shop@docker"


def test_what_exports_something_itself_is_read_there(pages: list[Fetch]) -> None:
    def answer(at: str, port: int, path: str, _: float) -> bytes:
        if (port, path) == (8080, "/metrics") and at == "10.9.0.1":
            return traefik({"c001@docker": 30, "c002@docker": 30})
        if (at, port, path) == ("10.9.0.2", 8000, "/metrics"):
            return page(50)
        raise Unanswered("Connection refused")

    pages.append(answer)
    printed = {"c002": [b"step 250: train loss 1.9, val loss 2.0\n"] * 3}
    found = probed(PlayedEngine(edge(), body(1), body(2), logs=printed))
    assert (found["c001"].preset, found["c002"].preset) == ("fastapi", "nanogpt")


def test_a_proxy_that_was_not_asked_for_tells_of_what_was(pages: list[Fetch]) -> None:
    serve(pages, traefik({"c001@docker": 0, "c002@docker": 3}))
    engine = PlayedEngine(edge(), body(1), body(2), body(3))
    listed = engine.containers

    def containers(labels: Any) -> list[dict[str, Any]]:
        images = {key: one["Config"]["Image"] for key, one in engine.bodies.items()}
        return [{**one, "Image": images[one["Id"]]} for one in listed(labels)]

    engine.containers = containers  # type: ignore[method-assign]
    found = probed(engine, "c001")
    assert set(found) == {"c001"}
    one = found["c001"]
    assert (one.preset, one.reading, one.unread) == ("traefik", None, NO_REQUEST)
    assert engine.calls.count("inspect") == 2, "the proxy's and its own"


def test_traefik_calls_compose_containers_by_service_and_project() -> None:
    assert alias_of(COMPOSE) == "web-my-shop"
    assert alias_of({**COMPOSE, "com.docker.compose.oneoff": "True"}) is None
    assert alias_of({}) is None


@pytest.mark.parametrize("second", [b"", b"# nothing\n"])
def test_a_proxy_that_does_not_answer_again_has_told_what_it_had(
    pages: list[Fetch], second: bytes
) -> None:
    serve(pages, traefik({"c001@docker": 30}), second)
    reading = probed(PlayedEngine(edge(), body(1)))["c001"].reading
    assert reading is not None and (reading.requests, reading.over_s) == (30, None)
