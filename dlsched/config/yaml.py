"""One strict YAML document as plain values, with the line and column of every key and value.

Owns what YAML may be here: one document of bounded size, no anchors, tags, duplicate keys, nor any
scalar that two readers of YAML read differently. It must not know what the keys mean.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import yaml

from dlsched.config.text import SIZE_MAX_BYTES, too_long
from dlsched.model.errors import Problem, unexpected
from dlsched.model.units import shown

_BOOLEANS = {"true": True, "True": True, "TRUE": True}
_BOOLEANS |= {"false": False, "False": False, "FALSE": False}
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17}|(?=\.[0-9]))(?:\.[0-9]{0,17})")
EXPONENT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+")
"""Text to one reader of YAML, a number to another; kept as text, which is what commands want."""
_NUMBER = "a decimal number"
_TRAPS = tuple(
    (re.compile(pattern), why, instead)
    for pattern, why, instead in (
        (r"yes|Yes|YES|on|On|ON", "means true to some YAML parsers", "true"),
        (r"no|No|NO|off|Off|OFF", "means false to some YAML parsers", "false"),
        (r"[-+]?0[0-9_]+", "is an octal number to some YAML parsers", _NUMBER),
        (r"[-+]?0[xob][0-9a-fA-F_]+", "is a number in another base in YAML", _NUMBER),
        (
            r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?",
            "is a base-60 number in YAML",
            _NUMBER,
        ),
        (r"[-+]?(?=.*_)[0-9][0-9_]*(?:\.[0-9_]*)?", "is a number to some YAML parsers", _NUMBER),
        (r"[-+]?(?:[0-9]{19,}\.?[0-9]*|[0-9]*\.[0-9]{18,})", "has too many digits", _NUMBER),
        (r"[-+]?\.(?:inf|Inf|INF|nan|NaN|NAN)", "is not a usable number", _NUMBER),
        (r"=|<<", "is an operator of YAML", None),
    )
)
"""Scalars that readers of YAML read differently: why, and what else to write than quoted text."""
_SURROGATE = re.compile("[\ud800-\udfff]")
"""What an escape can make, but no file, journal or socket can hold."""


class WrittenInt(int):
    """A whole number that remembers how it was written, for where text is meant."""

    text: str


class WrittenFloat(float):
    """A number that remembers how it was written: a label `version: 1.10` must not become 1.1."""

    text: str


Scalar = None | bool | WrittenInt | WrittenFloat | str


def read_plain(text: str, *, is_flag: bool | None = None) -> Scalar:
    """What an unquoted scalar means; ValueError with the reason where readers differ, and with what
    to write: true or false if `is_flag`, text if not, both where it is None."""
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    for pattern, why, instead in _TRAPS:
        if pattern.fullmatch(text):
            raise ValueError(f"{shown(text)} {why}: {_remedy(text, instead, is_flag)}")
    if _INTEGER.fullmatch(text):
        number = WrittenInt(text)
        number.text = text
        return number
    if _FLOAT.fullmatch(text):
        real = WrittenFloat(text)
        real.text = text
        return real
    return text


def read_lone(text: str) -> Scalar:
    """What a text means that stands alone, as a label or a variable: as an unquoted scalar, and as
    text where readers differ."""
    try:
        return read_plain(text)
    except ValueError:
        return text


def _remedy(text: str, instead: str | None, is_flag: bool | None) -> str:
    if instead is None:
        return f'write "{text}" in quotes for the text'
    if instead == _NUMBER:
        quoted = text if len(text) <= 30 else "it"
        return f'write "{quoted}" in quotes for the text, or {instead}'
    if is_flag:
        return f"write {instead}"
    either = "" if is_flag is False else f", or {instead}"
    return f'write "{text}" in quotes for the word{either}'


DEPTH_MAX = 16
NODES_MAX = 5000
ANCHOR_SHOWN = 40
"""Characters of an anchor's name in a message."""

Path = tuple[str | int, ...]
Mark = tuple[int, int]
"""Line and column, both from 1."""

Value = Scalar | list["Value"] | dict[str, "Value"]


