"""Finds policies by name, with their parameters.

A user's own policy is an entry point of the group `dlsched.policies`, or is named `module:Class`.
Wherever a policy is named, parameters may follow the name: `dqoes?gain=0.1&backoff=1`. The policies
of a cluster have a group of their own (`cluster.core.registry`), and the same rules.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from dlsched import policies
from dlsched.model.decision import PolicyTraits
from dlsched.model.errors import PolicyError
from dlsched.policies.gpu_node import per_device
from dlsched.policies.protocol import Policy

Fields = Mapping[str, dataclasses.Field[Any]]


@dataclass(frozen=True, slots=True)
class Group:
    """One kind of policies."""

    entry_points: str
    parts: tuple[str, ...]
    """Attributes that each of them has."""
    example: str
    """Where to read how one is written."""
    summary: Callable[[type[Any]], str]
    """One line about a policy."""
    more: tuple[EntryPoint, ...] = ()
    """Policies that are not installed for all."""


def first_line(policy: type[Any]) -> str:
    """The first line of its docstring."""
    return (policy.__doc__ or "").strip().partition("\n")[0]


def _node_summary(policy: type[Policy]) -> str:
    divides = "CPU and shared GPUs" if policy.traits.divides_gpus else "CPU alone"
    return f"{first_line(policy)} [{divides}]"


NODE = Group(
    entry_points="dlsched.policies",
    parts=("Parameters", "Memory", "traits", "decide"),
    example="examples/my_policy.py",
    summary=_node_summary,
)
"""What divides the resources of one node."""


def known(group: Group = NODE) -> dict[str, str]:
    """Every installed policy by name, with one line about it."""
    points = sorted(_points(group), key=lambda point: point.name)
    return {point.name: _summary(point, group) for point in points}


def load(spelled: str, options: Mapping[str, object] | None = None) -> Policy:
    """The policy of `spelled` that divides a node: `build` and `per_device`."""
    return per_device(cast("Policy", build(spelled, options)))


def build(spelled: str, options: Mapping[str, object] | None = None, group: Group = NODE) -> Any:
    """The policy of `spelled`, with its parameters and those of `options`.

    `spelled` is `NAME` or `NAME?key=value&key=value`; NAME may be `module:Class`. Options of
    another installed policy are checked and not used. Raises PolicyError in one line, which lists
    the known names or parameters, or gives the right type.
    """
    name, written = split(spelled)
    cls = _find(name, group)
    fields = _fields(cls)
    given: dict[str, object] = dict(options or {})
    for key in written:
        if key not in fields:
            raise PolicyError(f"policy {name}: no parameter {key!r}; {_parameters_text(fields)}")
        if key in given:
            raise PolicyError(f"policy {name}: {key} is given twice")
    for key in unused_options(spelled, given, group):
        _check_elsewhere(name, fields, key, given.pop(key), group)
    _check_types(name, fields, given)
    for key, text in written.items():
        try:
            given[key] = typed(text, fields[key].default)
        except ValueError as error:
            raise PolicyError(f"policy {name}: {key} is {text!r}, {error}") from error
    try:
        return cls(cls.Parameters(**given))
    except ValueError as error:
        raise PolicyError(f"policy {name}: {error}") from error


def unused_options(
    spelled: str, options: Mapping[str, object], group: Group = NODE
) -> tuple[str, ...]:
    fields = _fields(_find(split(spelled)[0], group))
    return tuple(key for key in options if key not in fields)


def _check_elsewhere(name: str, fields: Fields, key: str, value: object, group: Group) -> None:
    """Raise PolicyError unless the option fits a parameter of some installed policy."""
    problems: list[PolicyError] = []
    for point in _points(group):
        try:
            other = _find(point.name, group)
        except PolicyError:
            continue
        if key in (theirs := _fields(other)):
            try:
                _check_types(point.name, theirs, {key: value})
                other.Parameters(**{key: value})
            except ValueError as error:
                problems.append(PolicyError(f"policy {point.name}: {error}"))
            except PolicyError as error:
                problems.append(error)
            else:
                return
    if problems:
        raise problems[0]
    text = _parameters_text(fields)
    raise PolicyError(f"policy {name}: no policy has a parameter {key!r}; {text}")


def _check_types(name: str, fields: Fields, options: Mapping[str, object]) -> None:
    for key, value in options.items():
        expected = type(fields[key].default)
        fits = isinstance(value, expected) and isinstance(value, bool) == (expected is bool)
        if not (fits or (expected is float and type(value) is int)):
            raise PolicyError(f"policy {name}: {key} is {value!r}, must be {expected.__name__}")


def _fields(policy: type[Any]) -> Fields:
    return {field.name: field for field in dataclasses.fields(policy.Parameters)}


def _parameters_text(fields: Mapping[str, object]) -> str:
    return f"known are {', '.join(fields)}" if fields else "the policy has no parameters"


def _find(name: str, group: Group) -> type[Any]:
    point = next((p for p in _points(group) if p.name == name), None)
    try:
        if point is not None:
            found = point.load()
        elif ":" in name:
            module, _, attribute = name.partition(":")
            found = getattr(importlib.import_module(module), attribute)
        else:
            names = ", ".join(sorted(p.name for p in _points(group)))
            if not names:
                raise PolicyError(
                    f"policy {name!r}: no policies of {group.entry_points} are installed: install "
                    "dlsched again, or name module:Class of your own"
                )
            raise PolicyError(f"no policy {name!r}; known are {names}, or module:Class of your own")
    except (ImportError, AttributeError) as error:
        raise PolicyError(f"policy {name!r} cannot be loaded: {error}{_instead(error)}") from error
    missing = [part for part in group.parts if not hasattr(found, part)]
    if missing:
        raise PolicyError(
            f"policy {name!r} lacks {', '.join(missing)}, which every policy has: see "
            f"{group.example}"
        )
    if "traits" in group.parts and not isinstance(found.traits, PolicyTraits):
        raise PolicyError(
            f"policy {name!r}: traits is {found.traits!r}, must be PolicyTraits(...): see "
            f"{group.example}"
        )
    return cast("type[Any]", found)


def _points(group: Group) -> tuple[EntryPoint, ...]:
    return (*entry_points(group=group.entry_points), *group.more)


def _summary(point: EntryPoint, group: Group) -> str:
    try:
        return group.summary(point.load())
    except (ImportError, AttributeError) as error:
        return f"cannot be loaded: {error}{_instead(error)}"


def _instead(error: ImportError | AttributeError) -> str:
    """Where else to import from, if a module or name of dlsched is missing; else empty."""
    if not re.search(r"'dlsched[.']", str(error)):
        return ""
    return f"; import from dlsched.policies, which has {', '.join(policies.__all__)}"


def split(spelled: str) -> tuple[str, Mapping[str, str]]:
    """The name (or `module:Class`), and the values as text. Raises PolicyError for an item that is
    not `key=value`, and for a repeated key."""
    name, asks, query = spelled.partition("?")
    written: dict[str, str] = {}
    for item in query.split("&") if asks else ():
        key, equals, value = item.partition("=")
        if not (key and equals):
            raise PolicyError(
                f"policy {name}: {item!r} is not a parameter; write NAME?key=value&key=value"
            )
        if key in written:
            raise PolicyError(f"policy {name}: {key} is given twice")
        written[key] = value
    return name, written


def typed(text: str, default: object) -> object:
    """The value of this text, of the type of the parameter's default. Raises ValueError, which
    names the expected type."""
    if isinstance(default, bool):
        if text not in ("true", "false"):
            raise ValueError("must be true or false")
        return text == "true"
    if isinstance(default, int | float):
        kind = type(default)
        value: float = math.nan
        with suppress(ValueError):
            # An integer can be too large for a float.
            if math.isfinite(float(text)):
                value = kind(text)
        if "_" in text or math.isnan(value):
            raise ValueError(f"must be {'a whole' if kind is int else 'a'} number")
        return value
    return text
