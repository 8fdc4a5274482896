"""The file is made with bounds in mind, brought up to date, and read without being changed."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from dlsched.store.journal.reader import JournalReader
from dlsched.store.journal.rows import Change
from dlsched.store.journal.schema import (
    MIGRATIONS,
    VERSION,
    damaged,
    open_for_reading,
    open_for_writing,
    set_aside,
)


def pragma(connection: sqlite3.Connection, name: str) -> object:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def test_a_new_file_is_of_this_version_with_wal_and_shrinks(path: Path) -> None:
    with closing(open_for_writing(path)) as connection:
        assert pragma(connection, "user_version") == VERSION
        assert pragma(connection, "journal_mode") == "wal"
        assert pragma(connection, "auto_vacuum") == 2
        tables = connection.execute("SELECT name, strict FROM pragma_table_list").fetchall()

    assert {name for name, strict in tables if strict} == {
        "frames",
        "changes",
        "events",
        "memories",
        "minutes",
    }


def test_a_new_file_is_not_for_other_users_and_another_keeps_its_mode(path: Path) -> None:
    before = os.umask(0o022)
    try:
        with closing(open_for_writing(path)):
            parts = (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm")))
            assert [stat.S_IMODE(part.stat().st_mode) for part in parts] == [0o640] * 3
        path.chmod(0o644)
        open_for_writing(path).close()
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
    finally:
        os.umask(before)


def test_a_file_of_an_earlier_version_is_read_as_it_is_and_brought_up_to_date(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            f"{MIGRATIONS[0]}; PRAGMA user_version = 1;"
            "INSERT INTO changes VALUES"
            " (3, 4.0, 'then', 'alpha', 'resize', 0.5, 0.75, 'late', '', 'done', '')"
        )
    old = Change(3, 4.0, "then", "alpha", "resize", 0.5, 0.75, "late", "", "done", "")
    for _ in range(2):
        with JournalReader(path) as reader:
            assert reader.last_changes("alpha", 9) == (old,)
        open_for_writing(path).close()


def test_a_reader_cannot_write(path: Path) -> None:
    open_for_writing(path).close()

    with (
        closing(open_for_reading(path)) as connection,
        pytest.raises(sqlite3.OperationalError, match="readonly"),
    ):
        connection.execute("DELETE FROM frames")


def test_what_is_no_database_is_damaged_and_a_full_disk_is_not(path: Path) -> None:
    path.write_bytes(b"no database at all " * 100)

    with pytest.raises(sqlite3.DatabaseError) as raised:
        open_for_writing(path)

    assert damaged(raised.value)
    assert not damaged(sqlite3.OperationalError("database or disk is full"))


def test_what_is_set_aside_takes_its_log_along_and_a_free_name(path: Path) -> None:
    names = []
    for _ in range(2):
        path.write_text("a")
        path.with_name("journal.db-wal").write_text("b")
        names.append(set_aside(path, "corrupt").name)

    assert names == ["journal.db.corrupt-1", "journal.db.corrupt-2"]
    assert not path.exists()
    assert path.with_name("journal.db.corrupt-2-wal").read_text() == "b"
