"""`metrics` in a job file: a preset's name, or a mapping."""

from __future__ import annotations

import pytest

from dlsched.config.job import parse_spec
from dlsched.model.errors import SpecError
from dlsched.model.sources import LogPattern, MetricsEndpoint, MetricsFile, ProgressSource

LEAST = "name: ab\nimage: a\n"


def sources(metrics: str) -> tuple[ProgressSource, ...]:
    return parse_spec(f"{LEAST}metrics: {metrics}\n", "job.yaml").sources


def test_a_presets_name_alone_and_as_the_base_of_a_mapping() -> None:
    (named,) = sources("vllm")
    assert isinstance(named, MetricsEndpoint) and named.ports == (8000,)
    (moved,) = sources("{base: vllm, port: 9000}")
    assert (moved.ports, moved.metrics) == ((9000,), named.metrics)


def test_a_pattern_and_a_file_without_a_preset() -> None:
    assert sources("{path: /m.jsonl, pattern: '(?P<step>.)|(?P<loss>.)', step: carried}") == (
        MetricsFile("/m.jsonl"),
        LogPattern("(?P<step>.)|(?P<loss>.)", step="carried"),
    )


@pytest.mark.parametrize(
    ("metrics", "line"),
    [
        ("vlm", "job.yaml:3:10: metrics: 'vlm' is not a preset; did you mean vllm?"),
        ("{port: 99999}", "job.yaml:3:17: metrics.port: '99999' is not a port, 1 to 65535"),
        ("{port: 1, total: x}", "job.yaml:3:27: metrics.total: needs count too"),
        ("{prot: 1}", "job.yaml:3:11: metrics.prot: unknown key; did you mean port?"),
        ("{base: traefik}", "metrics.via: metrics are read at a proxy: set `via` to the name of"),
    ],
)
def test_what_is_wrong_is_a_line_with_its_place(metrics: str, line: str) -> None:
    with pytest.raises(SpecError) as raised:
        sources(metrics)
    assert line in str(raised.value)


def test_where_progress_is_read_makes_no_other_job() -> None:
    with_it = parse_spec(f"{LEAST}metrics: vllm\n", "job.yaml")
    without = parse_spec(LEAST, "job.yaml")
    assert (with_it.digest, with_it.container_digest) == (without.digest, without.container_digest)
