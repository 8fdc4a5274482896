"""Presets by name, and the sources that keys make together with the preset that they name. Pure.

A preset is the fields of a source under a name; each may take those of another (`base`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dlsched.config.metrics.keys import (
    UNITS_S,
    MetricKeys,
    MetricsKeys,
    filters_of,
    groups_of,
)
from dlsched.config.metrics.pattern import LATENCIES_S, STEP, metrics_of, pattern_of
from dlsched.model.sources import (
    DEFAULT_HTTP_PATH,
    LogPattern,
    Metric,
    MetricsEndpoint,
    MetricsFile,
    ProgressSource,
)
from dlsched.model.spec import AccuracyTarget, LatencyTarget, Target
from dlsched.model.units import render_quantile, shown

BASES_MAX = 4
"""Presets that take from one another: a person reads no longer chain."""

_RATIO = frozenset({"total", "count"})
_NEEDED = {
    "port": ("http_path", "name", "via", "count", "total", "first_of", "where", "per"),
    "pattern": ("step", "when", "metric"),
}
"""Keys that say something of another key alone."""
_WHAT_IS_READ = frozenset({"name", "total", "count", "first_of"})
_HOW_IT_IS_READ = frozenset({"answers", "kind", "unit", "beside", *_WHAT_IS_READ})
"""Fields of a base that fall when another metric is named."""


class Contradiction(ValueError):
    """Keys that do not go together: the key, and why in one line."""

    def __init__(self, key: str, what: str) -> None:
        self.place: tuple[str, ...] = (key,) if key else ()
        self.what = what
        super().__init__(what)


@dataclass(frozen=True, slots=True)
class Preset:
    keys: MetricsKeys
    file: str
    """Where it comes from."""


@dataclass(frozen=True, slots=True)
class Presets:
    by_name: Mapping[str, Preset] = field(default_factory=dict)

    def fields(self, keys: MetricsKeys) -> dict[str, Any]:
        """The fields of these keys over those of their bases. Raises Contradiction."""
        chain, above = [keys], keys.base
        passed: list[str] = []
        while above is not None:
            if above in passed:
                raise Contradiction("base", f"{' -> '.join([*passed, above])} is a circle")
            if len(passed) == BASES_MAX:
                raise Contradiction("base", f"more than {BASES_MAX} presets build on one another")
            if above not in self.by_name:
                raise Contradiction("base", self.unknown(above))
            passed.append(above)
            chain.append(self.by_name[above].keys)
            above = chain[-1].base
        merged: dict[str, Any] = {}
        for one in reversed(chain):
            merged = _over(merged, one)
        return merged

    def sources(self, keys: MetricsKeys) -> tuple[ProgressSource, ...]:
        """The sources that these keys give. Raises Contradiction."""
        return tuple(_sources(self.fields(keys)))

    def check(self, keys: MetricsKeys) -> None:
        """Raise Contradiction where a preset cannot work; the proxy's name may be left open."""
        given = self.fields(keys)
        tuple(_sources({**given, "via": "proxy"} if given.get("via") is True else given))

    def plain(self, name: str) -> dict[str, Any]:
        """All fields of that preset, as its file could give them, always in the same order."""
        fields = self.fields(self.by_name[name].keys)
        return {key: _plain(fields[key]) for key in MetricsKeys.model_fields if key in fields}

    def unknown(self, name: str) -> str:
        """Why there is no such preset, in one line."""
        near = difflib.get_close_matches(name[:100], self.by_name, n=1)
        hint = f"did you mean {near[0]}?" if near else "`dlsched presets` lists them"
        return f"{shown(name)} is not a preset; {hint}"


def check_target(sources: Sequence[ProgressSource], target: Target | None) -> None:
    """Raise Contradiction where no source can give what the target asks for."""
    if isinstance(target, LatencyTarget) and target.quantile is not None and sources:
        ratios = [
            isinstance(source, MetricsEndpoint)
            and bool(source.metrics)
            and all(metric.kind == "ratio" for metric in source.metrics)
            for source in sources
        ]
        if all(ratios):
            what = f"{render_quantile(target.quantile)} cannot be read"
            raise Contradiction(
                "", f"{what}: a ratio of two counters has only the mean, so set quantile: mean"
            )
    only = sources[0] if len(sources) == 1 else None
    if target is None or not isinstance(only, LogPattern):
        return
    groups = pattern_of(only.pattern)[1].keys() - {one.label for one in only.failed}
    has = f"the pattern's groups ({', '.join(sorted(groups))}) lack"
    if isinstance(target, AccuracyTarget):
        if target.metric not in metrics_of(groups) and only.metric is None:
            raise Contradiction("pattern", f"{has} the target's metric {shown(target.metric)}")
    elif LATENCIES_S.keys().isdisjoint(groups):
        wanted = "a latency: latency_s, latency_ms, latency_us or latency"
        raise Contradiction("pattern", f"{has} {wanted}")


def _plain(value: Any) -> Any:
    if isinstance(value, MetricKeys):
        given = {key: getattr(value, key) for key in MetricKeys.model_fields}
        return {key: _plain(one) for key, one in given.items() if one is not None}
    if isinstance(value, tuple):
        alone = len(value) == 1 and not isinstance(value[0], MetricKeys)
        return value[0] if alone else [_plain(one) for one in value]
    return value


