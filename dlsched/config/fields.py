"""Kinds of value that job specs and settings share, and what is said when one does not fit.

Owns the annotations (reader and JSON Schema together) and the one translation of pydantic's
findings into problems with a place. It must not know any key's meaning.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import CoreSchema, core_schema

from dlsched.config.yaml import EXPONENT, Document, Path, WrittenFloat, WrittenInt
from dlsched.model.errors import FileError
from dlsched.model.units import SECONDS_MAX, parse_bytes, parse_seconds, shown

PROBLEMS_MAX = 50
"""As many as a person reads at once; a file of another kind would give thousands."""

T = TypeVar("T")


class Keys(BaseModel):
    """A mapping in a file: no other keys than these."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, eq=False)
class Reader:
    """Annotation of a field: how its value is read, and what editors know of it."""

    read: Callable[[object], object]
    schema: dict[str, Any]

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> CoreSchema:
        """Nothing but `read`: it alone decides and words what is wrong."""
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, _schema: object, _handler: object) -> dict[str, Any]:
        return dict(self.schema)


@dataclass(frozen=True, eq=False)
class Spelled:
    """Annotation of a field that may also be written in another form, which `read` spells out."""

    read: Callable[[object], object]
    other: dict[str, Any]
    """What editors know of the other form."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.read, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [self.other, handler(schema)]}


def listed(split: Callable[[str], list[str]]) -> Spelled:
    """A list that may also be written as one text; `split` makes the list of it."""

    def read(value: object) -> object:
        if isinstance(value, str):
            value = split(as_text(value))
        if value == []:
            raise ValueError("is empty: give at least one entry, or leave the key out")
        return value

    return Spelled(read, {"type": "string"})


def short(keys: tuple[str, ...], schema: dict[str, Any]) -> Spelled:
    """A mapping that may also be written as one value: that of each of `keys`."""
    return Spelled(
        lambda value: value if isinstance(value, Mapping) else dict.fromkeys(keys, value), schema
    )


def text(pattern: str = "", meant: str = "text", *, most: int = 4096) -> Reader:
    """Text that the pattern matches whole; a number stands for the text that it was written as."""
    compiled = re.compile(pattern or r".*", re.DOTALL | re.ASCII)

    def read(value: object) -> str:
        written = as_text(value)
        if len(written) > most:
            raise ValueError(f"{shown(written)} has {len(written)} characters, at most {most}")
        if not compiled.fullmatch(written):
            raise ValueError(f"{shown(written)} is not {meant}")
        return written

    schema: dict[str, Any] = {"type": ["string", "number"], "maxLength": most}
    if pattern:
        schema["pattern"] = f"^(?:{pattern})$"
    return Reader(read, schema)


def choice(*names: str) -> Reader:
    def read(value: object) -> str:
        if not isinstance(value, str) or value not in names:
            raise ValueError(f"{kind(value)} is not one of {', '.join(names)}")
        return value

    return Reader(read, {"type": "string", "enum": list(names)})


def number(low: float, high: float, *, above: bool = False) -> Reader:
    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{kind(value)} is not a number{_hint(value)}")
        if not low <= value <= high or (above and value == low):
            bound = f"above {low:g}, at most {high:g}" if above else f"{low:g} to {high:g}"
            raise ValueError(f"{shown(value)} is out of bounds: {bound}")
        return float(value)

    least = "exclusiveMinimum" if above else "minimum"
    return Reader(read, {"type": "number", least: low, "maximum": high})


def whole(low: int, high: int) -> Reader:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{kind(value)} is not a whole number{_hint(value)}")
        if not low <= value <= high:
            raise ValueError(f"{shown(value)} is out of bounds: {low} to {high}")
        return int(value)

    return Reader(read, {"type": "integer", "minimum": low, "maximum": high})


def seconds(low: float, high: float = SECONDS_MAX) -> Reader:
    return Reader(
        lambda value: parse_seconds(as_text(value), low=low, high=high),
        {"type": ["string", "number"], "examples": ["50ms", "30s", "1m30s", "2h"]},
    )


def size(low: int) -> Reader:
    return Reader(
        lambda value: parse_bytes(as_text(value), low=low),
        {"type": ["string", "integer"], "examples": ["512MiB", "1GiB"]},
    )


def flag() -> Reader:
    def read(value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError(f"{kind(value)} is neither true nor false")
        return value

    return Reader(read, {"type": "boolean"})


def as_text(value: object) -> str:
    """Text, or a number as it was written; ValueError for anything else."""
    if isinstance(value, WrittenInt | WrittenFloat):
        return value.text
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError("contains a zero byte, which is not valid text")
        return value
    if isinstance(value, bool):
        raise ValueError(f"{str(value).lower()} is a boolean here: put the text in quotes")
    if isinstance(value, int | float):
        return str(value)
    raise ValueError(f"{kind(value)} is given where text is expected")


def kind(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a mapping"
    return "a list" if isinstance(value, list) else shown(value)


def _hint(value: object) -> str:
    if isinstance(value, str) and EXPONENT.fullmatch(value):
        return ": some YAML parsers read a number with exponent as text; write it without exponent"
    if isinstance(value, str) and re.fullmatch(r"[-+]?(0|[1-9][0-9]{0,15})(\.[0-9]+)?", value):
        return ": in quotes a number is text; leave the quotes out"
    return ""


# ------------------------------------------------------------------ from findings to problems


def validate(
    document: Document,
    adapter: TypeAdapter[T],
    known: Callable[[Path], Iterable[str]],
    wrong: type[FileError],
    *,
    null_ok: bool = True,
    elsewhere: Mapping[str, str] = MappingProxyType({}),
) -> T:
    """The document as that type; raises `wrong` with every problem, in the order of the file.

    Past `PROBLEMS_MAX` it only says that there is more.

    `known` names the keys that may stand in the mapping at a path, to suggest one; `elsewhere`
    what to write instead of keys at the top that other programs know. Unless `null_ok`, a key
    without a value is a problem too.
    """
    problems = list(document.problems)
    spoiled = set(document.spoiled)
    if not null_ok:
        for place in document.empty - spoiled:
            problems.append(document.problem(place, "has no value: give one, or leave the key out"))
            spoiled.add(place)
    parsed: T | None = None
    listed_keys: set[str] = set()
    if () not in spoiled:
        try:
            parsed = adapter.validate_python(document.value)
        except ValidationError as error:
            for finding in error.errors(include_url=False)[: 2 * PROBLEMS_MAX]:
                place = _place(document, finding["loc"], finding["type"])
                if any(place[: len(bad)] == bad for bad in spoiled):
                    continue
                unknown = finding["type"] in ("extra_forbidden", "unexpected_keyword_argument")
                at_key = unknown or finding["loc"][-1:] == ("[key]",)
                what = _said(cast(Mapping[str, Any], finding), place, known, elsewhere, listed_keys)
                problems.append(document.problem(place, what, at_key=at_key))
    problems.sort(key=lambda problem: (problem.line, problem.column))
    if problems or parsed is None:
        shown_problems = tuple(dict.fromkeys(problems))
        if len(shown_problems) > PROBLEMS_MAX:
            rest = document.problem((), "there are more problems than are listed")
            shown_problems = (*shown_problems[:PROBLEMS_MAX], rest)
        raise wrong(shown_problems)
    return parsed


def _place(document: Document, loc: Path, finding: str) -> Path:
    """pydantic's path without what it adds (tags of unions), as far as the file has it."""
    place: Path = ()
    for index, part in enumerate(loc):
        longer = (*place, part)
        missing = finding.startswith("missing") and index == len(loc) - 1
        if longer in document.values or longer in document.keys or missing:
            place = longer
    return place


