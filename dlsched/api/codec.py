"""Parses an answer's JSON into the types of `schema`, and writes them as JSON. Unknown keys are
ignored, as a newer daemon may add some; a missing key is an error with its path."""

from __future__ import annotations

import dataclasses
import json
import math
import types
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import (
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from dlsched.api.schema import SCHEMA_VERSION, Value
from dlsched.model.actions import Action
from dlsched.model.errors import DlschedError
from dlsched.model.spec import ContainerSpec, JobSpec

T = TypeVar("T")
_Reader = Callable[[Any], Any]
_CARRIED = frozenset((str, int, bool, types.NoneType))
"""Types that JSON has. Checked first, since a status of 1,000 jobs has 60,000 values."""
_RESTART = "restart the daemon with this dlsched"
"""What helps with an older daemon, whose status has fewer keys of the same version."""
_ANY_VERSION = "(`--output json` prints any version)"


class SchemaMismatch(DlschedError):
    """The daemon's status schema is not the one that this program reads."""


class _Misfit(Exception):
    """A value of a wrong type, with the keys that lead to it, innermost first."""

    def __init__(self, what: str, *keys: str) -> None:
        self.what, self.keys = what, list(keys)
        super().__init__(what)


def _other(value: object, read: str, *keys: str) -> _Misfit:
    """Of another version."""
    what = f"has the value {value!r:.40}; this version of dlsched reads {read} there"
    return _Misfit(what, *keys)


def read(kind: type[T], answer: Mapping[str, Any]) -> T:
    """The parsed answer, which must have our `schema_version`. Raises SchemaMismatch."""
    found = answer.get("schema_version")
    if found != SCHEMA_VERSION:
        has = "no version" if found is None else f"version {found!r:.20}"
        newer = isinstance(found, int) and found > SCHEMA_VERSION
        raise SchemaMismatch(
            f"the daemon's status schema has {has}, this dlsched reads version {SCHEMA_VERSION}: "
            f"{'upgrade this dlsched' if newer else _RESTART} {_ANY_VERSION}"
        )
    try:
        result: T = _reader(cast(Any, kind))(answer)
    except _Misfit as misfit:
        place = ".".join(reversed(misfit.keys)).replace(".[", "[")
        line = f"the daemon's status: {place} {misfit.what}: {_RESTART} {_ANY_VERSION}"
        raise SchemaMismatch(line) from None
    return result


def read_part(kind: type[T], value: Mapping[str, Any]) -> T:
    """A parsed part of an answer, which has no version; raises ValueError."""
    try:
        result: T = _reader(cast(Any, kind))(value)
    except _Misfit as misfit:
        raise ValueError(f"{'.'.join(reversed(misfit.keys))} {misfit.what}") from None
    return result


def as_json(value: object) -> Any:
    """Any value of the schema or the model as JSON values; a number that is not finite becomes
    text. Secrets are left out."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Value):
        fields = vars(value).items()
        return {key: part if type(part) in _CARRIED else as_json(part) for key, part in fields}
    if isinstance(value, tuple | list | set | frozenset):
        return [part if type(part) in _CARRIED else as_json(part) for part in value]
    kind: Any = type(value)
    if (names := _names(kind)) is not None:
        value = _fields(value, names)
    if isinstance(value, Mapping):
        return {
            str(key): part if type(part) in _CARRIED else as_json(part)
            for key, part in value.items()
        }
    if isinstance(value, Enum):
        return value.value
    return value if isinstance(value, str | int | None) else str(value)


@cache
def _names(kind: Any) -> tuple[str, ...] | None:
    """The fields of a dataclass; None: it is none."""
    is_one = dataclasses.is_dataclass(kind)
    return tuple(field.name for field in dataclasses.fields(kind)) if is_one else None


def _fields(value: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """The fields of a value of the model. Environment values become `***`; digests, which could
    confirm a guess, are empty."""
    if isinstance(value, JobSpec):
        value = dataclasses.replace(value, digest="", container_digest="")
    elif isinstance(value, ContainerSpec):
        value = value.discreet
    fields = {name: getattr(value, name) for name in names}
    return {"kind": type(value).__name__.lower(), **fields} if isinstance(value, Action) else fields


def json_text(value: object) -> str:
    """The same as text, in ASCII: a file's name may have bytes that are not text."""
    return json.dumps(as_json(value), allow_nan=False, separators=(",", ":"))


@cache
def _reader(kind: Any) -> _Reader:
    if kind is Any:
        return lambda value: value
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _union(inner)
    if origin is Literal:
        return _plain(str)
    if origin is tuple:
        return _list(_reader(inner[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(_reader(inner[1]))
    if dataclasses.is_dataclass(kind):
        return _object(kind)
    return _plain(kind)


def _plain(kind: type) -> _Reader:
    taken = (int, float) if kind is float else (kind,)

    def read_plain(value: Any) -> Any:
        if isinstance(value, bool) != (kind is bool) or not isinstance(value, taken):
            raise _other(value, kind.__name__)
        return value

    return read_plain


def _union(kinds: tuple[Any, ...]) -> _Reader:
    """Null or one other type, or objects that differ by the value of `kind`."""
    others = [kind for kind in kinds if kind is not types.NoneType]
    if len(others) == 1:
        read_other = _reader(others[0])
    else:
        readers = {get_args(get_type_hints(kind)["kind"])[0]: _reader(kind) for kind in others}

        def read_other(value: Any) -> Any:
            tag = value.get("kind") if isinstance(value, Mapping) else None
            if tag not in readers:
                raise _other(tag, f"one of {', '.join(readers)}", "kind")
            return readers[tag](value)

    def read_union(value: Any) -> Any:
        return None if value is None and types.NoneType in kinds else read_other(value)

    return read_union


def _list(item: _Reader) -> _Reader:
    def read_list(value: Any) -> Any:
        if not isinstance(value, list):
            raise _other(value, "a list")
        return tuple([_at(item, one, f"[{index}]") for index, one in enumerate(value)])

    return read_list


def _mapping(item: _Reader) -> _Reader:
    def read_mapping(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _other(value, "an object")
        return {key: _at(item, one, key) for key, one in value.items()}

    return read_mapping


def _object(kind: Any) -> _Reader:
    readers = {name: _reader(hint) for name, hint in get_type_hints(kind).items()}

    def read_object(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise _other(value, "an object")
        for name in readers:
            if name not in value:
                raise _Misfit("is missing", name)
        return kind(**{name: _at(reader, value[name], name) for name, reader in readers.items()})

    return read_object


def _at(reader: _Reader, value: Any, key: str) -> Any:
    try:
        return reader(value)
    except _Misfit as misfit:
        misfit.keys.append(key)
        raise