@dataclass(frozen=True, slots=True)
class Document:
    """What a file says, and where it says it. A value with a problem of its own is None."""

    file: str
    value: Value = None
    problems: tuple[Problem, ...] = ()
    keys: dict[Path, Mark] = field(default_factory=dict)
    values: dict[Path, Mark] = field(default_factory=dict)
    spoiled: frozenset[Path] = frozenset()
    """Where the problems are: the same place is reported once."""
    empty: frozenset[Path] = frozenset()
    """Where null stands, written out or not."""
    origins: Mapping[Path, str] = field(default_factory=dict)
    """What came from elsewhere than the file, and from where."""

    def problem(self, path: Path, what: str, *, at_key: bool = False) -> Problem:
        """A problem at that path, or at the nearest place above it that the file has."""
        for depth in range(len(path) + 1):
            if path[:depth] in self.origins:
                return Problem(self.origins[path[:depth]], 0, 0, dotted(path), what)
        place = path
        marks = self.keys if at_key and path in self.keys else self.values
        while place and place not in marks:
            place, marks = place[:-1], self.values
        line, column = marks.get(place, (1, 1))
        return Problem(self.file, line, column, dotted(path), what)

    def overlaid(self, path: Path, value: Value, origin: str) -> Document:
        """The document with that value instead, which came from `origin`."""
        if () in self.spoiled:
            return self
        return replace(
            self,
            value=_placed(self.value, path, value),
            origins={**self.origins, path: origin},
            values={path[:depth]: (1, 1) for depth in range(len(path) + 1)} | self.values,
        )


def _placed(tree: Value, path: Path, value: Value) -> Value:
    if not path:
        return value
    if not isinstance(tree, dict):
        return {str(path[0]): _placed(None, path[1:], value)} if tree is None else tree
    inner = _placed(tree.get(str(path[0])), path[1:], value)
    return {**tree, str(path[0]): inner}