def _said(
    finding: Mapping[str, Any],
    place: Path,
    known: Callable[[Path], Iterable[str]],
    elsewhere: Mapping[str, str],
    listed_keys: set[str],
) -> str:
    what, value = finding["type"], finding["input"]
    if what == "value_error":
        return str(finding["ctx"]["error"])
    if what.startswith("missing"):
        return "is required, but missing"
    if what in ("extra_forbidden", "unexpected_keyword_argument"):
        if len(place) == 1 and (instead := elsewhere.get(str(place[0]))) is not None:
            return f"unknown key; {instead}"
        keys = sorted(known(place[:-1]))
        if near := difflib.get_close_matches(str(place[-1]), keys, n=1):
            return f"unknown key; did you mean {near[0]}?"
        if (names := ", ".join(keys)) in listed_keys:  # once in a file
            return "unknown key"
        listed_keys.add(names)
        return f"unknown key; known here: {names}"
    if what in ("model_type", "dict_type", "dataclass_type", "model_attributes_type"):
        return f"{kind(value)} is given where a mapping is expected"
    if what in ("list_type", "tuple_type"):
        return f"{kind(value)} is given where a list is expected"
    if what in ("too_long", "too_short"):
        bound = finding["ctx"].get("max_length", finding["ctx"].get("min_length"))
        return f"has {finding['ctx']['actual_length']} entries, the limit is {bound}"
    return f"{kind(value)}: {finding['msg']}"
