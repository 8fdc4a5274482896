"""A folder of small durable records, one file each, all of one kind.

Owns reading, writing and forgetting them, and what becomes of a file that is no record: it is moved
aside and told, never fatal and never lost. It must not know what is in a record.
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
from dlsched.store.atomic import clear_unfinished, remove, sync_folder, write_whole

BROKEN = ".broken"
"""Ends the name of a file that was moved aside."""

Word = TypeVar("Word")


class Records(Generic[Word]):
    """One record a name; may be used from any thread. What is read is always in memory."""

    def __init__(
        self, folder: Path, kind: type[Word], name: Callable[[Word], str], names: str, loss: str
    ) -> None:
        """Load all records. A broken one is moved aside: `alarms` says so, with the `loss`.

        `name` tells a record's own, which `names` matches. Raises OSError when the folder cannot
        be used.
        """
        self._folder = folder
        self._adapter: TypeAdapter[Any] = TypeAdapter(kind)
        self._name = name
        self._names = names
        self._loss = loss
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o750)
        clear_unfinished(self._folder)
        self._lock = threading.Lock()
        self._alarms: list[Alarm] = []
        self._words: Mapping[str, Word] = {}
        """Replaced whole: who reads must not wait for somebody else's disk."""
        self._unwritten: set[str] = set()
        for path in sorted(self._folder.iterdir()):
            self._load(path)

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """What was wrong with the records at the start."""
        return tuple(self._alarms)

    def of(self, name: str) -> Word | None:
        """The word kept of that name; None: none."""
        return self._words.get(name)

    def all(self) -> Mapping[str, Word]:
        """All records by name, as they are now."""
        return MappingProxyType(self._words)  # which is replaced, never changed

    def record(self, word: Word) -> None:
        """Keep it; on return it is on the disk.

        On OSError it holds all the same, and is written by the next `write_again` that can.
        """
        name = self._checked(word)
        with self._lock:
            self._words = {**self._words, name: word}
            self._unwritten.add(name)
            self._write(name, word)

    def write_again(self) -> None:
        """Write what the disk refused, until it refuses once more: then OSError."""
        with self._lock:
            for name in sorted(self._unwritten):
                self._write(name, self._words[name])

    def secure(self, word: Word) -> None:
        """Keep it on the disk or not at all: on OSError what was kept before still holds."""
        name = self._checked(word)
        with self._lock:
            self._write(name, word)
            self._words = {**self._words, name: word}

    def lift(self, name: str) -> None:
        """Forget it; nothing happens when there is no record. Raises OSError."""
        with self._lock:
            if name in self._words:
                remove(self._path(name))
                self._words = {key: word for key, word in self._words.items() if key != name}
                self._unwritten.discard(name)

    def place(self, name: str) -> Path:
        """The file of that name's record."""
        return self._path(name)

    def broken(self, name: str) -> Path:
        """Where that name's record is if it was moved aside."""
        path = self._path(name)
        return path.with_name(path.name + BROKEN)

    def _checked(self, word: Word) -> str:
        name = self._name(word)
        if not re.fullmatch(self._names, name):
            raise ValueError(f"{name!r} cannot name a record: {self._names}")
        return name

    def _write(self, name: str, word: Word) -> None:
        plain: Any = word
        write_whole(self._path(name), json.dumps(asdict(plain), sort_keys=True) + "\n")
        self._unwritten.discard(name)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def _load(self, path: Path) -> None:
        match = re.fullmatch(rf"({self._names})\.json", path.name)
        if match is None:
            return
        try:
            word = self._adapter.validate_json(path.read_bytes(), strict=True)
        except ValidationError:
            self._move_aside(path, "is no record")
        except FileNotFoundError:
            return  # it was lifted meanwhile
        except OSError as error:
            self._move_aside(path, f"cannot be read ({error.strerror})")
        else:
            if self._name(word) == match[1]:
                self._words = {**self._words, match[1]: word}
            else:
                self._move_aside(path, f"is the record of {self._name(word)}")

    def _move_aside(self, path: Path, why: str) -> None:
        aside = path.with_name(path.name + BROKEN)
        path.replace(aside)
        sync_folder(self._folder)
        text = f"{path} {why}: moved to {aside.name}; {self._loss}"
        self._alarms.append(Alarm(str(path), AlarmKey.RECORD_BROKEN, text))
