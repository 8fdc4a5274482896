"""How a service's latency answers to CPU, learned while it runs.

Owns the model and its updating. It must not decide anything, nor know targets, nodes or time.

**The law.** A request waits `fixed_s` (a) whatever the CPU, and computes `work_core_s` (w) on what
it is given, at most `widest_cores` (m) of it at once: under a ceiling of c cores the mean latency
is p = a + w / min(c, m).

**Work** needs no excitation: over any time, CPU used divided by requests answered is what one of
them takes, whether the ceiling binds or the host is full. It is kept as a ratio of sums, so that
what a request computed on either side of a reading cancels out. With L requests in service at once
that share one ceiling, each has c / L of it: the w of the law is L times the work of a request,
and L = requests x mean latency / time (Little's law).

**Waiting** is the rest, a = p - w / c, learned where the ceiling binds. It may go below zero: it
also absorbs what a quota gives beside its nominal cores. It rests on no more than the last
`remembered` requests or so: that makes it an integral action, and in the long run the model is
right at the ceiling in force, whatever is wrong elsewhere. Others on a full host can make a
service slower, never faster: a latency clearly below the prediction tells of the wait in any case.

**Width** shows where the ceiling does not bind: the CPU that a busy service then uses is all that
it can use. With u used in the mean, of which a service waits a part a u / w of the time, m = u /
(1 - a u / w).

**Quantiles.** Let r = latency / (a + w / min(c, m)): its distribution belongs to the service, not
to the ceiling. Its q-quantile f starts as that of a log-normal with the spread s seen, since a
spread is known from few requests and a tail is not: f = exp(z s - s^2 / 2). The part of requests
beyond f x prediction then corrects it, by Robbins and Monro's rule with the log-normal's density
phi(z) / s: ln f += (part - (1 - q)) s / phi(z) x k / (n0 + n + k). After n >> n0 requests nothing
of the log-normal is left in it.

**Noise and time.** A host becomes faster and slower all the time, so older requests fade: after as
many as leave less than a hundredth of noise in the mean (`mean_noise`), and no more. In a closed
loop that takes turns at a quota's periods these are some dozens.

**Lag.** What a service tells lies up to a second behind its CPU time: `lag` says what that does to
its work where its use changes, and how it is taken out. A line that misses its look altogether is
known by the time that its requests took together.

**Change.** Two cumulative sums, of what work and what latency are off in standard errors, each less
an allowance, tell of another load as soon as they pass a bound (Page's test): one look that is far
off does, and so do several that are somewhat off on one side. What counts from then on is what was
seen since the sum began to grow. Where work has changed, what a request waits is taken to stay.

**Contradictions.** A closed loop of one client has one request in service all the time, and says
so: then L = 1. If the latencies say otherwise, they are not what they claim, and what a request
took is time / requests: every latency is taken for so many times what it says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

from dlsched.estimate.lag import Lag
from dlsched.estimate.mean_noise import MeanNoise
from dlsched.model import LatencySketch
from dlsched.report.buckets import GROWTH, UNIT_S

_LOG_GROWTH = math.log(GROWTH)
_NO_NOISE, _NO_LAG = MeanNoise(), Lag()
_ALLOWANCE, _BOUND = 0.6, 4.5
"""Of Page's test, in standard errors: about one false alarm in 2,000 looks."""
_CLEARLY = -2.0
"""Standard errors from which on a latency is below the prediction, whatever others do."""
_SIDE = 1.5
"""Of the bound, what makes work the reason when latency is off."""
_CARE = 1.2
"""Requests that follow each other are alike: their mean varies by so much more than chance has."""
_FIXED_PRIOR, _FIXED_RATIO = 15.0, 0.06
"""Requests that it takes at most to believe in a wait as much as in none, and about what it is, as
a part of the latency: fewer do where means vary little."""
_LEAST_NOISE, _NOISE_KEPT = 0.01, 0.008
"""No mean varies by less, whatever looks say; and how much of that may be left, as a ratio."""
_CHANGED_REQUESTS = 20.0
"""What the wait rests on, at most, after the work has changed."""
_SMALL = 0.02
"""A relative error that is none: buckets and ceilings are no finer."""
_FIRST_REQUESTS = 10.0
"""The first look may hold what a service computed at its start: it counts as no more."""
_LEAST_PART = 0.1
"""Of the CPU time of a look, what its requests took at least, whatever the lag."""
_AMISS = 0.35
"""Logarithm by which the time that a look's requests took is off, where a line is amiss."""
_BY_CHANCE = 1.2
"""Requests by which a look may be off where no line is amiss."""
_FIRST_LATE = 0.4
"""Part of the time before the first look that its line must tell of, to be one begun late."""
_LEAST_REMEMBERED, _REMEMBERED = 40.0, 1500.0
"""Bounds of the requests after which older ones fade."""
_TAIL_PRIOR = 600.0
"""Requests that the log-normal is worth in the tail (n0)."""
_TAIL_REMEMBERED = 6000.0
_LITTLE_DECAY = 0.85
_LITTLE_OFF = 0.13
"""Logarithm by which Little's law must be off before a service contradicts itself."""
_ONE = 0.97
"""Beyond that part of its reports with one request in flight it is a closed loop of one client."""
_IDLE_RATIO = 0.85
"""Fewer in service in the mean, and it waits for requests: being faster brings no more of them."""
_LEAST_CORES, _LEAST_CORE_S = 1e-4, 1e-9
"""No ceiling and no work of a request is reckoned with below these."""
_SPREAD_REMEMBERED, _MOST_SPREAD = 2000.0, 3.0
_WIDER = 1.3
"""It is wider than believed where a ceiling binds at that width."""


