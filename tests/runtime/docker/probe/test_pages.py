"""Whose a metrics page is, by its names alone: on a port that is not its program's own."""

from __future__ import annotations

import pytest

from dlsched.config.metrics.loading import package_presets
from dlsched.model.sources import MetricsEndpoint
from dlsched.model.spec import LatencyTarget
from dlsched.runtime.docker.probe import recognition
from dlsched.runtime.docker.probe.recognition import PageExtract, speakers, stacks_of
from dlsched.runtime.progress.exposition import PageDelta, Pages
from dlsched.runtime.progress.scrape import named
from tests.runtime.docker.probe.pages import KNOWN, OTHERS

PRESETS = package_presets()
STACKS = stacks_of(PRESETS)
FOREIGN_PORT = 18999
"""No preset's."""

RELAYED = ("prometheus-federation", "pushgateway", "otel-collector")
"""Their pages have other programs' names; where the owner names the port, they are read."""

PROPOSED = {preset: (preset, f"port={FOREIGN_PORT}") for preset in KNOWN}
"""Of each page the options of `adopt --metrics`."""


def kept(page: str) -> bytes:
    """What probe keeps of a page."""
    extract = PageExtract(STACKS)
    extract.feed(page.encode())
    return extract.lines()


def by_port_alone(page: str) -> PageDelta:
    """What `adopt --latency 50ms --metrics port=N` reads of it."""
    endpoint = MetricsEndpoint((FOREIGN_PORT,))
    target = LatencyTarget(0.05, 0.95)
    return Pages(named(endpoint, None), from_end=False, target=target).take(page.encode())


@pytest.mark.parametrize("preset", KNOWN)
def test_a_page_is_recognised_by_its_names_on_any_port(preset: str) -> None:
    assert FOREIGN_PORT not in {
        port for one in STACKS if one.endpoint for port in one.endpoint.ports
    }
    found = speakers(kept(KNOWN[preset]), "acme/anything:1", FOREIGN_PORT, STACKS)
    options = recognition.options_of(found[0].preset, FOREIGN_PORT, "/metrics", None)
    assert options == PROPOSED[preset]


def test_every_preset_that_reads_pages_has_one_here() -> None:
    programs = {
        name
        for name, one in PRESETS.by_name.items()
        if one.keys.port is not None and one.keys.base is None and one.keys.via is None
    }
    # These read something else of the same page.
    assert programs - {"mlserver-rest", "vllm-itl"} == KNOWN.keys()


@pytest.mark.parametrize("program", OTHERS)
def test_no_page_of_another_program_is_taken_for_one(program: str) -> None:
    page = kept(OTHERS[program])
    assert speakers(page, "acme/anything:1", 8000, STACKS) == ()


@pytest.mark.parametrize("preset", KNOWN)
def test_adopt_by_port_alone_reads_what_the_preset_reads(preset: str) -> None:
    (source,) = PRESETS.sources(PRESETS.by_name[preset].keys)
    whole = Pages(named(source, None), from_end=False).take(KNOWN[preset].encode())
    assert whole.latency is not None and whole.latency.count == 40
    assert by_port_alone(KNOWN[preset]).latency == whole.latency


@pytest.mark.parametrize("program", [one for one in OTHERS if one not in RELAYED])
def test_adopt_by_port_alone_reads_no_other_page(program: str) -> None:
    delta = by_port_alone(OTHERS[program])
    assert (delta.absent, delta.latency) == (True, None)
    assert delta.problem is not None
    assert delta.problem.startswith("none of the page's metrics is one that a preset reads")
    assert len(delta.problem) < 400


def test_adopt_by_port_alone_names_what_the_page_has() -> None:
    assert by_port_alone(OTHERS["dex"]).problem == (
        "none of the page's metrics is one that a preset reads; found: "
        "http_request_duration_seconds: "
        "choose one by `name`"
    )


PROPOSED_NAMES = {
    "prometheus": "prometheus_http_request_duration_seconds",
    "express-prom-bundle": "http_request_duration_seconds",
    "dex": "http_request_duration_seconds",
    "grafana": "grafana_http_request_duration_seconds",
    "apiserver": "apiserver_request_duration_seconds",
    "node-exporter": None,
    "redis-exporter": None,
    "postgres-exporter": None,
    "etcd": None,
    "go-client": None,
    "python-client": None,
    "node-client": None,
}
"""The name that is proposed for a page that no preset reads; None: nothing there is a request's."""


@pytest.mark.parametrize(("program", "name"), PROPOSED_NAMES.items())
def test_a_page_without_a_preset_is_proposed_by_its_requests(
    program: str, name: str | None
) -> None:
    assert next(iter(recognition.histograms(kept(OTHERS[program]))), None) == name


def test_fastapis_own_name_counts_where_the_owner_names_it() -> None:
    (source,) = PRESETS.sources(PRESETS.by_name["fastapi"].keys)
    page = "http_request_duration_seconds_count 3\nhttp_request_duration_seconds_sum 1\n"
    delta = Pages(named(source, None), from_end=False).take(page.encode())
    assert delta.latency is not None and delta.latency.sum_s == 1.0
