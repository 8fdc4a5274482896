"""A service's forecast beside what is measured of it now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.estimate.sketch import from_latencies, measured_s
from dlsched.model.forecast import ForecastKind
from dlsched.model.spec import LatencyTarget
from tests.policies.adaptive.services.test_divide import (
    BAND,
    SLO,
    known,
    learned_of,
    place,
    seen,
    service,
)


@pytest.mark.parametrize("requests", [1, 7, 50])
@pytest.mark.parametrize("quantile", [None, 0.95])
@pytest.mark.parametrize("where", ["window", "recent"])
@pytest.mark.parametrize("now_s", [0.0999, 0.0751, 0.05001, 0.049, 0.001])
def test_the_best_is_never_worse_than_what_is_measured_now(
    now_s: float, where: str, quantile: float | None, requests: int
) -> None:
    """A busy host's waits are in the model: it expects 400 ms of a service that needs 75 ms."""
    job = service("a", cores=None)
    spec = replace(job.spec, target=LatencyTarget(0.05, quantile))
    window = from_latencies([now_s] * requests)
    progress = replace(job.progress, recent=from_latencies([0.9] * requests))
    progress = replace(progress, **{where: window})
    job = replace(job, spec=spec, progress=progress)
    memory = replace(learned_of(job, known("a", fixed_s=0.4)), quantile=quantile, target_s=0.05)
    got = place([job], seen([job]), [memory], 2.0, SLO)
    (outlook,) = got.outlooks["a"]
    shown_s = measured_s(window, quantile)
    if shown_s <= 0.05:
        assert (outlook.kind, outlook.best) == (ForecastKind.UNKNOWN, None)
        assert "though the policy's model of the job says that it cannot be" in outlook.why
        return
    assert outlook.kind is ForecastKind.IMPOSSIBLE
    assert 0.99 * shown_s <= outlook.best <= shown_s
    assert "at best, as measured now, and more CPU is not expected to help" in outlook.why


def test_what_the_model_expects_holds_where_worse_is_measured() -> None:
    job = service("a", cores=None)
    job = replace(job, progress=replace(job.progress, window=from_latencies([0.9] * 50)))
    memory = learned_of(job, known("a", fixed_s=0.4))
    (outlook,) = place([job], seen([job]), [memory], 2.0, SLO).outlooks["a"]
    assert outlook.best is not None and 0.4 <= outlook.best < 0.9
    assert outlook.why.endswith("at best, with all the CPU that the job can use")


def kind_while(waiting_s: float, usual_s: float) -> ForecastKind:
    """What is forecast while its oldest request waits so long, and none was answered lately."""
    job = service("a", cores=None, target_s=usual_s)
    memory = learned_of(job, known("a", target_s=usual_s))
    job = replace(job, progress=replace(job.progress, oldest_s=waiting_s))
    return place([job], seen([job]), [memory], 2.0, SLO).outlooks["a"][0].kind


def test_a_service_that_pauses_while_it_moves_does_not_hang() -> None:
    assert kind_while(2.0, usual_s=0.05) is ForecastKind.MET
    assert kind_while(5.0, usual_s=0.05) is ForecastKind.UNKNOWN


def test_a_request_that_takes_some_times_as_long_as_usual_does_not_hang() -> None:
    assert kind_while(6.0, usual_s=1.0) is ForecastKind.MET
    assert kind_while(15.0, usual_s=1.0) is ForecastKind.UNKNOWN


def test_an_expectation_runs_down_and_is_withdrawn_if_it_does_not_come_true() -> None:
    job = service("a", count=50, mean_s=0.07, cores=0.404, changed_at_s=100.0)
    memory = learned_of(job, known("a"))
    found = []
    for after_s in (1.0, 2.0, 5.0, 60.0, 600.0):
        later = seen([job], now_s=100.0 + after_s)
        (outlook,) = place([job], later, [memory], 2.0, BAND).outlooks["a"]
        found.append((outlook.kind, outlook.at_s))
    at_s = found[0][1]
    assert at_s is not None and at_s < 160.0
    assert found[:3] == [(ForecastKind.EXPECTED, at_s)] * 3, "the time stays, so it runs down"
    assert found[3:] == [(ForecastKind.UNKNOWN, None)] * 2
    assert outlook.why.endswith("the target was expected to be met by now, and is not")