class Seen(NamedTuple):
    """What was observed of a service between two of its reports."""

    sketch: LatencySketch
    """At least one request."""
    cpu_core_s: float | None
    """CPU time used for them; None: unread, or other requests' reports are missing."""
    elapsed_s: float
    ceiling_cores: float | None
    """None: it had no ceiling."""
    throttled: bool
    """The ceiling held it back all along."""
    free: bool
    """Neither the ceiling nor others held it back at any time."""
    steady: bool
    """It was under that one ceiling all along, if perhaps held back by others."""
    in_flight: int
    used_cores: float | None = None
    """Mean cores, where the CPU time of just these requests is not known."""


class Learning(NamedTuple):
    """Parts of the model's updating that can be switched off, to see what they are worth."""

    trim: bool = True
    """Whether the waiting follows for ever, as an integral action."""
    forgetting: bool = True
    """Whether another load is noticed."""


WHOLE = Learning()


@dataclass(frozen=True, slots=True)
class LatencyModel:
    """The law of one service, and how much each part of it rests on."""

    work_core_s: float
    """CPU work of a request, in the mean."""
    requests: float
    """What that rests on, faded."""
    fixed_s: float = 0.0
    settled: float = 0.0
    """Requests that `fixed_s` rests on, faded."""
    widest_cores: float | None = None
    """None: no ceiling was ever too wide for it."""
    spread: float = 0.3
    """Standard deviation of the logarithm of latency under one ceiling."""
    spread_requests: float = 0.0
    tail_log: float = 0.0
    """Logarithm of the quantile's factor over the log-normal's."""
    tail_requests: float = 0.0
    in_service_s: float = 0.0
    """Sum of latencies, faded; over `span_s` it is Little's L."""
    span_s: float = 0.0
    always_one: float = 0.0
    """Part of its reports, faded, with exactly one request in flight."""
    work_drift: float = 0.0
    """Page's sum of the work, with the sign, and what was seen since it began."""
    work_drift_core_s: float = 0.0
    work_drift_requests: float = 0.0
    law_drift: float = 0.0
    """Page's sum of the prediction, and what was seen since it began."""
    law_drift_s: float = 0.0
    """Sum of what requests waited, by what was measured less what they computed."""
    law_drift_requests: float = 0.0
    measured_s: float = 0.0
    """Mean latency lately, as believed."""
    loads: int = 0
    """How often the work of a request has changed."""
    means: MeanNoise = _NO_NOISE
    lag: Lag = _NO_LAG

    @property
    def in_service(self) -> float:
        """Requests in service at once, in the mean."""
        return self.in_service_s / self.span_s if self.span_s > 0 else 1.0

    @property
    def claim_ratio(self) -> float:
        """What its latencies say over what they must be; 1 where nothing speaks against them."""
        if not self.is_one_client or self.in_service <= 0:
            return 1.0
        return self.in_service if abs(math.log(self.in_service)) > _LITTLE_OFF else 1.0

    @property
    def is_one_client(self) -> bool:
        """Whether it is a closed loop of one client: that computes all the time, however fast."""
        return self.always_one > _ONE

    @property
    def is_open(self) -> bool:
        """Whether requests come by themselves: being faster does not bring more of them."""
        return self.always_one < 0.9 and self.in_service < _IDLE_RATIO

    @property
    def rate_per_s(self) -> float:
        """Requests answered a second, lately."""
        return self.in_service / (self.claim_ratio * self.measured_s)

    @property
    def law_core_s(self) -> float:
        """The w of the law: of all requests that share the ceiling."""
        if self.is_one_client:
            return self.work_core_s
        return self.work_core_s * max(1.0, self.in_service)

    @property
    def cv(self) -> float:
        """Standard deviation of latency over its mean, as of a log-normal of that spread."""
        return math.sqrt(math.exp(self.spread**2) - 1.0)

    @property
    def noise(self) -> float:
        """What a mean varies by, as a part of it and times the square root of its requests."""
        noise = self.means.believed(self.cv) if self.is_one_client else self.cv
        return max(noise, _LEAST_NOISE)

    @property
    def remembered(self) -> float:
        """Requests after which older ones fade: as many as make the noise small, and no more."""
        return _remembered(self.noise)

    def mean_s(self, cores: float | None) -> float | None:
        """Mean latency under that ceiling; None: without one, of unknown width."""
        held = _held(cores, self.widest_cores)
        return None if held is None else max(self.fixed_s + self.law_core_s / held, 1e-9)

    def factor(self, quantile: float | None) -> float:
        """That quantile of latency over its mean; 1 for the mean (None)."""
        if quantile is None:
            return 1.0
        spread = self.spread
        return math.exp(_normal(quantile)[0] * spread - spread * spread / 2.0 + self.tail_log)

    def error_ratio(self, quantile: float | None) -> float:
        """Standard error of a predicted latency, as a ratio of it."""
        noise = self.noise
        remembered = _remembered(noise)
        rests_on = min(self.requests, remembered)
        # Of requests that fade, the mean is as exact as of twice as many that do not.
        of_mean = noise / math.sqrt(rests_on * (1.0 + rests_on / remembered))
        if quantile is None:
            return of_mean
        _, density = _normal(quantile)
        known = self.tail_requests + _TAIL_PRIOR
        of_tail = self.spread / density * math.sqrt(quantile * (1.0 - quantile) / known)
        return math.hypot(of_mean, of_tail)

    def ceiling_for(self, latency_s: float, quantile: float | None) -> float | None:
        """The least ceiling in cores under which that latency is kept; None: none would.

        It may lie above the width: what the model says of either is not exact.
        """
        mean_s = latency_s / self.factor(quantile)
        spare_s = mean_s - self.fixed_s
        return self.law_core_s / spare_s if spare_s > 0.02 * mean_s else None

    def use_at(self, latency_s: float, quantile: float | None) -> float:
        """Mean cores in use while it keeps that latency."""
        if self.is_open:
            return self.work_core_s * self.rate_per_s
        return self.law_core_s * self.factor(quantile) / latency_s


