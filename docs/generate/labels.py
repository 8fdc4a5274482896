"""The labels by which a container asks to be adopted, from the code that reads them."""

from __future__ import annotations

from collections.abc import Iterator

from dlsched.config.job_schema import JobKeys
from dlsched.config.metrics.keys import MetricsKeys
from dlsched.runtime.docker.identity.adoption import AdoptionKeys
from dlsched.runtime.docker.identity.labels import DEFAULT_INSTANCE, ENABLE, INSTANCE, PREFIX
from dlsched.runtime.progress import sources
from docs.generate.markdown import table

_FIXED = {
    ENABLE: "`true`: dlsched adopts the container.",
    INSTANCE: f"Which agent adopts it, by its setting `instance` (default `{DEFAULT_INSTANCE}`).",
    sources.METRICS: "A preset, which says where its progress is read from; the labels below "
    "replace fields of it.",
}


def markdown() -> str:
    """A table of every label."""
    rows = (
        (f"`{label}`", description)
        for label, description in (*_FIXED.items(), *_metrics(), *_asked())
    )
    return table(("label", "what it says"), rows)


def _metrics() -> Iterator[tuple[str, str]]:
    fields = MetricsKeys.model_fields
    for name in sources.LABEL_FIELDS:
        yield f"{sources.METRICS}.{name}", fields[name].description or ""
    for name in sources.MAPPINGS:
        yield f"{sources.METRICS}.{name}.LABEL", fields[name].description or ""


def _asked() -> Iterator[tuple[str, str]]:
    schema = AdoptionKeys.model_json_schema()
    for key, value in schema["properties"].items():
        reference = next((one["$ref"] for one in value.get("anyOf", ()) if "$ref" in one), None)
        if reference is None:
            yield f"{PREFIX}{key}", JobKeys.model_fields[key].description or ""
            continue
        for name, inner in schema["$defs"][reference.rpartition("/")[2]]["properties"].items():
            yield f"{PREFIX}{key}.{name}", inner["description"]
