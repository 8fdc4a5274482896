"""Updates a service's latency model (`law`) by each report."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from dlsched.estimate.latency.lag import EDGE, Lag
from dlsched.estimate.latency.law import (
    LEAST_CORE_S,
    LITTLE_OFF,
    LOG_GROWTH,
    NO_LAG,
    REMEMBERED,
    TAIL_PRIOR,
    Clients,
    LatencyModel,
    ServiceSample,
    effective_cores,
    remembered_requests,
    tail_step,
    wait_and_width,
)
from dlsched.estimate.sketch import cv
from dlsched.estimate.tuning import CLEARLY, FEW_REQUESTS, FINE, LITTLE, MOSTLY, SAMPLE_WEIGHT
from dlsched.model.facts import LatencySketch

_ALLOWANCE, _ALARM_BOUND = 0.6, 4.5
"""In standard errors: about one false alarm in 2,000 samples."""


class PageTest(NamedTuple):
    """Page's test (CUSUM), which detects a change of a service's load: a cumulative sum with its
    sign, and the amount and requests since it began to grow."""

    drift: float
    total: float
    requests: float

    @property
    def alarms(self) -> bool:
        return abs(self.drift) > _ALARM_BOUND

    def after(self, off: float, amount: float, count: int) -> PageTest:
        """The test after a sample that is `off` by so many standard errors and sums to `amount`."""
        up = max(self.drift, 0.0) + off - _ALLOWANCE
        drift = up if up > 0.0 else min(min(self.drift, 0.0) + off + _ALLOWANCE, 0.0)
        if drift == 0.0:
            return PageTest(0.0, 0.0, 0.0)
        if drift * self.drift > 0.0:
            return PageTest(drift, self.total + amount, self.requests + count)
        return PageTest(drift, amount, float(count))


_MOST_SPREAD = 3.0


def first(sample: ServiceSample) -> LatencyModel | None:
    """The model after the first observation (None: no CPU time or latency): only the work, not the
    wait, since other jobs often start at the same time and the host is full."""
    mean_s = sample.sketch.mean_s
    if not mean_s or not sample.cpu_core_s:
        return None
    # In a closed loop of one client, latencies should sum to the elapsed time; a smaller sum means
    # that the first report began late.
    late = sample.sketch.sum_s / sample.elapsed_s if sample.in_flight == 1 else 1.0
    late = late if MOSTLY <= late < 1.0 else 1.0
    return LatencyModel(
        work_core_s=max(late * sample.cpu_core_s / sample.sketch.count, LEAST_CORE_S),
        # Bounded, since the CPU time may include the start-up.
        requests=min(sample.sketch.count, FEW_REQUESTS),
        in_service_s=sample.sketch.sum_s,
        span_s=late * sample.elapsed_s,
        clients=Clients(1.0 if sample.in_flight == 1 else 0.0, 1.0 if sample.throttled else 0.0),
        measured_s=mean_s,
    )


def updated(model: LatencyModel, sample: ServiceSample, quantile: float | None) -> LatencyModel:
    """The model after one more observation; `law` explains each step."""
    sketch, count = sample.sketch, sample.sketch.count
    mean_s = sketch.sum_s / count
    if mean_s <= 0.0:
        return model
    said = _said(model, sample)
    mean_s /= said.claim_ratio

    noise = model.noise
    # Successive requests are correlated: their mean varies more than that of independent ones.
    varies, remembered = CLEARLY * noise, remembered_requests(noise)
    # Weight, in requests, of the prior that a request waits for nothing.
    prior = min(FEW_REQUESTS, (noise / LITTLE) ** 2)
    work, requests, loads, work_page, lag = _worked(model, sample, noise, remembered)
    fixed, settled, width = model.fixed_s, model.settled, model.widest_cores
    held = effective_cores(sample.ceiling_cores, width)
    informs, predicted = sample.throttled or sample.free, mean_s
    law_page = PageTest(model.law_drift, model.law_drift_s, model.law_drift_requests)
    if sample.one_ceiling and held is not None:
        computes_s = work * said.sharing / held
        predicted = max(fixed + computes_s, 1e-9)
        error = varies * math.sqrt(1.0 / count + 1.0 / (settled + prior)) + FINE
        off = math.log(mean_s / predicted) / error
        if not informs:
            off = min(off, 0.0)
        law_page = law_page.after(off, (mean_s - computes_s) * count, count)
    changed = False
    if work_page.alarms or law_page.alarms:
        if work_page.alarms:
            changed, loads = True, loads + 1
            work, requests = work_page.total / work_page.requests, work_page.requests
            settled = min(settled, FEW_REQUESTS)
        else:
            fixed, settled = law_page.total / law_page.requests, law_page.requests
        work_page = law_page = PageTest(0.0, 0.0, 0.0)
    if informs:
        fixed, settled, width = wait_and_width(
            sample, mean_s, work * said.sharing, fixed, settled, prior, width, remembered
        )

    spread, spread_requests = _spread(model, sketch)
    tail_log, tail_requests = model.tail_log, model.tail_requests
    if quantile is not None and informs and (sketch.buckets or sketch.spans):
        evidence = min(count, 2 * (len(sketch.buckets) + len(sketch.spans)))
        step = tail_step(sketch, predicted * said.claim_ratio, spread, tail_log, quantile)
        tail_log += step * evidence / (TAIL_PRIOR + tail_requests + evidence)
        tail_log = min(max(tail_log, -1.5), 1.5)
        tail_requests = min(tail_requests + evidence, REMEMBERED)
    if sample.one_ceiling and sample.throttled:
        means = model.means.after(math.log(mean_s / predicted), count, noise)
    else:
        means = model.means.interrupted()
    quick = 1.0 if changed else SAMPLE_WEIGHT
    return LatencyModel(
        work,
        requests,
        fixed,
        settled,
        width,
        spread,
        spread_requests,
        tail_log,
        tail_requests,
        said.in_service_s,
        said.span_s,
        said.clients,
        *work_page,
        *law_page,
        model.measured_s + quick * (mean_s - model.measured_s),
        loads,
        means,
        lag,
    )


def _work_core_s(sample: ServiceSample) -> float | None:
    """CPU work of a request by this observation alone; None: unread."""
    if sample.cpu_core_s is not None:
        return sample.cpu_core_s / sample.sketch.count
    if sample.used_cores is None or sample.sketch.mean_s is None:
        return None
    return sample.used_cores * sample.sketch.mean_s


class _Said(NamedTuple):
    """Concurrency of a service by its reports, and how far its latencies agree with that."""

    in_service_s: float
    span_s: float
    clients: Clients
    claim_ratio: float
    sharing: float
    """Number of requests that share a ceiling."""


def _said(model: LatencyModel, sample: ServiceSample) -> _Said:
    in_service_s, span_s = model.in_service_s, model.span_s
    if sample.cpu_core_s is not None:
        in_service_s = (1.0 - SAMPLE_WEIGHT) * in_service_s + sample.sketch.sum_s
        span_s = (1.0 - SAMPLE_WEIGHT) * span_s + sample.elapsed_s
    concurrency = in_service_s / span_s if span_s > 0.0 else 1.0
    before = replace(model.clients, are_one=model.is_one_client)
    clients = before.after(
        sample.in_flight, sample.elapsed_s, throttled=sample.throttled, in_service=concurrency
    )
    if not clients.are_one:
        return _Said(in_service_s, span_s, clients, 1.0, max(1.0, concurrency))
    claim = concurrency if abs(math.log(concurrency)) > LITTLE_OFF else 1.0
    return _Said(in_service_s, span_s, clients, claim, 1.0)


def _worked(
    model: LatencyModel, sample: ServiceSample, noise: float, remembered: float
) -> tuple[float, float, int, PageTest, Lag]:
    """Work of a request, the requests it rests on, count of loads, Page's sum, and the lag."""
    work, requests, loads = model.work_core_s, model.requests, model.loads
    page = PageTest(model.work_drift, model.work_drift_core_s, model.work_drift_requests)
    lag = model.lag
    observed, count = _work_core_s(sample), sample.sketch.count
    if not observed or observed < LEAST_CORE_S:
        return work, requests, loads, page, replace(lag, used_cores=None)
    if _is_shifted(model, sample, noise):
        return work, requests, loads, page, NO_LAG
    square, unsure = (CLEARLY * noise) ** 2, 0.0
    if sample.cpu_core_s is not None and sample.elapsed_s > 0.0:
        used = sample.cpu_core_s / sample.elapsed_s
        before = lag.more_before(used)
        lag = lag.after(used, sample.cpu_core_s, count, work, noise)
        observed = max(observed + lag.seconds * before / count, LITTLE * observed)
        off = before / observed / count
        unsure = lag.variance * off * off
    else:
        lag = replace(lag, used_cores=None)
    observed = max(observed, LEAST_CORE_S)
    # A request that crosses either end of the sample computes partly outside of it.
    error = math.sqrt(square * (1.0 / count + 1.0 / requests) + EDGE / count**2 + unsure)
    off = math.log(observed / work) / (error + 0.5 * FINE)
    page = page.after(off, observed * count, count)
    # A sample with a large error neither adds much nor makes older ones fade much.
    counts = count * square / (square + unsure * count)
    requests *= min(1.0, remembered / (requests + counts))
    work += (observed - work) * counts / (requests + counts)
    return max(work, LEAST_CORE_S), requests + counts, loads, page, lag


