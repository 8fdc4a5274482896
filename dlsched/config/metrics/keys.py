"""The keys that say where a job's progress is read from: of presets, job files and labels alike.

Owns names, kinds and bounds of single values. `resolving` puts them together.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import Field

from dlsched.config.fields import Keys, Reader, as_text, choice, flag, listed, short, text
from dlsched.config.metrics.pattern import compiled, pattern_of
from dlsched.model.sources import LabelFilter
from dlsched.model.units import shown

NAME_CHARACTERS = 128
PATH_CHARACTERS = 256
CANDIDATES_MAX = 8
"""Names, ports or alternatives that one source has: each costs a comparison on every line."""
FILTERS_MAX = 8
HINT_CHARACTERS = 200

_STEPS = ("carried", "follows", "evaluations")
UNITS_S = {"s": 1.0, "ms": 1e-3, "us": 1e-6}

_HTTP_PATH = re.compile(r"/[A-Za-z0-9/_.~%+:?&=-]*")
PRESET = r"[a-z0-9][a-z0-9._-]{0,62}"
_METRIC = r"[A-Za-z_:][A-Za-z0-9_:]*"
_LABEL = r"[A-Za-z_][A-Za-z0-9_]*"
_GROUP = r"[A-Za-z_][A-Za-z0-9_]{0,62}"
_WHEN = re.compile(rf"({_GROUP}) *== *({_GROUP})")
_CONTAINER = r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}"


def _file_path(value: object) -> str:
    written = as_text(value)
    path = PurePosixPath(written)
    if (
        not path.is_absolute()
        or len(path.parts) < 2
        or ".." in path.parts
        or len(written) > PATH_CHARACTERS
        or not written.isprintable()
    ):
        wanted = f"an absolute path without '..', of at most {PATH_CHARACTERS} printable characters"
        raise ValueError(f"{shown(written)} is not {wanted}")
    return str(path)


def _port(value: object) -> int:
    digits = as_text(value)
    # 020 is 16 to some readers of YAML.
    if not re.fullmatch(r"[1-9][0-9]{0,4}", digits) or int(digits) > 65535:
        raise ValueError(f"{shown(digits)} is not a port, 1 to 65535")
    return int(digits)


def _http_path(value: object) -> str:
    written = as_text(value)
    if len(written) > PATH_CHARACTERS or not _HTTP_PATH.fullmatch(written):
        wanted = f"a path such as /metrics, of at most {PATH_CHARACTERS} characters"
        raise ValueError(f"{shown(written)} is not {wanted}")
    return written


def _name(value: object) -> str:
    written = as_text(value)
    if len(written) > NAME_CHARACTERS or not re.fullmatch(_METRIC, written):
        wanted = f"a Prometheus metric's name, of at most {NAME_CHARACTERS} characters"
        raise ValueError(f"{shown(written)} is not {wanted}")
    return written


def _filter(value: object) -> str:
    written = as_text(value)
    if not written:
        raise ValueError("is empty: give a regular expression for the label's whole value")
    compiled(written.removeprefix("!"))
    return written


def _pattern(value: object) -> str:
    written = as_text(value)
    pattern_of(written)
    return written


def _when(value: object) -> str:
    written = as_text(value)
    if not _WHEN.fullmatch(written):
        raise ValueError(f"{shown(written)} is not a comparison of two groups, such as at == of")
    return written


def _via(value: object) -> str | bool:
    if value is True:
        return True
    if value is False:
        raise ValueError("is false: leave the key out, or name the proxy's container")
    written = as_text(value)
    if not re.fullmatch(_CONTAINER, written):
        raise ValueError(f"{shown(written)} is not a container's name")
    return written


def _one_or_more(value: object) -> object:
    """A list, or what may also be written for it: one value, or one text with commas."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return _BY_COMMA.read([value] if whole else value)


_BY_COMMA = listed(lambda line: re.split(", ?", line, maxsplit=CANDIDATES_MAX))
_ONE_OR_MORE = replace(_BY_COMMA, read=_one_or_more)


MetricName = Annotated[str, Reader(_name, {"type": "string", "pattern": f"^{_METRIC}$"})]
_Port = Annotated[int, Reader(_port, {"type": ["integer", "string"]})]
_Glob = Annotated[str, text(r"[A-Za-z0-9_.:/@*?-]{1,200}", "an image with * or ? in it")]
_Filter = Annotated[str, Reader(_filter, {"type": "string", "maxLength": 257})]
_LabelName = Annotated[str, text(_LABEL, "a Prometheus label's name", most=NAME_CHARACTERS)]
_Advice = Annotated[str, text(r"[ -~]+", "one line of text", most=HINT_CHARACTERS)]


