"""The labels by which a container asks to be adopted, from the code that reads them."""

from __future__ import annotations

from collections.abc import Iterator

from dlsched.runtime.docker.identity.adoption import AdoptionKeys
from dlsched.runtime.docker.identity.labels import DEFAULT_INSTANCE, ENABLE, INSTANCE, PREFIX
from dlsched.runtime.progress import sources
from docs.generate.markdown import table

_FIXED = {
    ENABLE: "`true`: dlsched adopts the container.",
    INSTANCE: f"Which agent adopts it, by its setting `instance` (default `{DEFAULT_INSTANCE}`).",
    sources.FILE: "A file in the container in the format of the sidecar protocol.",
    sources.PORT: "A Prometheus endpoint on the container's own address: its port.",
    sources.HTTP_PATH: f"Its path (default `{sources.DEFAULT_HTTP_PATH}`).",
    sources.NAME: (
        "The metric to read. vLLM and Triton need none. A quantile is as exact as the histogram's "
        "buckets: have some around the target."
    ),
    sources.PATTERN: (
        "An RE2 expression for the lines that the container prints, with groups named `latency_s`, "
        "`latency_ms`, `latency_us`, `latency` (with its unit, as in `1m2s`), `step` or as any "
        "metric."
    ),
    sources.STEP: (
        "Where the step stands if not on the metric's own line: `carried` (above it), `follows` "
        "(below it), `evaluations` (nowhere: evaluations are counted)."
    ),
    sources.WHEN: "Which matching lines count: two groups that must be equal, as in `at == of`.",
}


def markdown() -> str:
    """A table of every label."""
    rows = ((f"`{label}`", description) for label, description in (*_FIXED.items(), *_asked()))
    return table(("label", "what it says"), rows)


def _asked() -> Iterator[tuple[str, str]]:
    schema = AdoptionKeys.model_json_schema()
    for key, value in schema["properties"].items():
        reference = next((one["$ref"] for one in value.get("anyOf", ()) if "$ref" in one), None)
        if reference is None:
            yield f"{PREFIX}{key}", "Beside other jobs: above 0, at most 1000 (default 1)."
            continue
        for name, inner in schema["$defs"][reference.rpartition("/")[2]]["properties"].items():
            yield f"{PREFIX}{key}.{name}", inner["description"]
