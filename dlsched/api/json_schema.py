"""The JSON Schema of the status. A module of its own, since pydantic takes long to import."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from dlsched.api import schema


def status_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of what `ps --json` and `why --json` print."""
    for kind in vars(schema).values():
        if is_dataclass(kind):
            described = ConfigDict(use_attribute_docstrings=True)
            setattr(kind, "__pydantic_config__", described)  # noqa: B010
    made = TypeAdapter(schema.Status | schema.Explanation).json_schema()
    for kind in (schema.Status, schema.Explanation):
        version = made["$defs"][kind.__name__]["properties"]["schema_version"]
        version["const"] = schema.SCHEMA_VERSION
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "dlsched status",
        **made,
    }
