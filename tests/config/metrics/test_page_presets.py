"""Presets of serving stacks, on pages in their documented formats: what counts, in which unit."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlsched.config.metrics.keys import MetricsKeys
from dlsched.config.metrics.loading import package_presets
from dlsched.model.sources import MetricsEndpoint
from dlsched.runtime.progress.exposition import Pages
from dlsched.runtime.progress.scrape import named

FIXTURES = Path(__file__).parents[2] / "fixtures" / "pages"


def histogram(name: str, labels: str, requests: int, each: float) -> str:
    """As many requests, each of which took so long in the server's own unit."""
    comma = "," if labels else ""
    lines = [
        f"# TYPE {name} histogram",
        *(
            f'{name}_bucket{{{labels}{comma}le="{bound}"}} {requests if each <= bound else 0}'
            for bound in (each / 2, each, 2 * each)
        ),
        f'{name}_bucket{{{labels}{comma}le="+Inf"}} {requests}',
        f"{name}_sum{{{labels}}} {requests * each}",
        f"{name}_count{{{labels}}} {requests}",
    ]
    return "\n".join(lines).replace("{}", "") + "\n"


@pytest.mark.parametrize(
    ("preset", "page", "requests", "mean_s", "has_quantiles"),
    [
        ("vllm", histogram("vllm:e2e_request_latency_seconds", 'model_name="m"', 4, 2), 4, 2, True),
        (
            "vllm-ttft",
            histogram("vllm:time_to_first_token_seconds", 'model_name="m"', 4, 0.3),
            4, 0.3, True,
        ),
        (
            "vllm-itl",
            histogram("vllm:time_per_output_token_seconds", 'model_name="m"', 9, 0.02),
            9, 0.02, True,
        ),
        (
            "sglang",
            histogram("sglang:e2e_request_latency_seconds", 'model_name="m"', 4, 2),
            4, 2, True,
        ),
        (
            "sglang-ttft",
            histogram("sglang:time_to_first_token_seconds", 'model_name="m"', 4, 0.3),
            4, 0.3, True,
        ),
        (
            "triton",
            ('nv_inference_request_success{model="m",version="1"} 4\n'
            'nv_inference_request_duration_us{model="m",version="1"} 200000\n'),
            4, 0.05, False,
        ),
        (
            "torchserve",
            ('ts_inference_requests_total{model_name="m",model_version="default"} 4\n'
            'ts_inference_latency_microseconds{model_name="m",model_version="default"} 200000\n'),
            4, 0.05, False,
        ),
        (
            "tfserving",
            histogram(":tensorflow:serving:request_latency", 'model_name="m"', 4, 50_000),
            4, 0.05, True,
        ),
        ("tgi", histogram("tgi_request_duration", "", 4, 2), 4, 2, True),
        ("tei", histogram("te_request_duration", "", 4, 0.01), 4, 0.01, True),
        (
            "bentoml",
            histogram(
                "bentoml_service_request_duration_seconds",
                'endpoint="/predict",http_response_code="200",service_name="s"',
                4, 0.05,
            )
            + histogram(
                "bentoml_service_request_duration_seconds",
                'endpoint="/metrics",http_response_code="200",service_name="s"',
                99, 0.001,
            ),
            4, 0.05, True,
        ),
        (
            "ray-serve",
            histogram("ray_serve_http_request_latency_ms", 'application="a",route="/p"', 4, 50)
            + histogram(
                "ray_serve_http_request_latency_ms", 'application="",route="/-/healthz"', 99, 1
            ),
            4, 0.05, True,
        ),
        (
            "mlserver-rest",
            histogram(
                "rest_server_request_duration_seconds",
                'method="POST",path="/v2/models/{model_name}/infer",status_code="200"',
                4, 0.05,
            )
            + histogram(
                "rest_server_request_duration_seconds",
                'method="GET",path="/v2/health/ready",status_code="200"',
                99, 0.001,
            ),
            4, 0.05, True,
        ),
        (
            "mlserver",
            ('model_infer_request_duration_count{model="iris",version=""} 4\n'
            'model_infer_request_duration_sum{model="iris",version=""} 0.2\n'),
            4, 0.05, False,
        ),
        (
            "fastapi",
            histogram("http_request_duration_seconds", 'handler="/p",method="POST"', 4, 0.05)
            + histogram("http_request_duration_seconds", 'handler="none",method="GET"', 9, 0.001)
            + histogram("http_request_duration_seconds", 'handler="/metrics"', 99, 0.001),
            4, 0.05, True,
        ),
        (
            "starlette",
            histogram("starlette_request_duration_seconds", 'method="POST",path="/p"', 4, 0.05)
            + histogram("starlette_request_duration_seconds", 'path="/metrics"', 99, 0.001),
            4, 0.05, True,
        ),
        (
            "flask",
            histogram("flask_http_request_duration_seconds", 'method="POST",path="/p"', 4, 0.05)
            + histogram("flask_http_request_duration_seconds", 'path="/metrics"', 99, 0.001),
            4, 0.05, True,
        ),
    ],
)  # fmt: skip
def test_only_requests_count_and_in_their_unit(
    preset: str, page: str, requests: int, mean_s: float, has_quantiles: bool
) -> None:
    (source,) = package_presets().sources(MetricsKeys(base=preset))
    assert isinstance(source, MetricsEndpoint)
    delta = Pages(named(source, None), from_end=False).take(page.encode())
    assert (delta.problem, delta.bad_lines) == (None, 0)
    assert (delta.latency.count, delta.latency.mean_s) == (requests, pytest.approx(mean_s))
    assert bool(delta.latency.spans) == has_quantiles


@pytest.mark.parametrize(
    ("preset", "requests", "mean_s"),
    [
        ("fastapi", 5, 0.103),
        ("flask", 5, 0.105),
        ("starlette", 5, 0.105),
        ("bentoml", 38, 0.106),
        ("mlserver", 29, 0.102),
        ("mlserver-rest", 29, 0.103),
        ("ray-serve", 30, 0.195),
    ],
)
def test_what_the_programs_themselves_exported(preset: str, requests: int, mean_s: float) -> None:
    """After requests of about 0.1 s (of Ray Serve one of 2 s), health checks and scrapes."""
    page = (FIXTURES / f"{preset}.txt").read_bytes()
    (source,) = package_presets().sources(MetricsKeys(base=preset))
    assert isinstance(source, MetricsEndpoint)
    delta = Pages(named(source, None), from_end=False).take(page)
    assert (delta.problem, delta.bad_lines) == (None, 0)
    assert delta.latency is not None and delta.latency.count == requests
    assert delta.latency.mean_s == pytest.approx(mean_s, rel=0.01)