def first(seen: Seen) -> LatencyModel | None:
    """The model after a first look; None: it tells nothing of work.

    It says nothing of the law: whatever starts beside it, a full host is what is seen first.
    """
    mean_s = seen.sketch.mean_s
    if not mean_s or not seen.cpu_core_s:
        return None
    # Of a closed loop of one client it is known how long its requests took together; the first
    # line was perhaps begun late.
    late = seen.sketch.sum_s / seen.elapsed_s if seen.in_flight == 1 else 1.0
    late = late if _FIRST_LATE < late < 1.0 else 1.0
    return LatencyModel(
        work_core_s=max(late * seen.cpu_core_s / seen.sketch.count, _LEAST_CORE_S),
        requests=min(seen.sketch.count, _FIRST_REQUESTS),
        in_service_s=seen.sketch.sum_s,
        span_s=late * seen.elapsed_s,
        always_one=1.0 if seen.in_flight == 1 else 0.0,
        measured_s=mean_s,
    )


def updated(
    model: LatencyModel, seen: Seen, quantile: float | None, learning: Learning = WHOLE
) -> LatencyModel:
    """The model after these reports."""
    sketch, count = seen.sketch, seen.sketch.count
    mean_s = sketch.sum_s / count
    if mean_s <= 0.0:
        return model
    said = _said(model, seen)
    mean_s /= said.claim_ratio

    noise = model.noise
    varies, remembered = _CARE * noise, _remembered(noise)
    prior = min(_FIXED_PRIOR, (noise / _FIXED_RATIO) ** 2)
    work, requests, loads, work_page, lag = _worked(model, seen, noise, remembered)
    fixed, settled, width = model.fixed_s, model.settled, model.widest_cores
    held = _held(seen.ceiling_cores, width)
    tells, predicted = seen.throttled or seen.free, mean_s
    law_page = _Page(model.law_drift, model.law_drift_s, model.law_drift_requests)
    if seen.steady and held is not None:
        computes_s = work * said.sharing / held
        predicted = max(fixed + computes_s, 1e-9)
        error = varies * math.sqrt(1.0 / count + 1.0 / (settled + prior)) + _SMALL
        off = math.log(mean_s / predicted) / error
        if not tells:
            off = min(off, 0.0)
            tells = off < _CLEARLY
        law_page = law_page.after(off, (mean_s - computes_s) * count, count)
    changed = False
    if learning.forgetting and (work_page.alarms or law_page.alarms):
        if work_page.alarms or work_page.drift * law_page.drift > _SIDE * _BOUND:
            changed, loads = True, loads + 1
            work, requests = work_page.total / work_page.requests, work_page.requests
            settled = min(settled, _CHANGED_REQUESTS)
        else:
            fixed, settled = law_page.total / law_page.requests, law_page.requests
        work_page = law_page = _Page(0.0, 0.0, 0.0)
    if tells:
        most = remembered if learning.trim else math.inf
        fixed, settled, width = _law(
            seen, mean_s, work * said.sharing, fixed, settled, prior, width, most
        )

    spread, spread_requests = _spread(model, sketch)
    tail_log, tail_requests = model.tail_log, model.tail_requests
    if quantile is not None and tells and sketch.buckets:
        evidence = min(count, 2 * len(sketch.buckets))
        step = _tail_step(sketch, predicted * said.claim_ratio, spread, tail_log, quantile)
        tail_log += step * evidence / (_TAIL_PRIOR + tail_requests + evidence)
        tail_log = min(max(tail_log, -1.5), 1.5)
        tail_requests = min(tail_requests + evidence, _TAIL_REMEMBERED)
    if seen.steady and seen.throttled:
        means = model.means.after(math.log(mean_s / predicted), count, noise)
    else:
        means = model.means.interrupted()
    quick = 1.0 if changed else max(0.2, min(1.0, count / 200.0))
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
        said.always_one,
        *work_page,
        *law_page,
        model.measured_s + quick * (mean_s - model.measured_s),
        loads,
        means,
        lag,
    )


