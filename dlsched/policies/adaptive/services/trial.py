"""A trial of more CPU for one service: whether it helped, and the revert where it did not."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dlsched.estimate.latency.law import LatencyModel
from dlsched.estimate.latency.observed import ServiceSample
from dlsched.estimate.tuning import CLEARLY, FEW_REQUESTS, MOSTLY, SIGMAS, THROTTLED_RATIO
from dlsched.model.state import JobView
from dlsched.policies.adaptive.parameters import AdaptiveParameters


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial of more CPU: mean latency before it, and the one expected."""

    from_cores: float
    before_s: float
    expected_s: float
    loads: int
    """`LatencyModel.loads` at its start: after a change of load the trial is void."""
    requests: int = 0
    sum_s: float = 0.0
    """Sum of the latencies of these requests since the trial began."""


def begun_trial(
    model: LatencyModel | None, job: JobView, ceiling_cores: float | None
) -> Trial | None:
    """A trial of that ceiling, if the present one binds and the new one is clearly higher."""
    actual = job.actual.cpu_cores
    if model is None or actual is None or not (job.usage.throttled_ratio or 0.0) > THROTTLED_RATIO:
        return None
    if ceiling_cores is not None and ceiling_cores <= CLEARLY * actual:
        return None
    before_s, expected_s = model.mean_s(actual), model.mean_s(ceiling_cores)
    if before_s is None or expected_s is None or expected_s * CLEARLY >= before_s:
        return None
    return Trial(actual, before_s, expected_s, model.loads)


def tried(
    trial: Trial,
    model: LatencyModel,
    sample: ServiceSample,
    useless_until_s: float,
    now_s: float,
    rule: AdaptiveParameters,
) -> tuple[Trial | None, LatencyModel, float]:
    """The trial after these requests (None: it is over), the model, and `useless_until_s`.

    It fails if the mean latency fell by less than half of the expected logarithm, over enough
    requests to tell that from noise.
    """
    if model.loads != trial.loads:
        return None, model, useless_until_s
    requests = trial.requests + sample.sketch.count
    sum_s = trial.sum_s + sample.sketch.sum_s / model.claim_ratio
    expected = math.log(trial.before_s / trial.expected_s)
    needed = (SIGMAS * model.cv / expected) ** 2
    if requests < max(needed, FEW_REQUESTS):
        return replace(trial, requests=requests, sum_s=sum_s), model, useless_until_s
    if sum_s <= 0.0 or math.log(trial.before_s * requests / sum_s) >= MOSTLY * expected:
        return None, model, useless_until_s
    # It does not wait for CPU: its parallelism is at most what it had before the trial.
    fixed_s = sum_s / requests - model.law_core_s / trial.from_cores
    model = replace(model, widest_cores=trial.from_cores, fixed_s=fixed_s)
    return None, model, now_s + rule.retry_s
