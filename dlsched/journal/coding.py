"""Cycle reports as compressed rows, and back exactly; a policy's memory as plain JSON.

Owns what the journal's rows mean. It must not touch files or the database. A group of rows is one
full frame and the changes since, and one deflate stream, so that names are told once a group.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from dlsched.errors import PolicyError
from dlsched.journal.frames import Counts, Plain, countable, difference, parse_counts, patch
from dlsched.model import ContainerSpec, CycleReport, JobSpec, LatencySketch, Outlook, Sample

MEMORY_BYTES_PER_JOB = 4096

_ROW_BYTES_MAX = 256 << 20
"""Inflated: a journal may come from anybody, and a few bytes could stand for any number."""

_REPORTS = TypeAdapter(CycleReport)
_SCALARS = frozenset({type(None), bool, int, float, str})
_UNCHANGING = frozenset({JobSpec, Outlook, Sample})
"""Replaced as a whole when they change, which they seldom do: compared by identity first."""

Known = dict[int, tuple[object, Plain]]
"""Frozen objects by identity, kept alive by being in it, and their plain values."""

Kind = TypeVar("Kind")


class Encoder:
    """Turns one report after the other into rows; forgets the ones before when told to."""

    def __init__(self) -> None:
        self._before: dict[str, Plain] | None = None
        self._known: Known = {}
        self._stream = _deflater()

    def row(self, report: CycleReport, *, full: bool) -> bytes:
        """The report as bytes: whole, or what changed since the one before.

        Raises TypeError when a policy's memory holds what is not plain.
        """
        met: Known = {}
        now = _plain_report(report, self._before, self._known, met)
        self._known = met
        if full or self._before is None:
            self._stream = _deflater()
            text = _json(now)
        else:
            text = _json(difference(self._before, now))
        body = self._stream.compress(text.encode()) + self._stream.flush(zlib.Z_SYNC_FLUSH)
        self._before = now
        return body


class Decoder:
    """Turns the rows of a group back into reports; a full frame may come at any time."""

    def __init__(self) -> None:
        self._now: dict[str, Plain] = {}
        self._stream = _inflater()

    def take(self, body: bytes, *, full: bool) -> None:
        """Follow one row. Raises ValueError when it cannot be read."""
        try:
            if full:
                self._stream = _inflater()
            told = json.loads(self._inflated(body))
            self._now = told if full else patch(self._now, told)
        except (zlib.error, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(str(error)) from error

    def report(self) -> CycleReport:
        """The report as of the last row. Raises ValueError when this version cannot read it."""
        try:
            now = _decided(self._now)
            if now["decision"] is not None and "outlooks" not in now["decision"]:
                # One from before there were outlooks has none at all.
                outlooks = now.get("outlooks", {})
                now["decision"] = {**now["decision"], "outlooks": outlooks}
            # One from before there were shadows has none.
            if now.get("shadow") is not None:
                now["shadow"] = _decided(now["shadow"])
            snapshot = now["snapshot"]
            jobs = snapshot["jobs"]
            rows = [jobs[name] for name in sorted(jobs)] if isinstance(jobs, dict) else jobs
            now["snapshot"] = {**snapshot, "jobs": [_sketches_parsed(row) for row in rows]}
        except (LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"not a report: {error!r}") from error
        return _REPORTS.validate_python(now)

    def _inflated(self, body: bytes) -> bytes:
        text = self._stream.decompress(body, _ROW_BYTES_MAX)
        if self._stream.unconsumed_tail:
            raise ValueError(f"a row of more than {_ROW_BYTES_MAX >> 20} MiB")
        return text


def memory_text(memory: object) -> str:
    """A policy's memory as JSON. Raises TypeError when it holds what is not plain."""
    return _json(_plain(memory))


def memory_size_check(memory: object, jobs: int) -> None:
    """Raise PolicyError when a memory is not plain values, or above 4 KiB for each of `jobs`."""
    try:
        size_bytes = len(memory_text(memory))
    except (TypeError, ValueError, RecursionError) as error:
        raise PolicyError(f"its memory cannot be kept: {error}") from error
    bound_bytes = MEMORY_BYTES_PER_JOB * max(1, jobs)
    if size_bytes > bound_bytes:
        raise PolicyError(
            f"its memory has {size_bytes} bytes; with {jobs} jobs at most {bound_bytes}"
            f" ({MEMORY_BYTES_PER_JOB} a job)"
        )


def load_memory(plain: object, kind: type[Kind] | None) -> tuple[Kind | None, str | None]:
    """The memory of that type, or None and the reason why it no longer loads."""
    if plain is None:
        return None, None
    if kind is None:
        return None, "the policy remembers nothing"
    try:
        memory = TypeAdapter(kind).validate_python(plain)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return None, f"{where}: {first['msg']}" if where else first["msg"]
    if json.loads(memory_text(memory)) != plain:
        return None, f"it holds what {kind.__name__} does not know"
    return memory, None