def _is_shifted(model: LatencyModel, sample: ServiceSample, noise: float) -> bool:
    """Whether a report came too late for this sample, or two came in it. The requests of one
    client follow each other, so the sum of their latencies shows it."""
    expected_s, sum_s, count = (
        model.in_service * sample.elapsed_s,
        sample.sketch.sum_s,
        sample.sketch.count,
    )
    if not model.is_one_client or sample.cpu_core_s is None or expected_s <= 0.0:
        return False
    # The number of requests in a sample varies by one by chance.
    if abs(sum_s - expected_s) <= CLEARLY * sum_s / count:
        return False
    off = math.log(max(sum_s / expected_s, LEAST_CORE_S))
    return abs(off) > math.log(CLEARLY) + 2.0 * noise / math.sqrt(count)


def _spread(model: LatencyModel, sketch: LatencySketch) -> tuple[float, float]:
    """Standard deviation of the logarithm of latency, and the requests it rests on."""
    spread, requests, count = model.spread, model.spread_requests, sketch.count
    if count <= 2 or not (sketch.buckets or sketch.spans):
        return spread, requests
    if sketch.spans:
        variation = cv(sketch) or 0.0
        of_sample = math.log1p(variation * variation)
    else:
        total = squares = 0
        for index, many in sketch.buckets:
            total += index * many
            squares += index * index * many
        of_sample = (squares - total * total / count) / (count - 1) * LOG_GROWTH * LOG_GROWTH
    evidence = min(count, 2 * (len(sketch.buckets) + len(sketch.spans)))
    requests = min(requests, REMEMBERED) + evidence
    gain = evidence / requests
    variance = spread * spread * (1.0 - gain) + gain * of_sample
    return math.sqrt(min(max(variance, 1e-6), _MOST_SPREAD**2)), requests
