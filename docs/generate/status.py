"""The JSON that `ps`, `why`, `report`, the API and its stream answer, from its JSON Schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dlsched.api.json_schema import status_schema
from docs.generate.markdown import table

_ROOTS = (
    "Status", "Explanation", "CycleEvents", "CyclePoint", "History", "UsageStatus", "Review",
    "ClusterAnswer",
)  # fmt: skip
"""What is printed or sent; the other types are within these."""


def markdown() -> str:
    """A section a type: what it is, and a table of its keys."""
    shared = status_schema()["$defs"]
    order = [*_ROOTS, *sorted(set(shared) - set(_ROOTS))]
    return "\n".join(line for name in order for line in _section(name, shared[name]))


def _section(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"(status-{name.lower()})=", f"## {name}", "", schema["description"], "")
    rows = (
        (f"`{key}`", _kind(value), value.get("description", ""))
        for key, value in schema["properties"].items()
    )
    yield from (table(("key", "value", "what it is"), rows), "")


def _kind(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#status-{name.lower()})"
    if "const" in schema:
        return f"`{schema['const']}`"
    if "anyOf" in schema:
        return " or ".join(map(_kind, schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'])}"
    if schema.get("type") == "object":
        inner = schema.get("additionalProperties")
        return f"mapping to {_kind(inner)}" if isinstance(inner, Mapping) and inner else "mapping"
    return str(schema.get("type", "anything"))
