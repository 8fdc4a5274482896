"""What the labels of another program's container ask of dlsched: parsed like a job file's values,
untrusted, each problem one escaped line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import replace

from pydantic import Field, TypeAdapter

from dlsched.config.fields import Keys, validate
from dlsched.config.job import background_problem, bounds_of, target_of
from dlsched.config.job_schema import Background, CpusKeys, MemoryKeys, TargetKeys
from dlsched.config.job_values import Weight, WirePorts
from dlsched.config.metrics.resolving import Presets
from dlsched.config.yaml import Document, Value, read_lone
from dlsched.config.yaml import Path as Place
from dlsched.model.errors import SpecError
from dlsched.model.spec import NAME, ContainerSpec, JobSpec
from dlsched.model.units import render_bytes, render_cores, shown
from dlsched.runtime.docker.identity.labels import ENABLE, INSTANCE, PREFIX, forbids_wire
from dlsched.runtime.machine.inspected import Inspected
from dlsched.runtime.progress.sources import (
    LABELS,
    METRICS,
    check_target,
    is_metrics_label,
    read_sources,
)

LABELS_MAX = 64
"""More labels of ours than this are not parsed."""

VALUE_CHARACTERS = 256

LINE_CHARACTERS = 300
"""Length of the report on a container's labels."""


class NotAdoptable(Exception):
    """Why a container that asks for adoption is left alone, in one line."""


class AdoptionKeys(Keys):
    """The keys that labels can set."""

    target: TargetKeys | None = None
    cpus: CpusKeys | None = None
    memory: MemoryKeys | None = None
    weight: Weight = Field(1.0)
    wire: WirePorts = Field(())
    background: Background = False


_ADAPTER = TypeAdapter(AdoptionKeys)
_INNER: Mapping[str, type[Keys]] = {
    "target": TargetKeys,
    "cpus": CpusKeys,
    "memory": MemoryKeys,
}
_KNOWN: Mapping[str, Place] = {
    f"{PREFIX}{'.'.join(place)}": place
    for place in (
        ("weight",),
        ("wire",),
        ("background",),
        *((outer, inner) for outer, keys in _INNER.items() for inner in keys.model_fields),
    )
}
_OTHERS = frozenset({ENABLE, INSTANCE, *LABELS})
"""Labels that do not become part of the job's spec."""


def counting(labels: Mapping[str, str], inherited: Mapping[str, str]) -> dict[str, str]:
    """Our labels that did not come with the image."""
    return {
        label: value
        for label, value in labels.items()
        if label.startswith(PREFIX) and inherited.get(label) != value
    }


def adopted_job(
    described: Inspected,
    name: str,
    asked: Mapping[str, str],
    own: Mapping[str, str],
    came_with_cores: float | None,
    came_with_bytes: int | None,
    presets: Presets | None,
    *,
    changed: bool = False,
) -> JobSpec:
    """The job that these labels, its own or those of a command, make of a container, with where its
    progress is read. `own`: all labels of the container. `changed`: dlsched manages it already.
    Raises NotAdoptable, ValueError."""
    container = ContainerSpec(described.image, memory_bytes=came_with_bytes)
    spec = spec_of(name, asked, container, came_with_cores, changed=changed)
    sources = read_sources(asked, presets)
    check_target(sources, spec.target)
    return replace(spec, sources=sources, wire=None if forbids_wire(own) else spec.wire)


def spec_of(
    name: str,
    labels: Mapping[str, str],
    container: ContainerSpec,
    came_with_cores: float | None,
    *,
    changed: bool = False,
) -> JobSpec:
    """The job that these labels (without the image's) make of the container of that name.

    `came_with_cores` is its original ceiling (None: none), kept where no label sets one. `changed`:
    its owner may have raised its memory limit above the labels since it was adopted. Raises
    NotAdoptable.
    """
    name = job_name(name)
    _check_name(name)
    keys = _read(labels)
    bounds = bounds_of(keys.cpus)
    if bounds.ceiling_cores is None and came_with_cores is not None:
        if bounds.floor_cores > came_with_cores:
            raise NotAdoptable(
                f"label {PREFIX}cpus.min: {render_cores(bounds.floor_cores)} is above the "
                f"container's own limit, {render_cores(came_with_cores)}: give {PREFIX}cpus.max "
                "too"
            )
        bounds = replace(bounds, ceiling_cores=came_with_cores)
    spec = JobSpec(
        name=name,
        container=_with_memory(container, keys.memory, changed=changed),
        memory_max_bytes=keys.memory.max if keys.memory else None,
        bounds=bounds,
        weight=keys.weight,
        target=target_of(keys.target),
        wire=keys.wire,
        background=keys.background,
    )
    if (problem := background_problem(spec)) is not None:
        raise NotAdoptable(f"label {PREFIX}background: {problem}")
    return spec


