"""The JSON Schema of the status. A module of its own, since pydantic takes long to import."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any, get_args

from pydantic import ConfigDict, TypeAdapter

from dlsched.api import (
    cluster_schema,
    history_schema,
    review_schema,
    schema,
    stream_schema,
    usage_schema,
    why_schema,
)


def status_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of what `ps`, `why`, `usage` and `report` print as JSON, of the
    stream, of the history and of a cluster."""
    modules = (
        schema,
        stream_schema,
        why_schema,
        history_schema,
        usage_schema,
        review_schema,
        cluster_schema,
    )
    for kind in (kind for module in modules for kind in vars(module).values()):
        if is_dataclass(kind):
            # Rows of the journal have defaults, but every key is sent.
            described = ConfigDict(
                use_attribute_docstrings=True, json_schema_serialization_defaults_required=True
            )
            setattr(kind, "__pydantic_config__", described)  # noqa: B010
    roots = (
        schema.Status
        | why_schema.Explanation
        | stream_schema.CycleEvents
        | stream_schema.CyclePoint
        | history_schema.History
        | usage_schema.UsageStatus
        | review_schema.Review
        | cluster_schema.ClusterAnswer
    )
    made = TypeAdapter(roots).json_schema(mode="serialization")
    for kind in get_args(roots):
        version = made["$defs"][kind.__name__]["properties"]["schema_version"]
        version["const"] = schema.SCHEMA_VERSION
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "dlsched status",
        **made,
    }
