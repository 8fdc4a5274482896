"""Decodes of each cycle only what a review of hours and days reads: the windows of latencies, the
policies' memories and the decisions take most of the time, and are left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from dlsched.model.cycle import CycleReport
from dlsched.model.facts import Sample
from dlsched.model.forecast import Forecast
from dlsched.model.spec import JobSpec
from dlsched.model.state import JobView, Tiers
from dlsched.store.journal.coding import Decoder, sketches_parsed
from dlsched.store.journal.frames import Plain

_CYCLE = ("policy", "outcomes", "alarms", "engine_ok", "wall_time", "outlooks")
_SNAPSHOT = ("cycle", "now_s", "window_s")
_NODE = ("capacity_cores", "cores", "memory_bytes", "foreign_cores")
_JOB = (
    "state", "adopted", "blind", "container_id", "gpus", "actual", "cpu_shares", "cpu_idle",
    "attained_core_s", "started_at_s", "changed_at_s", "starts", "tiers",
)  # fmt: skip
_PARTS: Mapping[str, tuple[str, ...]] = {
    "progress": ("fresh", "oldest_s", "samples"),
    "usage": ("cpu_cores", "throttled_ratio"),
}

_REPORTS = TypeAdapter(CycleReport)
_JOBS = TypeAdapter(JobView)
_ADAPTERS: Mapping[str, TypeAdapter[Any]] = {
    "spec": TypeAdapter(JobSpec),
    "samples": TypeAdapter(tuple[Sample, ...]),
    "tiers": TypeAdapter(Tiers),
    "outlooks": TypeAdapter(dict[str, tuple[Forecast, ...]]),
}


class OutlineDecoder(Decoder):
    """A decoder whose reports have the default for everything else; without a decision."""

    def __init__(self) -> None:
        super().__init__()
        self._parsed: dict[tuple[str, str], tuple[Plain, object]] = {}
        """What seldom changes, by its job and kind: as plain values, and parsed."""

    def report(self) -> CycleReport:
        """Raises ValueError when this version cannot read it."""
        now = self._now
        try:
            snapshot = now["snapshot"]
            jobs = snapshot["jobs"]
            rows = [jobs[name] for name in sorted(jobs)] if isinstance(jobs, dict) else jobs
            plain = _kept(now, _CYCLE)
            plain["snapshot"] = {
                **_kept(snapshot, _SNAPSHOT),
                "node": _kept(snapshot["node"], _NODE),
                "jobs": [self._job_view(row) for row in rows],
            }
            plain["outlooks"] = self._once("", "outlooks", now.get("outlooks", {}))
        except (LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"not a report: {error!r}") from error
        return _REPORTS.validate_python(plain)

    def _job_view(self, row: dict[str, Plain]) -> JobView:
        name = row["spec"]["name"]
        progress, kept = _kept(row["progress"], _PARTS["progress"]), _kept(row, _JOB)
        progress["samples"] = self._once(name, "samples", progress["samples"])
        kept["progress"] = progress
        kept["usage"] = _kept(row["usage"], _PARTS["usage"])
        kept["spec"] = self._once(name, "spec", row["spec"])
        kept["tiers"] = self._once(name, "tiers", row["tiers"])
        return _JOBS.validate_python(sketches_parsed(kept))

    def _once(self, job: str, kind: str, plain: Plain) -> object:
        """It, parsed. What a row leaves as it was is still the same object."""
        known = self._parsed.get((job, kind))
        if known is None or known[0] is not plain:
            known = (plain, _ADAPTERS[kind].validate_python(plain))
            self._parsed[job, kind] = known
        return known[1]

    def _needed(self, delta: dict[str, Plain]) -> dict[str, Plain]:
        snapshot, old = delta.get("snapshot"), self._now.get("snapshot")
        found = _kept(delta, _CYCLE)
        if not isinstance(snapshot, dict) or not isinstance(old, dict):
            return found if snapshot is None else {**found, "snapshot": snapshot}
        part = _kept(snapshot, (*_SNAPSHOT, "node"))
        jobs = snapshot.get("jobs")
        if isinstance(jobs, dict) and isinstance(old["jobs"], dict):
            jobs = {name: _needed_of(one) for name, one in jobs.items()}
        if jobs is not None:
            part["jobs"] = jobs
        return {**found, "snapshot": part}


def _needed_of(delta: Any) -> Plain:
    if not isinstance(delta, dict):  # it replaces the whole job
        return delta
    found = _kept(delta, ("spec", *_JOB))
    for part, keys in _PARTS.items():
        change = delta.get(part)
        if isinstance(change, dict):
            change = _kept(change, keys)
        if change:
            found[part] = change
    return found


def _kept(plain: Mapping[str, Plain], keys: tuple[str, ...]) -> dict[str, Plain]:
    return {key: plain[key] for key in keys if key in plain}
