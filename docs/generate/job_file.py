"""The keys of a job file, from the JSON Schema that `dlsched schema` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dlsched.config.job_schema import json_schema
from docs.generate.markdown import table


def markdown() -> str:
    """A table of every key, those inside of others with a dot."""
    schema = json_schema()
    required = set(schema["required"])
    rows = (
        (f"`{name}`", f"{description} Required." if name in required else description)
        for name, description in _keys("", schema, schema["$defs"])
    )
    return table(("key", "what it is"), rows)


def _keys(
    above: str, mapping: Mapping[str, Any], shared: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    for key, schema in mapping.get("properties", {}).items():
        name = f"{above}{key}"
        yield name, schema.get("description") or _values(schema)
        for inner in _inner(schema, shared):
            yield from _keys(f"{name}.", inner, shared)


def _inner(schema: Mapping[str, Any], shared: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for one in (schema, *schema.get("anyOf", ())):
        if "$ref" in one:
            yield shared[one["$ref"].rpartition("/")[2]]


def _values(schema: Mapping[str, Any]) -> str:
    """What may stand there, where the schema has no words for it."""
    if examples := schema.get("examples"):
        return f"Such as {', '.join(examples)}."
    if "minimum" in schema and "maximum" in schema:
        return f"{schema['minimum']} to {schema['maximum']}."
    return "See Compose."