# ---------------------------------------------------------------------- parts of an update


def _work_core_s(seen: Seen) -> float | None:
    """CPU work of a request by this look alone; None: unread."""
    if seen.cpu_core_s is not None:
        return seen.cpu_core_s / seen.sketch.count
    if seen.used_cores is None or seen.sketch.mean_s is None:
        return None
    return seen.used_cores * seen.sketch.mean_s


class _Said(NamedTuple):
    """What a service says of its requests in service, and what that says of its latencies."""

    in_service_s: float
    span_s: float
    always_one: float
    claim_ratio: float
    sharing: float
    """How many requests share a ceiling."""


def _said(model: LatencyModel, seen: Seen) -> _Said:
    in_service_s, span_s = model.in_service_s, model.span_s
    if seen.cpu_core_s is not None:
        in_service_s = _LITTLE_DECAY * in_service_s + seen.sketch.sum_s
        span_s = _LITTLE_DECAY * span_s + seen.elapsed_s
    at_once = in_service_s / span_s if span_s > 0.0 else 1.0
    always_one = 0.8 * model.always_one + (0.2 if seen.in_flight == 1 else 0.0)
    if always_one <= _ONE:
        return _Said(in_service_s, span_s, always_one, 1.0, max(1.0, at_once))
    claim = at_once if abs(math.log(at_once)) > _LITTLE_OFF else 1.0
    return _Said(in_service_s, span_s, always_one, claim, 1.0)


