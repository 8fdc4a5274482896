"""A folder of small durable records, one file each; a broken file is moved aside and reported.

What is only read stays as it is, byte for byte: a broken file is reported and left.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.store.atomic import clear_unfinished, make_folder, remove, sync_folder, write_whole

BROKEN = ".broken"
"""Suffix of a file that was moved aside."""

Record = TypeVar("Record")


class Records(Generic[Record]):
    """Records by name, readable from any thread without disk access."""

    def __init__(
        self,
        folder: Path,
        kind: type[Record],
        name: Callable[[Record], str],
        names: str,
        loss: str,
        *,
        read_only: bool = False,
    ) -> None:
        """Load all records; broken ones are moved aside and shown by `alarms`, with the `loss`.
        Raises OSError.

        `name` returns the name of a record, which must match `names`. `read_only`: the folder need
        not be there, and nothing in it changes; then no record may be written or lifted.
        """
        self._folder = folder
        self._adapter: TypeAdapter[Any] = TypeAdapter(kind)
        self._name = name
        self._names = names
        self._loss = loss
        self.read_only = read_only
        if not read_only:
            make_folder(self._folder)
            clear_unfinished(self._folder)
        self._lock = threading.Lock()
        self._alarms: list[Alarm] = []
        self._records: Mapping[str, Record] = {}
        """Replaced as a whole, so that readers never wait for the disk."""
        self._unwritten: set[str] = set()
        self._left: dict[str, Path] = {}
        """Broken records by name, where nothing is moved."""
        if self._folder.is_dir() or not read_only:
            for path in sorted(self._folder.iterdir()):
                self._load(path)

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """What was wrong with the records at the start."""
        return tuple(self._alarms)

    def of(self, name: str) -> Record | None:
        return self._records.get(name)

    def all(self) -> Mapping[str, Record]:
        return MappingProxyType(self._records)  # which is replaced, never changed

    def record(self, record: Record, since: Mapping[str, Record] | None = None) -> None:
        """Keep it and write it; on OSError it stays in memory for a later `write_again`. With
        `since`, an earlier `all`, nothing happens if another thread has replaced it."""
        name = self._checked(record)
        with self._lock:
            if self._replaced(name, since):
                return
            self._records = {**self._records, name: record}
            self._unwritten.add(name)
            self._write(name, record)

    def write_again(self) -> None:
        """Write the records that the disk refused. Raises OSError when it refuses again."""
        with self._lock:
            for name in sorted(self._unwritten):
                self._write(name, self._records[name])

    def secure(self, record: Record) -> None:
        """Write the record, then keep it; on OSError the previous one stays valid."""
        name = self._checked(record)
        with self._lock:
            self._write(name, record)
            self._records = {**self._records, name: record}

    def lift(self, name: str, since: Mapping[str, Record] | None = None) -> None:
        """Remove the record of that name, if there is one. `since`: as in `record`. Raises
        OSError."""
        with self._lock:
            if name in self._records and not self._replaced(name, since):
                remove(self.path(name))
                self._records = {
                    key: record for key, record in self._records.items() if key != name
                }
                self._unwritten.discard(name)

    def broken(self, name: str) -> Path:
        """The path of a broken record of that name: where it is moved to, or left."""
        path = self.path(name)
        return self._left.get(name) or path.with_name(path.name + BROKEN)

    def _replaced(self, name: str, since: Mapping[str, Record] | None) -> bool:
        return since is not None and self._records.get(name) is not since.get(name)

    def _checked(self, record: Record) -> str:
        name = self._name(record)
        if not re.fullmatch(self._names, name):
            raise ValueError(f"{name!r} cannot name a record: must match {self._names}")
        return name

    def _write(self, name: str, record: Record) -> None:
        plain: Any = record
        write_whole(self.path(name), json.dumps(asdict(plain), sort_keys=True) + "\n")
        self._unwritten.discard(name)

    def path(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def _load(self, path: Path) -> None:
        match = re.fullmatch(rf"({self._names})\.json", path.name)
        if match is None:
            return
        try:
            record = self._adapter.validate_json(path.read_bytes(), strict=True)
        except ValidationError:
            self._set_aside(path, match[1], "is not a valid record")
        except FileNotFoundError:
            return  # removed meanwhile
        except OSError as error:
            self._set_aside(path, match[1], f"cannot be read ({error.strerror})")
        else:
            if self._name(record) == match[1]:
                self._records = {**self._records, match[1]: record}
            else:
                other = self._name(record)
                self._set_aside(path, match[1], f"holds the record of {other}, not of {match[1]}")

    def _set_aside(self, path: Path, name: str, why: str) -> None:
        done = "left there"
        if self.read_only:
            self._left[name] = path
        else:
            aside = self.broken(name)
            path.replace(aside)
            sync_folder(self._folder)
            done = f"moved to {aside.name}"
        text = f"{path} {why}: {done}; {self._loss}"
        self._alarms.append(Alarm(str(path), AlarmKey.RECORD_BROKEN, text))