def dotted(path: Path) -> str:
    """A path as people write it: `volumes[0]`, `cpus.min`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if re.fullmatch(r"[\w-]{1,60}", part) else shown(part)
            text += f".{name}" if text else name
    return text


def load_document(
    text: str,
    file: str,
    *,
    size_max_bytes: int = SIZE_MAX_BYTES,
    nodes_max: int = NODES_MAX,
    meanings: Mapping[Path, Mapping[str, Scalar]] = MappingProxyType({}),
    flags: Collection[Path] | None = None,
) -> Document:
    """Read the text. Never raises: everything wrong is in `problems`, with its place.

    `meanings` are what unquoted words mean at some path, where that is not what they mean in YAML.
    `flags` are the paths of booleans; None: any may be one.
    """
    if len(text) > size_max_bytes or len(text.encode("utf-8", "replace")) > size_max_bytes:
        problems = (too_long(file, size_max_bytes),)
        return Document(file, problems=problems, spoiled=frozenset({()}))
    return _Reading(text, file, nodes_max, meanings, flags).document()


class _Refused(Exception):
    """The text cannot be read further."""

    def __init__(self, mark: Mark, what: str, path: Path = ()) -> None:
        self.mark, self.what, self.path = mark, what, path
        super().__init__(what)


class _Reading:
    """One pass over the parser's events, which come one by one: bombs end it early."""

    def __init__(
        self,
        text: str,
        file: str,
        nodes_max: int,
        meanings: Mapping[Path, Mapping[str, Scalar]],
        flags: Collection[Path] | None,
    ) -> None:
        self._text, self._file, self._nodes_max = text, file, nodes_max
        self._meanings, self._flags = meanings, flags
        self._keys: dict[Path, Mark] = {}
        self._values: dict[Path, Mark] = {}
        self._problems: list[Problem] = []
        self._spoiled: set[Path] = set()
        self._empty: set[Path] = set()
        self._nodes = 0

    def document(self) -> Document:
        value: Value = None
        try:
            value = self._whole(self._events())
        except _Refused as refused:
            self._problems.append(
                Problem(self._file, *refused.mark, dotted(refused.path), refused.what)
            )
            self._spoiled.add(())
        except yaml.YAMLError as error:
            self._problems.append(self._syntax(error))
            self._spoiled.add(())
        return Document(
            self._file, value, tuple(self._problems), self._keys, self._values,
            frozenset(self._spoiled), frozenset(self._empty),
        )  # fmt: skip

    def _events(self) -> Iterator[yaml.Event]:
        """The parser's events. PyYAML converts some escapes and version numbers unchecked, and then
        raises other errors than YAMLError: those are refused at the place that it had reached."""
        loader = yaml.SafeLoader(self._text)
        try:
            while loader.check_event():
                yield loader.get_event()  # type: ignore[no-untyped-call]
        except yaml.YAMLError:
            raise
        except Exception as error:
            what = f"cannot be read as YAML from here on ({unexpected(error)})"
            raise _Refused((loader.line + 1, loader.column + 1), what) from error
        finally:
            loader.dispose()

    def _whole(self, events: Iterator[yaml.Event]) -> Value:
        value: Value = None
        documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise _Refused(
                        _mark(event), "a second document begins here: a file may have only one"
                    )
                if event.version or event.tags:
                    raise _Refused(_mark(event), "YAML directives are not supported")
                value = self._node(next(events), events, ())
        if not documents:
            raise _Refused((1, 1), "the file is empty")
        return value

    def _node(self, event: yaml.Event, events: Iterator[yaml.Event], path: Path) -> Value:
        self._values[path] = _mark(event)
        self._nodes += 1
        if self._nodes > self._nodes_max:
            raise _Refused(_mark(event), f"more than {self._nodes_max} values in one file", path)
        if len(path) > DEPTH_MAX:
            raise _Refused(_mark(event), f"nested deeper than {DEPTH_MAX} levels")
        if isinstance(event, yaml.AliasEvent):
            name = str(event.anchor)[:ANCHOR_SHOWN]
            self._spoil(path, f"the alias *{name} is not supported: write the value out")
            return None
        if isinstance(event, yaml.NodeEvent) and event.anchor is not None:
            name = event.anchor[:ANCHOR_SHOWN]
            self._spoil(path, f"the anchor &{name} is not supported: leave it out")
        tag = getattr(event, "tag", None)
        if tag is not None:
            self._spoil(
                path, f"the tag {shown(tag)} is not supported: leave it out; put text in quotes"
            )
        if isinstance(event, yaml.ScalarEvent):
            if _SURROGATE.search(event.value):
                self._spoil(
                    path, "contains half of a character (a surrogate), which is not valid text"
                )
                return None
            return self._scalar(event, path)
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Value] = []
            while not isinstance(following := next(events), yaml.SequenceEndEvent):
                items.append(self._node(following, events, (*path, len(items))))
            return items
        return self._mapping(events, path)

    def _mapping(self, events: Iterator[yaml.Event], path: Path) -> Value:
        mapping: dict[str, Value] = {}
        while not isinstance(key_event := next(events), yaml.MappingEndEvent):
            if not isinstance(key_event, yaml.ScalarEvent):
                raise _Refused(_mark(key_event), "a key must be text", path)
            if key_event.value == "<<" and key_event.implicit[0]:
                what = "merge keys are not supported: write the keys out"
                self._spoil((*path, "<<"), what, key_event)
                self._skip(next(events), events)
                continue
            key = self._key(key_event, path)
            inner = (*path, key)
            if _SURROGATE.search(key):
                what = "a key contains half of a character (a surrogate), which is not valid text"
                raise _Refused(_mark(key_event), what, path)
            if key in mapping:
                first = self._keys[inner]
                self._spoil(inner, f"the key was already given in line {first[0]}", key_event)
                self._skip(next(events), events)
                continue
            self._keys[inner] = _mark(key_event)
            mapping[key] = self._node(next(events), events, inner)
        return mapping

    def _key(self, event: yaml.ScalarEvent, path: Path) -> str:
        key = event.value
        if event.implicit[0]:
            inner = (*path, key)
            try:
                meant = read_plain(key, is_flag=False)
            except ValueError as error:
                self._spoil(inner, str(error), event)
            else:
                if not isinstance(meant, str):
                    what = f"the key {shown(key)} is not text in YAML: put it in quotes"
                    self._spoil(inner, what, event)
        return key

    def _scalar(self, event: yaml.ScalarEvent, path: Path) -> Value:
        if not event.implicit[0]:
            return event.value
        if event.value in (known := self._meanings.get(path, {})):
            return known[event.value]
        try:
            is_flag = None if self._flags is None else path in self._flags
            meant = read_plain(event.value, is_flag=is_flag)
        except ValueError as error:
            self._spoil(path, str(error), event)
            return None
        if meant is None:
            self._empty.add(path)
        return meant

    def _skip(self, event: yaml.Event, events: Iterator[yaml.Event]) -> None:
        """Read past a value: nothing of it is kept, as its path is that of another one."""
        depth = 0
        while True:
            self._nodes += 1
            if self._nodes > self._nodes_max:
                raise _Refused(_mark(event), f"more than {self._nodes_max} values in one file")
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth == 0:
                return
            if depth > DEPTH_MAX:
                raise _Refused(_mark(event), f"nested deeper than {DEPTH_MAX} levels")
            event = next(events)

    def _spoil(self, path: Path, what: str, event: yaml.Event | None = None) -> None:
        line, column = self._values[path] if event is None else _mark(event)
        self._problems.append(Problem(self._file, line, column, dotted(path), what))
        self._spoiled.add(path)

    def _syntax(self, error: yaml.YAMLError) -> Problem:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        what = getattr(error, "problem", None) or "the text is not YAML from here on"
        if isinstance(error, yaml.reader.ReaderError):
            before = self._text[: error.position]
            line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
            what = f"the character {error.character!r} is not allowed"
            if isinstance(error.character, int):
                what = f"the character #x{error.character:04x} is not allowed"
            return Problem(self._file, line, column, "", what)
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        if "'\\t'" in what:
            what = "a tab is used for indentation: use spaces"
        return Problem(self._file, line, column, "", what)


def _mark(event: yaml.Event) -> Mark:
    mark = event.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)
