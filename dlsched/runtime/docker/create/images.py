"""The host's images: finds them, pulls missing ones, each only once at a time, and says which there
are."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from docker.auth import encode_header, load_config, resolve_repository_name
from docker.errors import DockerException
from docker.utils import parse_repository_tag

from dlsched.model.errors import DlschedError, EngineUnavailable
from dlsched.model.spec import ContainerSpec
from dlsched.runtime.docker.background import begin, run
from dlsched.runtime.docker.engine import Body, Engine, EngineRefused
from dlsched.runtime.machine.outcomes import CallFailed, one_line

_FOR_GOOD = (
    "denied",
    "unauthorized",
    "no basic auth credentials",
    "not found",
    "manifest unknown",
    "invalid reference",
    "does not exist",
)
"""Phrases in a registry's permanent refusals."""


LISTED_S = 60.0
"""Between listings: what they say costs or saves a pull, and nothing hangs on it."""

ASKED_S = 60.0
"""What came of a pull is too old, once it was not asked for so long."""


class ImageMissing(CallFailed):
    """The image is not available."""


@dataclass(slots=True)
class _Pull:
    over: Future[None] = field(default_factory=Future)
    layers: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By layer, how many bytes have come, and of how many."""

    def take(self, message: Body) -> None:
        figures = message.get("progressDetail") or {}
        layer, total = message.get("id"), figures.get("total")
        if layer and total and message.get("status") == "Downloading":
            self.layers[layer] = (int(figures.get("current") or 0), int(total))
        elif layer in self.layers and message.get("status") in ("Download complete", "Extracting"):
            total = self.layers[layer][1]
            self.layers[layer] = (total, total)

    def __str__(self) -> str:
        layers = list(self.layers.values())
        total = sum(size for _, size in layers)
        if not total:
            return "asking the registry"
        done = sum(size for size, _ in layers)
        return f"{100 * done // total} % of {total / 2**20:.0f} MiB"


@dataclass(slots=True)
class _Fetch:
    over: Future[Body]
    asked_s: float = 0.0


class Images:
    """The engine's images. Implements NodeImages of `dlsched.cluster.agent.ports`, for the loop's
    thread alone; `require`, which blocks, may be called from any."""

    def __init__(
        self, engine: Engine, config_file: Path | None, now_s: Callable[[], float]
    ) -> None:
        self._engine, self._config_file, self._now_s = engine, config_file, now_s
        self._lock = threading.Lock()
        self._pulls: dict[str, _Pull] = {}
        self._names: frozenset[str] = frozenset()
        self._listing: Future[list[Body]] | None = None
        self._listed_s = -math.inf
        self._fetches: dict[tuple[str, str], _Fetch] = {}

    def require(
        self,
        reference: str,
        policy: Literal["missing", "always", "never"],
        report: Callable[[Callable[[], str]], None],
    ) -> Body:
        """The image's description, after a pull if the policy wants one.

        `report` receives a function that returns the progress. Raises ImageMissing,
        EngineUnavailable or EngineRefused.
        """
        if policy == "always":
            self._pull(reference, report)
        try:
            return self._engine.image(reference)
        except EngineRefused as error:
            if error.status != 404:
                raise
        if policy == "never":
            raise ImageMissing(
                f"image {reference} is not on this host, and pull_policy is never", retryable=False
            )
        self._pull(reference, report)
        return self._engine.image(reference)

    def _pull(self, reference: str, report: Callable[[Callable[[], str]], None]) -> None:
        with self._lock:
            mine = reference not in self._pulls
            pull = self._pulls.setdefault(reference, _Pull())
        report(pull.__str__)
        if mine:
            run(pull.over, lambda: self._make(pull, reference))
            with self._lock:
                del self._pulls[reference]
        pull.over.result()

    def _make(self, pull: _Pull, reference: str) -> None:
        repository, tag = parse_repository_tag(reference)
        try:
            auth = self._credentials(repository)
            for message in self._engine.pull(repository, tag or "latest", auth):
                if "error" in message:
                    raise _missing(reference, one_line(message["error"]))
                pull.take(message)
        except EngineRefused as error:
            raise _missing(reference, error.reason) from error

    def _credentials(self, repository: str) -> bytes | None:
        """The registry's credentials, read again for each pull. Raises ImageMissing."""
        try:
            if self._config_file is not None:
                self._config_file.read_bytes()
            registry, _ = resolve_repository_name(repository)
            found: Any = load_config(self._config_file).resolve_authconfig(registry)
        except OSError as error:
            reason = f"credentials file {self._config_file}: {error.strerror}"
            raise ImageMissing(reason, retryable=True) from error
        except (DockerException, ValueError) as error:
            reason = f"credentials for image {repository}: {one_line(error)}"
            raise ImageMissing(reason, retryable=False) from error
        return encode_header(found) if found else None

    def names(self) -> frozenset[str]:
        """Tags, as last listed; empty: not known yet."""
        if self._listing is None and self._now_s() - self._listed_s >= LISTED_S:
            self._listed_s = self._now_s()
            self._listing = begin(self._engine.images, "images")
        if self._listing is not None and self._listing.done():
            if self._listing.exception() is None:
                self._names = frozenset(_names(self._listing.result()))
            self._listing = None
        return self._names

    def fetch(self, container: ContainerSpec) -> str | None:
        """Have the image of such a container here, pulled if its policy wants that. None: that is
        under way; else the empty text, or why it cannot be had."""
        key = container.image, container.pull_policy
        fetch, now_s = self._fetches.get(key), self._now_s()
        if fetch is None or (fetch.over.done() and now_s - fetch.asked_s > ASKED_S):
            over = begin(lambda: self.require(*key, lambda _: None), "fetch")
            fetch = self._fetches[key] = _Fetch(over)
        fetch.asked_s = now_s
        if not fetch.over.done():
            return None
        del self._fetches[key]
        error = fetch.over.exception()
        if error is None:
            return ""
        if isinstance(error, EngineUnavailable):
            return None  # that says nothing of the image: asked again
        return one_line(error) if isinstance(error, DlschedError | OSError) else repr(error)

    def progress(self, container: ContainerSpec) -> str:
        """How far that is, while it is under way."""
        return str(self._pulls.get(container.image, ""))


def _missing(reference: str, reason: str) -> ImageMissing:
    for_good = any(phrase in reason.lower() for phrase in _FOR_GOOD)
    # `no such host` is not permanent: the network may come back.
    return ImageMissing(f"image {reference} cannot be pulled: {reason}", retryable=not for_good)


def _names(listed: list[Body]) -> list[str]:
    """Tags. Older engines say `<none>` where there is none."""
    return [name for one in listed for name in one.get("RepoTags") or () if "<none>" not in name]