def _over(base: dict[str, Any], keys: MetricsKeys) -> dict[str, Any]:
    """The base's fields with those that the keys set in their places; filters add up."""
    own = {
        name: getattr(keys, name)
        for name in keys.model_fields_set - {"base"}
        if getattr(keys, name) is not None
    }
    if _WHAT_IS_READ & own.keys():
        base = {name: value for name, value in base.items() if name not in _HOW_IT_IS_READ}
    merged = {**base, **own}
    for name in ("where", "failed"):
        if name in own:
            merged[name] = {**base.get(name, {}), **own[name]}
    return merged


def _sources(given: Mapping[str, Any]) -> Iterator[ProgressSource]:
    _check(given)
    if "path" in given:
        yield MetricsFile(given["path"])
    if "port" in given:
        yield MetricsEndpoint(
            ports=given["port"],
            http_path=given.get("http_path", DEFAULT_HTTP_PATH),
            metrics=tuple(_metrics(given)),
            needs=given.get("needs"),
            hint=given.get("hint"),
            via=given.get("via"),
            answers=given.get("answers", False),
        )
    if "pattern" in given:
        yield LogPattern(
            pattern=given["pattern"],
            metric=given.get("metric"),
            step=given.get("step"),
            when=groups_of(given["when"]) if "when" in given else None,
            needs=given.get("needs"),
            failed=filters_of(given.get("failed")),
            answers=given.get("answers", False),
        )


def _check(given: Mapping[str, Any]) -> None:
    kind = given.get("kind")
    if kind == "log" and "pattern" not in given:
        raise Contradiction("kind", "the kind log needs a `pattern`")
    for needed, keys in _NEEDED.items():
        for key in keys:
            if key in given and needed not in given:
                raise Contradiction(key, f"has no effect without the key `{needed}`")
    if not {"path", "port", "pattern"} & given.keys():
        raise Contradiction("", "needs port, path, pattern, or a preset's name")
    if "pattern" in given:
        groups = pattern_of(given["pattern"])[1]
        if "metric" in given and given["metric"] not in groups:
            missing = shown(given["metric"])
            what = f"{missing} is not a group of the pattern, whose groups are {', '.join(groups)}"
            raise Contradiction("metric", what)
        when = groups_of(given["when"]) if "when" in given else None
        for name in given.get("failed", ()):
            if name not in groups or name in LATENCIES_S or name == STEP:
                raise Contradiction("failed", f"the pattern has no group {shown(name)}")
        groups = {name: one for name, one in groups.items() if name not in given.get("failed", ())}
        if not groups:
            raise Contradiction(
                "pattern",
                "the pattern has no group beside those of `failed`: name a latency or a metric",
            )
        _check_groups(groups, given.get("step"), when)
    if given.get("via") is True:
        what = "metrics are read at a proxy: set `via` to the name of the proxy's container"
        raise Contradiction("via", what)


def _check_groups(groups: Iterable[str], step: str | None, when: tuple[str, str] | None) -> None:
    """Raise Contradiction where the pattern's groups lack what `step` and `when` need."""
    metrics = metrics_of(groups)
    for name in when or ():
        if name not in metrics:
            raise Contradiction("when", f"the pattern has no group {shown(name)}")
    if when is not None and metrics <= set(when):
        raise Contradiction("when", "the pattern has no group of a metric beside these two")
    if step in ("carried", "follows") and STEP not in groups:
        raise Contradiction("step", f"{step} needs a group named step in the pattern")
    if step == "evaluations" and STEP in groups:
        raise Contradiction(
            "step",
            "the pattern has a group named step: leave `step: evaluations` out",
        )


def _metrics(given: Mapping[str, Any]) -> Iterator[Metric]:
    shared = {key: given[key] for key in MetricKeys.model_fields if key in given}
    for index, one in enumerate(given.get("first_of", ()) or (None,)):
        own: dict[str, Any] = {}
        if one is not None:
            own = {key: value for key in one.model_fields_set if (value := getattr(one, key))}
        merged = {**shared, **own}
        if "where" in own:
            merged["where"] = {**own["where"], **shared.get("where", {})}
        place = f"first_of[{index}]" if one is not None else ""
        yield from _named(merged, place)


def _named(given: Mapping[str, Any], place: str) -> Iterator[Metric]:
    names = given.get("name", ())
    pair = _RATIO & given.keys()
    kind = given.get("kind")
    if pair and names:
        raise Contradiction(
            place or "name", "is given beside total or count: give one metric or a ratio"
        )
    if len(pair) == 1:
        (missing,) = _RATIO - pair
        raise Contradiction(place or min(pair), f"needs {missing} too: a ratio has total and count")
    if kind == "ratio" and not pair:
        raise Contradiction(place or "kind", "the kind ratio needs `total` and `count`")
    if pair and kind not in (None, "ratio"):
        raise Contradiction(
            place or "kind", f"{kind} is given beside `total` and `count`, which make a ratio"
        )
    unit = given.get("unit")
    metric = Metric(
        kind="ratio" if pair else kind if kind in ("histogram", "summary") else None,
        total=given.get("total"),
        count=given.get("count"),
        beside=given.get("beside"),
        errors=given.get("errors"),
        unit_s=None if unit is None else UNITS_S[unit],
        where=filters_of(given.get("where")),
        per=given.get("per"),
        errors_timed=bool(given.get("errors_timed")),
        failed=filters_of(given.get("failed")),
    )
    if pair:
        yield metric
    for name in names:
        yield replace(metric, name=name)
    if not pair and not names and metric != Metric():
        yield metric