# ---------------------------------------------------------------------- to plain values


def _plain_report(
    report: CycleReport, before: Mapping[str, Plain] | None, known: Known, met: Known
) -> dict[str, Plain]:
    """Its plain values, with jobs by name."""
    plain: dict[str, Plain] = dict(_plain(report, known, met))
    decided = plain["decision"]
    if decided is not None and decided["outlooks"] == plain["outlooks"]:
        # Told once: the report's are the last decision's. What is known of it stays as it is.
        plain["decision"] = {key: part for key, part in decided.items() if key != "outlooks"}
    _keep_decision(plain, before)
    if plain["shadow"] is not None:
        plain["shadow"] = dict(plain["shadow"])
        _keep_decision(plain["shadow"], before["shadow"] if before is not None else None)
    names = [job.name for job in report.snapshot.jobs]
    if sorted(set(names)) == names:
        jobs = plain["snapshot"]["jobs"]
        plain["snapshot"] = {
            **plain["snapshot"],
            "jobs": dict(zip(names, jobs, strict=True)),
        }
    return plain


def _keep_decision(plain: dict[str, Plain], before: Mapping[str, Plain] | None) -> None:
    """Without a decision keep the last one beside `decided` false.

    So the next differs from that one only by what is new in it.
    """
    plain["decided"] = plain["decision"] is not None
    if plain["decision"] is None and before is not None:
        plain["decision"] = before["decision"]


def _plain(value: Any, known: Known | None = None, met: Known | None = None) -> Plain:
    """What is the same frozen object as one that is `known` has the same plain values: in most
    cycles most jobs are. All that were `met` are noted down."""
    kind: Any = type(value)
    if kind in _SCALARS or kind in _UNCHANGING:
        return value
    if kind is tuple or kind is list:
        return [item if type(item) in _SCALARS else _plain(item, known, met) for item in value]
    if (names := _names(kind)) is not None:
        same = None if known is None else known.get(id(value))
        if same is None or same[0] is not value:
            same = value, _plain_fields(value, kind, names, known, met)
        if met is not None:
            met[id(value)] = same
        return same[1]
    if isinstance(value, Mapping):
        return {
            _key(key): item if type(item) in _SCALARS else _plain(item, known, met)
            for key, item in value.items()
        }
    if isinstance(value, str | int | float):
        return value
    raise TypeError(f"{kind.__name__} is not a plain value")


def _plain_fields(
    value: Any, kind: Any, names: tuple[str, ...], known: Known | None, met: Known | None
) -> dict[str, Plain]:
    if kind is LatencySketch:
        buckets = Counts(value.buckets) if countable(value.buckets) else value.buckets
        return {
            "count": value.count,
            "sum_s": value.sum_s,
            "errors": value.errors,
            "buckets": buckets,
        }
    if kind is ContainerSpec:
        value = value.discreet
    plain = {}
    for name in names:
        item = getattr(value, name)
        plain[name] = item if type(item) in _SCALARS else _plain(item, known, met)
    return plain


def _key(key: object) -> str:
    if isinstance(key, str):
        return key
    if type(key) is int:
        return str(key)
    raise TypeError(f"{type(key).__name__} is not a plain key")


@cache
def _names(kind: Any) -> tuple[str, ...] | None:
    return tuple(item.name for item in fields(kind)) if is_dataclass(kind) else None


def _json(value: Plain) -> str:
    return json.dumps(value, separators=(",", ":"), default=_rendered)


def _rendered(value: Any) -> Plain:
    """What `_plain` left as it is; the fields of an unchanging object come here in turn."""
    if isinstance(value, Counts):
        return str(value)
    if type(value) not in _UNCHANGING:
        return _plain(value)
    kind: Any = type(value)
    return {name: getattr(value, name) for name in _names(kind) or ()}


# ---------------------------------------------------------------------- and back


def _decided(kept: Mapping[str, Plain]) -> dict[str, Plain]:
    """Without the decision that was only kept for the next to differ from."""
    plain = dict(kept)
    if not plain.pop("decided"):
        plain["decision"] = None
    return plain


def _sketches_parsed(job: Mapping[str, Plain]) -> dict[str, Plain]:
    progress = dict(job["progress"])
    for name, value in progress.items():
        if isinstance(value, dict) and isinstance(value.get("buckets"), str):
            progress[name] = {**value, "buckets": parse_counts(value["buckets"])}
    return {**job, "progress": progress}


def _deflater() -> zlib._Compress:
    # Short matches among digits cost more than the digits: Z_FILTERED saves a tenth here.
    return zlib.compressobj(6, wbits=-zlib.MAX_WBITS, strategy=zlib.Z_FILTERED)


def _inflater() -> zlib._Decompress:
    return zlib.decompressobj(wbits=-zlib.MAX_WBITS)