class _Page(NamedTuple):
    """One of Page's sums, with its sign, and what was seen since it began to grow."""

    drift: float
    total: float
    requests: float

    @property
    def alarms(self) -> bool:
        """Whether it tells of a change."""
        return abs(self.drift) > _BOUND

    def after(self, off: float, amount: float, count: int) -> _Page:
        """It after a look that is off by so many standard errors, at so much in all requests."""
        up = max(self.drift, 0.0) + off - _ALLOWANCE
        drift = up if up > 0.0 else min(min(self.drift, 0.0) + off + _ALLOWANCE, 0.0)
        if drift == 0.0:
            return _Page(0.0, 0.0, 0.0)
        if drift * self.drift > 0.0:
            return _Page(drift, self.total + amount, self.requests + count)
        return _Page(drift, amount, float(count))


def _remembered(noise: float) -> float:
    return min(max((noise / _NOISE_KEPT) ** 2 / 2.0, _LEAST_REMEMBERED), _REMEMBERED)


def _worked(
    model: LatencyModel, seen: Seen, noise: float, remembered: float
) -> tuple[float, float, int, _Page, Lag]:
    """Work of a request, what that rests on, how often it has changed, Page's sum, and the lag."""
    work, requests, loads = model.work_core_s, model.requests, model.loads
    page = _Page(model.work_drift, model.work_drift_core_s, model.work_drift_requests)
    lag = model.lag
    observed, count = _work_core_s(seen), seen.sketch.count
    if not observed or observed < _LEAST_CORE_S:
        return work, requests, loads, page, replace(lag, used_cores=None)
    if _line_amiss(model, seen, noise):
        return work, requests, loads, page, _NO_LAG
    square, unsure = (_CARE * noise) ** 2, 0.0
    if seen.cpu_core_s is not None and seen.elapsed_s > 0.0:
        used = seen.cpu_core_s / seen.elapsed_s
        before = lag.more_before(used)
        lag = lag.after(used, seen.cpu_core_s, count, work, noise)
        observed = max(observed + lag.seconds * before / count, _LEAST_PART * observed)
        off = before / observed / count
        unsure = lag.variance * off * off
    else:
        lag = replace(lag, used_cores=None)
    observed = max(observed, _LEAST_CORE_S)
    # A request that began before the look, or ends after it, computes partly outside of it.
    error = math.sqrt(square * (1.0 / count + 1.0 / requests) + 0.04 / count**2 + unsure)
    off = math.log(observed / work) / (error + 0.5 * _SMALL)
    page = page.after(off, observed * count, count)
    # A look of which little is sure neither adds much nor makes older ones fade much.
    counts = count * square / (square + unsure * count)
    requests *= min(1.0, remembered / (requests + counts))
    work += (observed - work) * counts / (requests + counts)
    return max(work, _LEAST_CORE_S), requests + counts, loads, page, lag


