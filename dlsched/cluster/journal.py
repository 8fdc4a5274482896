"""The controller's journal: snapshots and what was decided of them, so that a policy can be asked
again.

Not every round has a row: only those in which the policy was asked, and placed, moved, refused or
failed, or met other jobs or nodes than before; else one a minute.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from dlsched import __version__
from dlsched.cluster.core.decider import ClusterAnswer, present_in
from dlsched.cluster.core.guards import GuardMemory
from dlsched.cluster.core.model import ClusterSnapshot, Move
from dlsched.cluster.core.shadow import Shadowed
from dlsched.cluster.round_report import RoundReport
from dlsched.store.journal.schema import (
    newer,
    open_for_reading,
    open_for_writing,
    transaction,
    used_bytes,
)
from dlsched.store.journal.writer import Writer

FILE_NAME = "rounds.db"
EVERY_S = 60.0
"""Time between two rows while nothing happens."""
_QUEUE_ROUNDS = 8
"""Snapshots of large clusters have some MB each."""
_ROW_BYTES_MAX = 256 << 20
"""Inflated: guards against decompression bombs in journals from elsewhere."""
_BATCH_ROWS = 20
_LAST_ROW = (1 << 63) - 1

MIGRATIONS = (
    """
    CREATE TABLE rounds (
        row INTEGER PRIMARY KEY, round INTEGER NOT NULL, now_s REAL NOT NULL,
        wall_time TEXT NOT NULL, digest TEXT NOT NULL, decision TEXT NOT NULL, body BLOB NOT NULL
    ) STRICT;
    CREATE INDEX rounds_by_time ON rounds (wall_time);
    """,
)


@dataclass(frozen=True, slots=True)
class Decided:
    """What came of one question to the policy, after the guards."""

    place: Mapping[str, str] = field(default_factory=dict)
    moves: tuple[Move, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    why: Mapping[str, str] = field(default_factory=dict)
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class ShadowDecided:
    """What a shadow policy would have done, after the guards."""

    policy: str
    decided: Decided


@dataclass(frozen=True, slots=True)
class _Basis:
    """What a decision followed from, beside the snapshot."""

    hosts: Mapping[str, str]
    """Host names by node."""
    policy: str
    options: Mapping[str, Any]
    version: str
    """Of the dlsched that decided."""
    memory: Any
    """The policy's, as plain JSON values."""
    guards: GuardMemory
    failures: int


@dataclass(frozen=True, slots=True)
class RecordedRound(_Basis):
    """One row, with everything that its decision followed from."""

    row: int
    wall_time: str
    snapshot: ClusterSnapshot
    decided: Decided
    digest: str
    """Of the snapshot."""
    shadow: ShadowDecided | None = None
    """None: there was none, or it did not answer in time."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A round that is to be written."""

    wall_time: str
    snapshot: ClusterSnapshot
    hosts: Mapping[str, str]
    answer: ClusterAnswer
    shadowed: Shadowed | None


_SNAPSHOT = TypeAdapter(ClusterSnapshot)
_BASIS = TypeAdapter(_Basis)
_DECIDED = TypeAdapter(Decided)
_SHADOW = TypeAdapter(ShadowDecided)


class RoundJournal:
    """Writes rounds in a thread of its own: neither a full disk nor a slow one holds a round up."""

    def __init__(
        self,
        path: Path,
        policy: str,
        options: Mapping[str, object],
        *,
        max_bytes: int = 1 << 30,
        max_age_s: float = 7 * 86_400.0,
    ) -> None:
        """`policy` and `options`: as of the settings. Opening never raises: see `problem`."""
        store = _Store(path, policy, dict(options), max_bytes, max_age_s)
        self._writer: Writer[_Asked] = Writer(path, store, queue_rows=_QUEUE_ROUNDS)
        self._present: object = None
        self._last_s: float | None = None

    def take(self, report: RoundReport, wall_time: str, shadowed: Shadowed | None = None) -> None:
        """Queue the round, if it gets a row."""
        snapshot, answer = report.snapshot, report.answer
        if snapshot is None or not answer.asked:
            return
        present, last_s = present_in(snapshot), self._last_s
        approved = answer.approved
        happened = bool(approved.place or approved.moves or approved.refused or answer.failure)
        if shadowed is not None:
            happened |= bool(shadowed.new or shadowed.answer.failure)
        due = last_s is None or not 0.0 <= snapshot.now_s - last_s < EVERY_S
        if happened or due or present != self._present:
            self._present, self._last_s = present, snapshot.now_s
            hosts = {name: one.host for name, one in report.members.items() if one.host}
            self._writer.write(_Asked(wall_time, snapshot, hosts, answer, shadowed))

    def problem(self) -> str | None:
        """What is wrong with the journal now, in one line; None: nothing."""
        return self._writer.problem()

    def flush(self) -> None:
        """Wait until every queued round is committed or lost."""
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class RoundReader(AbstractContextManager["RoundReader"]):
    """A journal opened read-only. A missing, damaged or newer file raises nothing: `problem` says
    what could not be read."""

    def __init__(self, path: Path) -> None:
        self.problem: str | None = None
        self._path = path
        self._connection: sqlite3.Connection | None = None
        try:
            self._connection = open_for_reading(path)
            if (other := newer(self._connection, len(MIGRATIONS))) is not None:
                self.problem = f"{path}: {other}"
        except sqlite3.Error as error:
            self.problem = f"{path}: {error}" if path.exists() else f"{path}: no such journal"

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def rounds(
        self, first: int | str | None = None, last: int | str | None = None
    ) -> Iterator[RecordedRound]:
        """Those between two rows or wall times, in the order in which they were written. Ends at a
        row that cannot be read."""
        row = first - 1 if isinstance(first, int) else -1
        low = first if isinstance(first, str) else ""
        high = f"{last}~" if isinstance(last, str) else "~"
        last_row = last if isinstance(last, int) else _LAST_ROW
        while self._connection is not None:
            try:
                found = self._connection.execute(
                    "SELECT row, wall_time, digest, decision, body FROM rounds WHERE row > ?"
                    " AND row <= ? AND wall_time BETWEEN ? AND ? ORDER BY row LIMIT ?",
                    (row, last_row, low, high, _BATCH_ROWS),
                ).fetchall()
            except sqlite3.Error as error:
                self.problem = f"{self._path}: {error}"
                return
            for columns in found:
                row = columns[0]
                try:
                    yield _decoded(*columns)
                except (zlib.error, LookupError, TypeError, ValueError, RecursionError) as error:
                    line = " ".join(str(error).split())[:200]
                    self.problem = f"{self._path}: row {row} cannot be read: {line}"
                    return
            if len(found) < _BATCH_ROWS:
                return


