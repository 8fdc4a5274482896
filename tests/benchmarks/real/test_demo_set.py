"""The demo set: drawn by the seed alone, and valid as job files."""

from __future__ import annotations

import pytest

from benchmarks.real.comparison import MODELS, SPREAD, draw, spec_text
from dlsched.config.job import parse_spec
from dlsched.model.spec import LatencyTarget


@pytest.mark.parametrize("seed", range(20))
def test_parts_sum_to_one_and_span_at_most_a_factor_of_ten(seed):
    jobs = draw(seed)
    parts = [job.part for job in jobs]
    assert sum(parts) == pytest.approx(1.0)
    assert max(parts) / min(parts) <= SPREAD
    assert {job.model for job in jobs} == set(MODELS)
    assert draw(seed) == jobs


def test_the_job_files_are_valid():
    for job in draw(3):
        spec = parse_spec(spec_text(job, 0.0421), "demo.yaml")
        assert spec.target == LatencyTarget(0.0421)
        assert spec.name == job.name