def _line_amiss(model: LatencyModel, seen: Seen, noise: float) -> bool:
    """Whether a line came too late for this look, or two for the time of one.

    The requests of one client follow each other: how long they took together tells.
    """
    usual_s, sum_s, count = model.in_service * seen.elapsed_s, seen.sketch.sum_s, seen.sketch.count
    if not model.is_one_client or seen.cpu_core_s is None or usual_s <= 0.0:
        return False
    # One request more or less is in a look by chance.
    if abs(sum_s - usual_s) <= _BY_CHANCE * sum_s / count:
        return False
    off = math.log(max(sum_s / usual_s, _LEAST_CORE_S))
    return abs(off) > _AMISS + 2.0 * noise / math.sqrt(count)


def _held(ceiling: float | None, width: float | None) -> float | None:
    if ceiling is None:
        return width
    least = max(ceiling, _LEAST_CORES)
    return least if width is None or least < width else width


def _law(
    seen: Seen,
    mean_s: float,
    law: float,
    fixed: float,
    settled: float,
    prior: float,
    width: float | None,
    remembered: float,
) -> tuple[float, float, float | None]:
    """Waiting, what it rests on, and the width."""
    count, ceiling = seen.sketch.count, seen.ceiling_cores
    gain = count / (count + settled + prior)
    held = _held(ceiling, width)
    if not seen.free and held is not None:
        if seen.throttled and ceiling is not None:
            if width is not None and ceiling >= 0.99 * width:
                width *= _WIDER
            held = max(ceiling, _LEAST_CORES)
        fixed += gain * (mean_s - law / held - fixed)
        return fixed, min(settled + count, remembered), width
    # Busy all the time it uses what it can, and CPU time has less noise than latencies have.
    used = law / mean_s
    if seen.in_flight == 1 and seen.cpu_core_s is not None and seen.elapsed_s > 0.0:
        used = seen.cpu_core_s / seen.elapsed_s
    now = max(used / max(1.0 - max(fixed, 0.0) * used / law, 0.1), _LEAST_CORES)
    return fixed, settled, now if width is None else width + gain * (now - width)


def _spread(model: LatencyModel, sketch: LatencySketch) -> tuple[float, float]:
    """Standard deviation of the logarithm of latency, and what it rests on."""
    spread, requests, count = model.spread, model.spread_requests, sketch.count
    if count <= 2 or not sketch.buckets:
        return spread, requests
    total = squares = 0
    for index, many in sketch.buckets:
        total += index * many
        squares += index * index * many
    seen = (squares - total * total / count) / (count - 1) * _LOG_GROWTH * _LOG_GROWTH
    evidence = min(count, 2 * len(sketch.buckets))
    requests = min(requests, _SPREAD_REMEMBERED) + evidence
    gain = evidence / requests
    variance = spread * spread * (1.0 - gain) + gain * seen
    return math.sqrt(min(max(variance, 1e-6), _MOST_SPREAD**2)), requests


def _tail_step(
    sketch: LatencySketch, predicted_s: float, spread: float, tail_log: float, quantile: float
) -> float:
    """By how much these requests alone would move the quantile's factor, as a logarithm."""
    z, density = _normal(quantile)
    log_s = math.log(predicted_s / UNIT_S) + z * spread - spread * spread / 2.0 + tail_log
    edge = log_s / _LOG_GROWTH
    beyond = 0.0
    for index, many in reversed(sketch.buckets):
        if index <= edge:
            break
        beyond += many * min(1.0, index - edge)
    return (min(beyond / sketch.count, 1.0) - (1.0 - quantile)) * spread / density


@lru_cache(maxsize=64)
def _normal(quantile: float) -> tuple[float, float]:
    """The standard normal's quantile, and its density there."""
    normal = NormalDist()
    z = normal.inv_cdf(min(max(quantile, 1e-4), 1.0 - 1e-4))
    return z, normal.pdf(z)