class _Store:
    """The open file, for the writer's thread."""

    def __init__(
        self, path: Path, policy: str, options: dict[str, object], max_bytes: int, max_age_s: float
    ) -> None:
        self._path = path
        self._policy, self._options = policy, options
        self._max_bytes, self._max_age_s = max_bytes, max_age_s
        self._connection: sqlite3.Connection | None = None

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    def open(self) -> None:
        self._connection = open_for_writing(self._path, MIGRATIONS)

    def write(self, batch: tuple[_Asked, ...]) -> tuple[int, str] | None:
        assert self._connection is not None
        refused: tuple[int, str] | None = None
        self._retain(batch[-1].wall_time)
        with transaction(self._connection):
            for asked in batch:
                try:
                    row = self._row(asked)
                except (TypeError, ValueError, RecursionError) as error:
                    count = refused[0] + 1 if refused else 1
                    refused = (count, f"its policy's memory is not plain: {error}")
                    continue
                self._connection.execute(
                    "INSERT INTO rounds (round, now_s, wall_time, digest, decision, body)"
                    " VALUES (?, ?, ?, ?, ?, ?)",
                    row,
                )
        return refused

    def forget(self) -> None:
        """No row hangs on an earlier one."""

    def close(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _row(self, asked: _Asked) -> tuple[object, ...]:
        snapshot, answer, before = asked.snapshot, asked.answer, asked.answer.before
        text = _text(_SNAPSHOT.dump_python(snapshot, mode="json"))
        basis = _Basis(
            asked.hosts,
            self._policy,
            self._options,
            __version__,
            memory_plain(before.memory),
            before.guards,
            before.failures,
        )
        decided = _text(_DECIDED.dump_python(decided_of(answer), mode="json"))
        parts = [text, _text(_BASIS.dump_python(basis, mode="json"))]
        if (shadowed := asked.shadowed) is not None:
            shadow = ShadowDecided(shadowed.policy, decided_of(shadowed.answer))
            parts.append(_text(_SHADOW.dump_python(shadow, mode="json")))
        packed = zlib.compress("\n".join(parts).encode())
        round_ = (snapshot.round, snapshot.now_s, asked.wall_time)
        return (*round_, _digest(text), decided, packed)

    def _retain(self, wall_time: str) -> None:
        """Delete the oldest rows until size and age are within their bounds."""
        assert self._connection is not None
        run = self._connection.execute
        with suppress(ValueError, OverflowError):
            oldest = datetime.fromisoformat(wall_time) - timedelta(seconds=self._max_age_s)
            run("DELETE FROM rounds WHERE wall_time < ?", (oldest.isoformat(),))
        while used_bytes(self._connection) > self._max_bytes:
            gone = run(
                "DELETE FROM rounds WHERE row IN (SELECT row FROM rounds ORDER BY row LIMIT ?)",
                (_BATCH_ROWS,),
            )
            if not gone.rowcount:
                break
        run("PRAGMA incremental_vacuum").fetchall()


def decided_of(answer: ClusterAnswer) -> Decided:
    approved = answer.approved
    return Decided(approved.place, approved.moves, approved.refused, answer.why, answer.failure)


def memory_plain(memory: object) -> Any:
    """A policy's memory as JSON values. Raises TypeError or ValueError where it is not plain."""
    return None if memory is None else TypeAdapter(type(memory)).dump_python(memory, mode="json")


def _decoded(row: int, wall_time: str, digest: str, decision: str, packed: bytes) -> RecordedRound:
    unpacking = zlib.decompressobj()
    text, _, rest = unpacking.decompress(packed, _ROW_BYTES_MAX).decode().partition("\n")
    if not unpacking.eof or _digest(text) != digest:
        raise ValueError("its snapshot is not the one that was recorded")
    based_on, _, shadow = rest.partition("\n")
    basis = _BASIS.validate_python(json.loads(based_on))
    return RecordedRound(
        **{one.name: getattr(basis, one.name) for one in fields(basis)},
        row=row,
        wall_time=wall_time,
        snapshot=_SNAPSHOT.validate_python(json.loads(text)),
        decided=_DECIDED.validate_python(json.loads(decision)),
        digest=digest,
        shadow=_SHADOW.validate_python(json.loads(shadow)) if shadow else None,
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _text(plain: object) -> str:
    return json.dumps(plain, separators=(",", ":"))