def _with_memory(
    container: ContainerSpec, keys: MemoryKeys | None, *, changed: bool
) -> ContainerSpec:
    """With the limit to which its memory goes back: its own one, unless a label has another."""
    own_bytes = container.memory_bytes
    if keys is None or (keys.min is None and keys.max is None):
        return container
    if own_bytes is None:
        raise NotAdoptable(
            f"label {PREFIX}memory.{'max' if keys.min is None else 'min'}: the container has no "
            "memory limit, so there is none to raise"
        )
    if keys.max is None:
        raise NotAdoptable(f"label {PREFIX}memory.min: give {PREFIX}memory.max too")
    for key, size_bytes in (("min", keys.min), ("max", keys.max)):
        if size_bytes is not None and size_bytes < own_bytes and not changed:
            raise NotAdoptable(
                f"label {PREFIX}memory.{key}: {render_bytes(size_bytes)} is below the container's "
                f"own limit, {render_bytes(own_bytes)}"
            )
    return replace(container, memory_bytes=max(keys.min or 0, own_bytes))


def job_name(container: str) -> str:
    """The job's name of an adopted container: its own, in lower case."""
    return container.lower()


def _check_name(name: str) -> None:
    if not re.fullmatch(NAME, name):
        raise NotAdoptable(
            f"the container's name {shown(name)} is not a job's name: 2 to 63 of a-z, 0-9, _ . -"
        )


def _read(labels: Mapping[str, str]) -> AdoptionKeys:
    asked = {
        label: labels[label]
        for label in labels
        if label not in _OTHERS and not is_metrics_label(label)
    }
    if len(asked) > LABELS_MAX:
        raise NotAdoptable(f"more than {LABELS_MAX} labels begin with {PREFIX}")
    unknown = [label for label in asked if label not in _KNOWN]
    # Finding a suggestion takes time, and only the first problem is reported.
    wrong = [_unknown(label) for label in unknown[:1]] + unknown[1:]
    wrong += [
        _too_long(label, asked.pop(label))
        for label in tuple(asked)
        if len(asked[label]) > VALUE_CHARACTERS
    ]
    document = _document({_KNOWN[label]: asked[label] for label in asked if label in _KNOWN})
    keys: AdoptionKeys | None = None
    try:
        keys = validate(document, _ADAPTER, lambda _: (), SpecError, null_ok=False)
    except SpecError as error:
        wrong += [f"label {PREFIX}{one.path}: {one.what}" for one in error.problems]
    if wrong or keys is None:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise NotAdoptable(wrong[0][: LINE_CHARACTERS - len(more)] + more)
    return keys


def _document(asked: Mapping[Place, str]) -> Document:
    """The labels as the tree of a job file."""
    tree: dict[str, Value] = {}
    marks: dict[Place, tuple[int, int]] = {(): (1, 1)}
    empty: set[Place] = set()
    for place, written in asked.items():
        *above, last = (str(part) for part in place)
        inner = tree
        for part in above:
            inner = inner.setdefault(part, {})  # type: ignore[assignment]
        inner[last] = value = read_lone(written)
        marks |= {place[:depth]: (1, 1) for depth in range(1, len(place) + 1)}
        if value is None:
            empty.add(place)
    return Document("", tree, keys=marks, values=marks, empty=frozenset(empty))


def _too_long(label: str, written: str) -> str:
    has = f"{shown(written)} has {len(written)} characters"
    return f"label {shown(label)}: {has}, at most {VALUE_CHARACTERS}"


def _unknown(label: str) -> str:
    known = sorted(one.removeprefix(PREFIX) for one in {*_KNOWN, *_OTHERS})
    near = difflib.get_close_matches(label.removeprefix(PREFIX)[:100], known, n=1)
    inner = f"{METRICS}.".removeprefix(PREFIX)
    brief = [one for one in known if not one.startswith(inner)] + [f"{inner}*"]
    hint = f"did you mean {PREFIX}{near[0]}?" if near else f"known are {', '.join(sorted(brief))}"
    return f"label {shown(label)} is unknown; {hint}"
