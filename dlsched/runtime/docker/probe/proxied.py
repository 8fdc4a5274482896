"""Finds requests of containers that export nothing in the page of a proxy before them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from dlsched.config.metrics.resolving import Contradiction, Presets
from dlsched.model.sources import MetricsEndpoint
from dlsched.runtime.docker.identity.labels import (
    COMPOSE_PROJECT,
    COMPOSE_SERVICE,
    compose_service,
)
from dlsched.runtime.docker.probe.probed import NO_REQUEST, Probed
from dlsched.runtime.docker.probe.recognition import Stack, latency_reading, options_of, read_by
from dlsched.runtime.docker.reading import CONTAINER, named_in
from dlsched.runtime.progress.exposition import Pages
from dlsched.runtime.progress.scrape import named

_FILLER = "proxy"
"""Name of the proxy's container while it is open: it does not change what is read."""


@dataclass(frozen=True, slots=True)
class Known:
    """What containers are recognised by."""

    stacks: tuple[Stack, ...]
    proxies: tuple[Stack, ...]
    """These read other containers' requests."""

    @property
    def all(self) -> tuple[Stack, ...]:
        """Both kinds."""
        return (*self.stacks, *self.proxies)

    def is_proxy(self, image: str) -> bool:
        """Whether containers of this image count the requests of others."""
        return any(one.made_from(image) for one in self.proxies)

    def reports(self, page: bytes) -> bool:
        """Whether a page has requests of other containers."""
        return any(one.stands_on(page) for one in self.proxies)


@dataclass(frozen=True, slots=True)
class ProxyPage:
    """A proxy's page at two moments."""

    proxy: str
    """The name of its container."""
    address: str
    port: int
    path: str
    first: bytes
    second: bytes = b""
    """Empty: it did not answer again."""
    over_s: float = 0.0


def alias_of(labels: Mapping[str, str]) -> str | None:
    """The name that Traefik gives to a container of Docker Compose; None: its own."""
    if compose_service(labels) is None:
        return None
    name = f"{labels[COMPOSE_SERVICE]}-{labels[COMPOSE_PROJECT]}"
    return "-".join(re.findall("[A-Za-z0-9]+", name))


def proxies_of(presets: Presets) -> tuple[Stack, ...]:
    """The presets that read a container's requests at its proxy."""
    return tuple(_proxies(presets))


def _proxies(presets: Presets) -> Iterator[Stack]:
    for name, preset in presets.by_name.items():
        try:
            fields = presets.fields(preset.keys)
            if fields.get("via") is not True:
                continue
            sources = presets.sources(preset.keys.model_copy(update={"via": _FILLER}))
        except Contradiction:
            continue
        for source in sources:
            if isinstance(source, MetricsEndpoint) and source.metrics:
                images = tuple(fields.get("image", ()))
                derived = preset.keys.base is not None
                yield Stack(name, images, derived, source, None, *read_by(source))


def through(
    found: Probed, alias: str | None, pages: Iterable[ProxyPage], proxies: Iterable[Stack]
) -> Probed:
    """The container with what the first of these pages says of it; the same where none does.
    `alias`: its other name at proxies."""
    if found.reading is not None or found.preset is not None or found.histograms:
        return found
    stacks = tuple(proxies)
    for page in pages:
        for stack in stacks if page.proxy != found.name else ():
            for name in (found.name, alias):
                read = None if name is None else _read(found, name, page, stack)
                if read is not None:
                    return read
    return found


def _read(found: Probed, name: str, page: ProxyPage, stack: Stack) -> Probed | None:
    assert stack.endpoint is not None
    endpoint = named_in(stack.endpoint, name)
    pages = Pages(named(endpoint, None), from_end=False, hint=endpoint.hint)
    latency = pages.take(page.first).latency
    if latency is None:  # none of its series is this container's
        return None
    reading = latency_reading(latency, None)
    later = pages.take(page.second).latency if page.second else None
    if later is not None and later.count:
        reading = latency_reading(later, page.over_s)
    typical = page.port in stack.endpoint.ports and page.path == stack.endpoint.http_path
    sources = (stack.preset,) if typical else options_of(stack.preset, page.port, page.path, None)
    filters = () if name == found.name else tuple(_by_alias(stack.endpoint, name))
    return replace(
        found,
        preset=stack.preset,
        where=f"at {page.proxy}",
        sources=(*sources, f"via={page.proxy}", *filters),
        reading=reading,
        unread=None if reading is not None else NO_REQUEST,
    )


def _by_alias(endpoint: MetricsEndpoint, alias: str) -> Iterator[str]:
    """The filters that name a container, with that name."""
    filters = dict.fromkeys(
        one for metric in endpoint.metrics for one in metric.where if CONTAINER in one.pattern
    )
    for one in filters:
        pattern = one.pattern.replace(CONTAINER, alias)
        yield f"where.{one.label}={'!' if one.excludes else ''}{pattern}"