class MetricKeys(Keys):
    """One metric of an endpoint, and how it is read."""

    name: (
        Annotated[tuple[MetricName, ...], Field(max_length=CANDIDATES_MAX), _ONE_OR_MORE] | None
    ) = Field(
        None,
        description="Name of the metric to read, or several: the first one that the page has. "
        "No name is needed for a page that a preset reads. A quantile is as exact as the "
        "histogram's buckets: have some around the target.",
    )
    kind: (
        Annotated[
            Literal["histogram", "summary", "ratio", "log"],
            choice("histogram", "summary", "ratio", "log"),
        ]
        | None
    ) = Field(
        None,
        description="Kind of the metric: histogram, summary, ratio (the counter `total` over the "
        "counter `count`) or log (default: by the other keys).",
    )
    total: MetricName | None = Field(
        None, description="Counter of the sum of all latencies, if `kind` is ratio."
    )
    count: MetricName | None = Field(
        None, description="Counter of the requests, if `kind` is ratio."
    )
    beside: MetricName | None = Field(
        None,
        description="Another metric that the page must have, for a preset whose metric's name "
        "other programs use, too.",
    )
    errors: MetricName | None = Field(
        None,
        description="Counter of requests that failed. If it has a label that `failed` names, only "
        "the series that match are counted.",
    )
    errors_timed: Annotated[bool, flag()] | None = Field(
        None,
        description="Whether the latency metric includes the failed requests that `errors` counts "
        "(default false). If so, as many of the quickest requests are left out.",
    )
    unit: Annotated[Literal["s", "ms", "us"], choice(*UNITS_S)] | None = Field(
        None,
        description="Unit of the metric's values: s, ms or us (default: by the name's suffix, else "
        "s).",
    )
    where: dict[_LabelName, _Filter] | None = Field(
        None,
        max_length=FILTERS_MAX,
        description="Series that are read: by label, an RE2 expression for its whole value. After "
        "a leading !, the series that match are left out.",
    )
    per: _LabelName | None = Field(
        None,
        description="Label that names the model. A page with several models is refused until "
        "`where` chooses one.",
    )
    failed: dict[_LabelName, _Filter] | None = Field(
        None,
        max_length=FILTERS_MAX,
        description="Which requests failed: by label, or group of the pattern, an RE2 expression "
        "for its whole value, or after a leading ! for all other values. One that matches is "
        "enough (default: status 5xx, 408, 429 or 499 in a label such as code or status).",
    )


class MetricsKeys(MetricKeys):
    """Where a job's progress is read from; one word is a preset's name."""

    base: Annotated[str, text(PRESET, "a preset's name (`dlsched presets` lists them)")] | None = (
        Field(
            None, description="Name of the preset whose fields the other keys complete or replace."
        )
    )
    image: Annotated[tuple[_Glob, ...], Field(max_length=CANDIDATES_MAX), _BY_COMMA] | None = Field(
        None, description="Images for which `dlsched probe` proposes the preset, such as acme/asr*."
    )
    path: Annotated[str, Reader(_file_path, {"type": "string", "pattern": "^/"})] | None = Field(
        None,
        description="File in the container into which the job writes reports (sidecar protocol).",
    )
    port: Annotated[tuple[_Port, ...], Field(max_length=CANDIDATES_MAX), _ONE_OR_MORE] | None = (
        Field(
            None,
            description="Port of a Prometheus endpoint on the container's own address, or several "
            "ports to try in turn.",
        )
    )
    http_path: Annotated[str, Reader(_http_path, {"type": "string", "pattern": "^/"})] | None = (
        Field(None, description="Path of the Prometheus endpoint (default /metrics).")
    )
    via: Annotated[str | bool, Reader(_via, {"type": ["string", "boolean"]})] | None = Field(
        None,
        description="Container of a proxy before the job. The proxy's Prometheus endpoint is read "
        "in place of the job's.",
    )
    first_of: (
        Annotated[tuple[MetricKeys, ...], Field(min_length=1, max_length=CANDIDATES_MAX)] | None
    ) = Field(None, description="Alternative metrics; the first one that the page has is read.")
    pattern: Annotated[str, Reader(_pattern, {"type": "string", "maxLength": 256})] | None = Field(
        None,
        description="An RE2 expression for the lines that the container prints. Its named groups: "
        "latency_s, latency_ms, latency_us, step, or any metric's name.",
    )
    metric: Annotated[str, text(_GROUP, "a group of the pattern")] | None = Field(
        None, description="Group of the pattern whose number is the target's metric."
    )
    step: Annotated[Literal["carried", "follows", "evaluations"], choice(*_STEPS)] | None = Field(
        None,
        description="Step of a metric's value. carried: the last step that was printed before it; "
        "evaluations: each value counts as one step (default: the step on the same line).",
    )
    when: Annotated[str, Reader(_when, {"type": "string"})] | None = Field(
        None,
        description="Two groups of the pattern, such as at == of. A line counts if they are equal.",
    )
    answers: Annotated[bool, flag()] | None = Field(
        None,
        description="Whether the metric has the times of whole HTTP answers (default false). If "
        "so, times measured at the sockets are used instead where the metric contradicts them, "
        "or its buckets are too coarse for the target.",
    )
    needs: _Advice | None = Field(
        None,
        description="Options with which the program must be started. They are shown when its "
        "endpoint does not answer.",
    )
    hint: _Advice | None = Field(
        None, description="Remedy that is shown when the endpoint's series are refused."
    )


PRESET_ALONE = short(("base",), {"type": "string", "pattern": f"^{PRESET}$"})
"""Annotation of `MetricsKeys` that may be written as a preset's name."""


def filters_of(where: dict[str, str] | None) -> tuple[LabelFilter, ...]:
    return tuple(
        LabelFilter(label, one.removeprefix("!"), one.startswith("!"))
        for label, one in sorted((where or {}).items())
    )


def groups_of(when: str) -> tuple[str, str]:
    match = _WHEN.fullmatch(when)
    assert match is not None
    return match[1], match[2]
