"""The host's images, as a cluster asks for them: which there are, and pulls before a job comes."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from dlsched.model.errors import DlschedError, EngineUnavailable
from dlsched.model.spec import ContainerSpec
from dlsched.runtime.docker.background import begin
from dlsched.runtime.docker.create.pulls import Images
from dlsched.runtime.docker.engine import Body, Engine, one_line

LISTED_S = 60.0
"""Between listings: what they say costs or saves a pull, and nothing hangs on it."""

ASKED_S = 60.0
"""What came of a pull is too old, once it was not asked for so long."""


class HostImages:
    """Implements NodeImages of `dlsched.cluster.agent.ports`; only for the loop's thread."""

    def __init__(
        self, engine: Engine, config_file: Path | None, now_s: Callable[[], float]
    ) -> None:
        self.pulls = Images(engine, config_file)
        self._engine, self._now_s = engine, now_s
        self._names: frozenset[str] = frozenset()
        self._listing: Future[list[Body]] | None = None
        self._listed_s = -math.inf
        self._fetches: dict[tuple[str, str], _Fetch] = {}

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
        if fetch is None or (fetch.future.done() and now_s - fetch.asked_s > ASKED_S):
            fetch = self._fetches[key] = _Fetch(self.pulls, container)
        fetch.asked_s = now_s
        if not fetch.future.done():
            return None
        del self._fetches[key]
        error = fetch.future.exception()
        if error is None:
            return ""
        if isinstance(error, EngineUnavailable):
            return None  # that says nothing of the image: asked again
        return one_line(error) if isinstance(error, DlschedError | OSError) else repr(error)

    def progress(self, container: ContainerSpec) -> str:
        """How far that is, while it is under way."""
        fetch = self._fetches.get((container.image, container.pull_policy))
        return fetch.progress() if fetch else ""


class _Fetch:
    def __init__(self, images: Images, container: ContainerSpec) -> None:
        self.progress: Callable[[], str] = lambda: ""
        self.asked_s = 0.0

        def take(progress: Callable[[], str]) -> None:
            self.progress = progress

        self.future = begin(
            lambda: images.require(container.image, container.pull_policy, take), "fetch"
        )


def _names(listed: list[Body]) -> list[str]:
    """Tags. Older engines say `<none>` where there is none."""
    return [name for one in listed for name in one.get("RepoTags") or () if "<none>" not in name]
