"""What the labels of a container that somebody else started ask of dlsched.

Owns the labels of adoption: which there are, how they are read (as a job file's values are, in the
same words and bounds), and which of them count. It must not call the engine. Labels are text of
strangers: whatever is wrong with them is one line, and nothing of it reaches a terminal unescaped.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import replace

from pydantic import Field, TypeAdapter

from dlsched.config.fields import validate
from dlsched.config.job import bounds_of, target_of
from dlsched.config.job_schema import CpusKeys, Keys, TargetKeys
from dlsched.config.job_values import Weight
from dlsched.config.yaml import Document, Value, read_plain
from dlsched.config.yaml import Path as Place
from dlsched.model.errors import SpecError
from dlsched.model.spec import NAME, ContainerSpec, JobSpec
from dlsched.model.units import render_cores, shown
from dlsched.runtime.docker.identity.labels import ENABLE, INSTANCE, PREFIX
from dlsched.runtime.progress import sources

LABELS_MAX = 64
"""So many labels of ours cannot all be known ones: they are not even looked at."""

VALUE_CHARACTERS = 256

LINE_CHARACTERS = 300
"""At most so much is told of what is wrong with a container's labels."""


class NotAdoptable(Exception):
    """Why a container that asks for it is left alone, in one line."""


class AdoptionKeys(Keys):
    """All that labels can ask."""

    target: TargetKeys | None = None
    cpus: CpusKeys | None = None
    weight: Weight = Field(1.0)


_ADAPTER = TypeAdapter(AdoptionKeys)
_INNER: Mapping[str, type[Keys]] = {"target": TargetKeys, "cpus": CpusKeys}
_KNOWN: Mapping[str, Place] = {
    f"{PREFIX}{'.'.join(place)}": place
    for place in (
        ("weight",),
        *((outer, inner) for outer, keys in _INNER.items() for inner in keys.model_fields),
    )
}
_OTHERS = frozenset(
    {ENABLE, INSTANCE, sources.FILE, sources.PORT, sources.HTTP_PATH, sources.NAME, sources.PATTERN}
)
"""Labels that do not become part of the job's spec."""


def counting(labels: Mapping[str, str], inherited: Mapping[str, str]) -> dict[str, str]:
    """Those labels of ours that did not come with the image."""
    return {
        label: value
        for label, value in labels.items()
        if label.startswith(PREFIX) and inherited.get(label) != value
    }


def spec_of(
    name: str, labels: Mapping[str, str], container: ContainerSpec, came_with_cores: float | None
) -> JobSpec:
    """The job that these labels, which all count, make of the container of that name.

    `came_with_cores` is the ceiling that it had before anybody changed it (None: none), and its
    ceiling here where no label gives one. Raises NotAdoptable.
    """
    _check_name(name)
    keys = _read(labels)
    bounds = bounds_of(keys.cpus)
    if bounds.ceiling_cores is None and came_with_cores is not None:
        if bounds.floor_cores > came_with_cores:
            raise NotAdoptable(
                f"label {PREFIX}cpus.min: {render_cores(bounds.floor_cores)} is above the limit "
                f"that it came with, {render_cores(came_with_cores)}: give {PREFIX}cpus.max too"
            )
        bounds = replace(bounds, ceiling_cores=came_with_cores)
    return JobSpec(
        name=name,
        container=container,
        bounds=bounds,
        weight=keys.weight,
        target=target_of(keys.target),
    )


def _check_name(name: str) -> None:
    if not re.fullmatch(NAME, name):
        raise NotAdoptable(
            f"its name {shown(name)} is none that a job can have: 2 to 63 of a-z, 0-9, _ . -"
        )


def _read(labels: Mapping[str, str]) -> AdoptionKeys:
    asked = {label: labels[label] for label in labels if label not in _OTHERS}
    if len(asked) > LABELS_MAX:
        raise NotAdoptable(f"more than {LABELS_MAX} labels begin with {PREFIX}")
    unknown = [label for label in asked if label not in _KNOWN]
    # What was meant takes a while to find, and only the first is told.
    wrong = [_unknown(label) for label in unknown[:1]] + unknown[1:]
    wrong += [
        _too_long(label, asked.pop(label)) for label in tuple(asked) if _is_long(asked[label])
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
    """The labels as the tree that a job file would be."""
    tree: dict[str, Value] = {}
    marks: dict[Place, tuple[int, int]] = {(): (1, 1)}
    empty: set[Place] = set()
    for place, words in asked.items():
        *above, last = (str(part) for part in place)
        inner = tree
        for part in above:
            inner = inner.setdefault(part, {})  # type: ignore[assignment]
        inner[last] = value = _value(words)
        marks |= {place[:depth]: (1, 1) for depth in range(1, len(place) + 1)}
        if value is None:
            empty.add(place)
    return Document("", tree, keys=marks, values=marks, empty=frozenset(empty))


def _value(words: str) -> Value:
    try:
        return read_plain(words)
    except ValueError:
        return words


def _is_long(words: str) -> bool:
    return len(words) > VALUE_CHARACTERS


def _too_long(label: str, words: str) -> str:
    has = f"{shown(words)} has {len(words)} characters"
    return f"label {shown(label)}: {has}, at most {VALUE_CHARACTERS}"


def _unknown(label: str) -> str:
    known = sorted(one.removeprefix(PREFIX) for one in {*_KNOWN, *_OTHERS})
    near = difflib.get_close_matches(label.removeprefix(PREFIX)[:100], known, n=1)
    hint = f"did you mean {PREFIX}{near[0]}?" if near else f"known are {', '.join(known)}"
    return f"label {shown(label)} is unknown; {hint}"
