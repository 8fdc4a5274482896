"""The journal's file: its tables, their versions, and opening it for writing or reading. Schemas
are only ever added to: `PRAGMA user_version` counts the migrations applied."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final

JOURNAL_NAME: Final = "journal.db"

DRY_RUN_JOURNAL_NAME: Final = "dry-run.db"
"""A dry run's own journal: its actions were not executed."""

MIGRATIONS: Sequence[str] = (
    """
    CREATE TABLE frames (
        cycle INTEGER PRIMARY KEY, whole INTEGER NOT NULL, now_s REAL NOT NULL, body BLOB NOT NULL
    ) STRICT;
    CREATE INDEX whole_frames ON frames (cycle, now_s) WHERE whole = 1;
    CREATE TABLE changes (
        cycle INTEGER NOT NULL, now_s REAL NOT NULL, wall_time TEXT NOT NULL, job TEXT NOT NULL,
        kind TEXT NOT NULL, before_cores REAL, after_cores REAL, why TEXT NOT NULL,
        guard TEXT NOT NULL, status TEXT NOT NULL, detail TEXT NOT NULL
    ) STRICT;
    CREATE INDEX changes_of_job ON changes (job);
    CREATE INDEX changes_by_cycle ON changes (cycle);
    CREATE TABLE events (
        cycle INTEGER NOT NULL, now_s REAL NOT NULL, wall_time TEXT NOT NULL, job TEXT NOT NULL,
        kind TEXT NOT NULL, before TEXT, after TEXT, reason TEXT NOT NULL
    ) STRICT;
    CREATE INDEX events_of_job ON events (job);
    CREATE INDEX events_by_cycle ON events (cycle);
    CREATE TABLE memories (policy TEXT PRIMARY KEY, memory TEXT NOT NULL) STRICT;
    """,
    """
    ALTER TABLE changes ADD COLUMN before_share REAL;
    ALTER TABLE changes ADD COLUMN after_share REAL;
    ALTER TABLE changes ADD COLUMN gpus TEXT NOT NULL DEFAULT '';
    """,
    """
    CREATE TABLE minutes (
        first_cycle INTEGER PRIMARY KEY, last_cycle INTEGER NOT NULL, at_s REAL NOT NULL,
        body BLOB NOT NULL
    ) STRICT;
    CREATE INDEX minutes_by_time ON minutes (at_s);
    CREATE INDEX changes_by_time ON changes (wall_time);
    CREATE INDEX events_by_time ON events (wall_time);
    """,
    "ALTER TABLE changes ADD COLUMN expected_s REAL",
    "ALTER TABLE changes ADD COLUMN changed TEXT NOT NULL DEFAULT ''",
)
VERSION = len(MIGRATIONS)

_FRAMES = {"cycle": "INTEGER", "whole": "INTEGER", "now_s": "REAL", "body": "BLOB"}

_PAGE_BYTES = 8192
"""Rows of one to two KiB leave less of a page empty than in SQLite's 4 KiB."""
_WAL_BYTES = 4 << 20


class OtherVersion(Exception):
    """The file was written by a newer version."""

    def __init__(self, version: int) -> None:
        self.version = version
        super().__init__(
            f"the journal has version {version}, and this dlsched knows versions up to {VERSION}"
        )


def open_for_writing(path: Path) -> sqlite3.Connection:
    """The file, created or migrated. Raises sqlite3.Error, OSError and OtherVersion.

    Other users may not read a new one, nor SQLite's files beside it, which get its mode.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640))
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, timeout=1.0, cached_statements=32
    )
    try:
        version = _known_version(connection)
        if version == 0:
            connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_BYTES // _PAGE_BYTES}")
        for number in range(version, VERSION):
            connection.executescript(
                f"BEGIN; {MIGRATIONS[number]}; PRAGMA user_version = {number + 1}; COMMIT;"
            )
    except BaseException:
        connection.close()
        raise
    return connection


def open_for_reading(path: Path) -> sqlite3.Connection:
    """The file in whatever version, unchanged. Raises sqlite3.Error."""
    uri = path.absolute().as_uri()
    try:
        return _reading(f"{uri}?mode=ro")
    except sqlite3.OperationalError:
        # Without a writer there is no shared memory file, and a reader may not be permitted to make
        # it. With an empty WAL the file alone is complete.
        wal = path.with_name(f"{path.name}-wal")
        if not path.is_file() or (wal.exists() and wal.stat().st_size > 0):
            raise
        return _reading(f"{uri}?immutable=1")


def newer(connection: sqlite3.Connection) -> OtherVersion | None:
    """The error when a newer program wrote the file; None: all of it is known."""
    version = _version(connection)
    return OtherVersion(version) if version > VERSION else None


def foreign(connection: sqlite3.Connection) -> bool:
    """Whether it is the database of another program. Raises sqlite3.Error."""
    tables = connection.execute("PRAGMA table_list(frames)").fetchall()
    if not tables:
        anything = connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
        return anything is not None  # or it is an empty file
    columns = {row[1]: row[2] for row in connection.execute("PRAGMA table_info(frames)")}
    strict = all(kind == "table" and is_strict for _, _, kind, _, _, is_strict in tables)
    return not strict or not _FRAMES.items() <= columns.items()


def damaged(error: Exception) -> bool:
    """Whether the file is no valid database; SQLite's other errors are subclasses."""
    return type(error) is sqlite3.DatabaseError


def set_aside(path: Path, what: str) -> Path:
    """Rename an unusable file and its companions to `PATH.WHAT-N`; returns the new path."""
    aside = next(
        name for n in count(1) if not (name := path.with_name(f"{path.name}.{what}-{n}")).exists()
    )
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    return aside


def used_bytes(connection: sqlite3.Connection) -> int:
    """Size of the file without the pages that are free."""
    pages, free, size_bytes = connection.execute(
        "SELECT page_count, freelist_count, page_size"
        " FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
    ).fetchone()
    return int((pages - free) * size_bytes)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Roll back on any error, unless SQLite itself has done so, as on a full disk."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _reading(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=1.0)
    try:
        # SQLite refuses a cut-off file as a whole, except to those who may repair its schema.
        connection.execute("PRAGMA writable_schema = ON")
        _version(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _known_version(connection: sqlite3.Connection) -> int:
    if (other := newer(connection)) is not None:
        raise other
    return _version(connection)


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
