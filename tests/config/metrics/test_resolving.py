"""How keys and the presets that they build on become sources, and what they cannot mean."""

from __future__ import annotations

import pytest

from dlsched.config.job import parse_spec
from dlsched.config.metrics.keys import MetricsKeys
from dlsched.config.metrics.loading import package_presets
from dlsched.config.metrics.resolving import Contradiction
from dlsched.model.errors import SpecError
from dlsched.model.sources import LabelFilter, Metric, MetricsEndpoint, ProgressSource


def sources(**keys: object) -> tuple[ProgressSource, ...]:
    return package_presets().sources(MetricsKeys.model_validate(keys))


def test_filters_of_base_alternative_and_own_keys_add_up() -> None:
    alternatives = [{"name": "a", "where": {"path": "/v2/models/.*/infer"}}, {"name": "b"}]
    (source,) = sources(port=1, first_of=alternatives, where={"model": "iris"})
    first, second = source.metrics
    assert first.where == (
        LabelFilter("model", "iris"),
        LabelFilter("path", "/v2/models/.*/infer"),
    )
    assert second.where == (LabelFilter("model", "iris"),)


def test_another_metric_takes_the_place_of_all_alternatives_and_their_unit() -> None:
    (source,) = sources(base="triton", name="nv_other_seconds")
    assert [(one.name, one.total, one.unit_s) for one in source.metrics] == [
        ("nv_other_seconds", None, None)
    ]
    assert source.metrics[0].errors == "nv_inference_request_failure"


@pytest.mark.parametrize("where", [
    {"base": "nanogpt"}, {"path": "/m.jsonl"}, {"pattern": "loss (?P<loss>[0-9.]+)"},
])  # fmt: skip
def test_a_unit_beside_what_is_not_timed_changes_nothing(where: dict[str, str]) -> None:
    assert sources(**where, unit="ms") == sources(**where)


def test_several_ports_and_names_as_text_or_list() -> None:
    by_text = sources(port="80, 9000", name="a,b")
    assert by_text == sources(port=[80, 9000], name=["a", "b"])
    assert by_text == (MetricsEndpoint((80, 9000), metrics=(Metric(name="a"), Metric(name="b"))),)


def test_what_a_log_line_means_is_kept_for_its_reader() -> None:
    (timm,) = sources(base="timm")
    assert (timm.metric, timm.when, timm.step) == ("acc1", ("at", "of"), "evaluations")


def test_a_proxy_must_be_named() -> None:
    with pytest.raises(Contradiction, match="name of the proxy's container"):
        sources(base="traefik")
    (source,) = sources(base="traefik", via="edge")
    assert isinstance(source, MetricsEndpoint) and source.via == "edge"


@pytest.mark.parametrize(("quantile", "fits"), [("mean", True), ("p95", False)])
def test_a_percentile_of_two_counters_is_refused(quantile: str, fits: bool) -> None:
    text = (
        f"name: ab\nimage: a\ntarget: {{latency: 1s, quantile: {quantile}}}\nmetrics: torchserve\n"
    )
    if fits:
        assert parse_spec(text, "job.yaml").sources
        return
    with pytest.raises(SpecError) as raised:
        parse_spec(text, "job.yaml")
    assert str(raised.value) == (
        "job.yaml:3:33: target.quantile: p95 cannot be read: a ratio of two counters has only the "
        "mean, so set quantile: mean"
    )
