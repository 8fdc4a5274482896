"""`adopt`, `drop` and `export` against a daemon that only notes what is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from dlsched.cli import main
from dlsched.cli.adopting import _labels, job_keys
from dlsched.config.job import parse_spec
from dlsched.model.sources import MetricsEndpoint
from dlsched.model.spec import LatencyTarget
from tests.cli.conftest import Program
from tests.status_source import FakeSource


def asked(**given: object) -> dict[str, str]:
    names = [
        "latency",
        "quantile",
        "max_failed",
        "reach",
        "good_enough",
        "deadline",
        "minimum",
        "maximum",
        "weight",
    ]
    return _labels(metrics=given.pop("metrics", ()), **{**dict.fromkeys(names), **given})  # type: ignore[arg-type]


def test_options_become_labels() -> None:
    given = {"latency": "300ms", "quantile": "p95", "max_failed": "0.05", "weight": "2"}
    assert asked(**given, metrics=("vllm", "port=9000")) == {
        "dlsched.target.latency": "300ms",
        "dlsched.target.max_failed": "0.05",
        "dlsched.target.quantile": "p95",
        "dlsched.weight": "2",
        "dlsched.metrics": "vllm",
        "dlsched.metrics.port": "9000",
    }


@pytest.mark.parametrize(
    ("reach", "good_enough", "deliver"),
    [
        ("accuracy=0.9", None, "0.891"),
        ("val_loss=2", None, "2.02"),
        ("score=10", "8", "8"),
        ("score=10", "score=8", "8"),
    ],
)
def test_good_enough_is_nearly_what_is_to_be_reached(
    reach: str, good_enough: str | None, deliver: str
) -> None:
    assert asked(reach=reach, good_enough=good_enough)["dlsched.target.deliver"] == deliver


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ((), "what for? Give --latency, --reach, --minimum, --maximum or --weight"),
        (("--metrics", "vllm", "--metrics", "fastapi"), "vllm is given already"),
        (("--reach", "map"), "--reach 'map': write METRIC=VALUE"),
        (("--reach", "map=high"), "'high' is no number"),
        (("--reach", "score=3"), "give --good-enough VALUE too"),
        (("--good-enough", "3"), "--good-enough needs --reach METRIC=VALUE"),
    ],
)
def test_wrong_options_are_one_line(tmp_path: Path, words: tuple[str, ...], line: str) -> None:
    done = CliRunner().invoke(main, ["adopt", "web", "--run-dir", str(tmp_path), *words])
    assert done.exit_code == 2
    assert line in done.output.splitlines()[-1]


def test_labels_become_a_job_file() -> None:
    labels = asked(
        latency="300ms", minimum="0.5", metrics=("fastapi", "port=8000", "where.handler=/predict")
    )
    keys = {"name": "asr", "image": "acme/asr:7", **job_keys(labels)}
    spec = parse_spec(yaml.safe_dump(keys), "asr.yaml")
    assert (spec.target, spec.bounds.floor_cores) == (LatencyTarget(0.3), 0.5)
    (source,) = spec.sources
    assert isinstance(source, MetricsEndpoint)
    assert source.ports == (8000,)


@pytest.mark.timed
def test_a_refused_adoption_is_one_line_and_ends_with_1(
    daemon: FakeSource, program: Program
) -> None:
    daemon.refuses = "queued: it does not run (exited)"
    done = program("adopt", "queued", "--weight", "2")
    assert (done.exit_code, done.output) == (1, f"error: {daemon.refuses}\n")
