"""Parses an answer's JSON into the types of `schema`, and writes them as JSON. Unknown keys are
ignored, as a newer daemon may add some; a missing key is an error with its path."""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from dlsched.api.schema import SCHEMA_VERSION
from dlsched.model.errors import DlschedError

T = TypeVar("T")
_CARRIED = frozenset((str, int, bool, types.NoneType))
"""Types that JSON has. Checked first, since a status of 1,000 jobs has 60,000 values."""


class SchemaMismatch(DlschedError):
    """The daemon's status schema is not the one that this program reads."""


def read(kind: type[T], answer: Mapping[str, Any]) -> T:
    """The parsed answer, which must have our `schema_version`. Raises SchemaMismatch."""
    found = answer.get("schema_version")
    if found != SCHEMA_VERSION:
        has = "no version" if found is None else f"version {found!r:.20}"
        newer = isinstance(found, int) and found > SCHEMA_VERSION
        remedy = "upgrade this dlsched" if newer else "restart the daemon with this dlsched"
        raise SchemaMismatch(
            f"the daemon's status schema has {has}, this dlsched reads version {SCHEMA_VERSION}: "
            f"{remedy} (`--output json` prints any version)"
        )
    try:
        return read_part(kind, answer)
    except ValueError as error:
        raise SchemaMismatch(f"the daemon's status: {error}") from None


def read_part(kind: type[T], value: Mapping[str, Any]) -> T:
    """A parsed part of an answer, which has no version; raises ValueError, in one line."""
    try:
        result: T = _adapter(cast("Any", kind)).validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{place}: {first['msg']}" if place else first["msg"]) from None
    return result


def as_json(value: object) -> Any:
    """A value of the schema as JSON values; a number that is not finite becomes text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, tuple | list):
        return [part if type(part) in _CARRIED else as_json(part) for part in value]
    if dataclasses.is_dataclass(value):
        value = vars(value)
    if isinstance(value, Mapping):
        return {
            key: part if type(part) in _CARRIED else as_json(part) for key, part in value.items()
        }
    return value


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
