"""Progress sources in a container's labels (`dlsched.metrics`, `dlsched.metrics.*`), and the
readers' protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pydantic import TypeAdapter

from dlsched.config.fields import validate
from dlsched.config.metrics import resolving
from dlsched.config.metrics.keys import MetricsKeys
from dlsched.config.metrics.loading import package_presets
from dlsched.config.metrics.resolving import Contradiction, Presets
from dlsched.config.yaml import Document
from dlsched.config.yaml import Path as Place
from dlsched.model.errors import SpecError
from dlsched.model.sources import ProgressSource
from dlsched.model.spec import Target
from dlsched.runtime.progress.sidecar import SourceReading

METRICS = "dlsched.metrics"
"""The name of a preset."""
MAPPINGS = ("where", "failed")
"""The fields whose labels end with the name of a Prometheus label, or of a pattern's group."""

LABEL_FIELDS = tuple(
    name
    for name in MetricsKeys.model_fields
    if name not in ("base", "image", *MAPPINGS, "first_of", "needs", "hint")
)
"""The fields that a label each can set."""
LABELS = frozenset({METRICS, *(f"{METRICS}.{name}" for name in LABEL_FIELDS)})

_ADAPTER = TypeAdapter(MetricsKeys)


class Source(Protocol):
    """Reads one container start; created when it starts, closed after it ended."""

    def read(self, now_s: float) -> SourceReading:
        """What arrived since the previous read; never raises for a container, never blocks."""

    def close(self) -> None:
        """Release all resources; no read follows."""


def is_metrics_label(label: str) -> bool:
    """Whether the label says where progress is read from."""
    return label in LABELS or label.startswith(tuple(f"{METRICS}.{one}." for one in MAPPINGS))


def read_sources(
    labels: Mapping[str, str], presets: Presets | None = None
) -> tuple[ProgressSource, ...]:
    """The sources that a container's labels name, if any. Raises ValueError, in one line: the
    label, its value and the bound. `presets`: None means those of the package."""
    given: dict[str, Any] = {}
    for label in filter(is_metrics_label, labels):
        if label == METRICS:
            given["base"] = labels[label]
            continue
        name, dot, inner = label.removeprefix(f"{METRICS}.").partition(".")
        if dot:
            given.setdefault(name, {})[inner] = labels[label]
        else:
            given[name] = labels[label]
    if not given:
        return ()
    try:
        keys = validate(_document(given), _ADAPTER, lambda _: (), SpecError)
        return (package_presets() if presets is None else presets).sources(keys)
    except SpecError as error:
        problem = error.problems[0]
        raise ValueError(f"{_label(problem.path)}: {problem.what}") from None
    except Contradiction as error:
        raise ValueError(f"{_label('.'.join(error.place))}: {error.what}") from None


def check_target(sources: Sequence[ProgressSource], target: Target | None) -> None:
    """Raise ValueError, in one line, where no source can give what the target asks for."""
    try:
        resolving.check_target(sources, target)
    except Contradiction as error:
        label = _label(error.place[0]) if error.place else "dlsched.target.quantile"
        raise ValueError(f"{label}: {error.what}") from None


def _document(given: dict[str, Any]) -> Document:
    """The labels as the mapping of a job file."""
    marks: dict[Place, tuple[int, int]] = {(): (1, 1), **{(name,): (1, 1) for name in given}}
    marks |= {(one, name): (1, 1) for one in MAPPINGS for name in given.get(one, ())}
    return Document("", given, keys=marks, values=marks)


def _label(path: str) -> str:
    return METRICS if path in ("", "base") else f"{METRICS}.{path.partition('[')[0]}"
