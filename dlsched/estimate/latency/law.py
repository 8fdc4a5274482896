"""Model of a service's latency over its CPU, learned while it runs.

`update` learns it from reports, with `lag`.

**Law.** A request waits for `fixed_s` (a) at any ceiling, and computes `work_core_s` (w) on the
cores that it gets, at most `widest_cores` (m, its parallelism). Under a ceiling of c cores the
mean latency is p = a + w / min(c, m).

**Work** needs no excitation (no deliberate change of the ceiling): CPU time over requests answered
is the work of one, whether the ceiling binds or the host is full. It is kept as a ratio of sums, so
that the parts of a request on either side of a sample's edge cancel out. When L requests in service
share one ceiling, each has c / L: the w of the law is L times the work of a request, with
L = requests x mean latency / time (Little's law).

**Wait** is the rest, a = p - w / c, learned where the ceiling binds. It may be negative: it also
absorbs what a quota gives beyond its nominal cores. It rests on about the last
`remembered_requests` only. That makes it an integral action: in the long run the model is exact at
the applied ceiling, whatever its errors elsewhere. Other jobs on a full host make a service slower,
never faster, so a latency clearly below the prediction always corrects the wait.

**Parallelism** is measured where the ceiling does not bind: a busy service then uses all the CPU
that it can. With mean use u, of which it waits the fraction a u / w of the time,
m = u / (1 - a u / w).

**Quantiles.** The distribution of r = latency / (a + w / min(c, m)) belongs to the service, not to
the ceiling. Its q-quantile f starts as that of a log-normal with the measured spread s, since few
requests suffice for a spread but not for a tail: f = exp(z s - s^2 / 2). Then the fraction of
requests beyond f x prediction corrects it, by the rule of Robbins and Monro with the log-normal
density phi(z) / s: ln f += (fraction - (1 - q)) s / phi(z) x k / (n0 + n + k). After n >> n0
requests nothing of the log-normal is left.

**Forgetting.** The speed of a host varies all the time, so older requests fade. As many are
remembered as reduce the noise of the mean below a hundredth (`MeanNoise`), no more. In a closed
loop that alternates within a quota's periods these are some dozens.

**Lag.** Reports are up to a second behind the CPU time: `lag` corrects the error in the work when
use changes. A report that misses its sample is recognised by the sum of its requests' latencies.

**Change.** Page's test detects another load by two cumulative sums of the errors of work and of
latency, in standard errors less an allowance, when one passes a bound. One sample that is far off
suffices, or several that are somewhat off on one side. From then on only the samples since the sum
began to grow count. After a change of work, the wait is assumed to be the same.

**Contradictions.** A closed loop of one client always has one request in service, and reports it:
L = 1. If its latencies give another L while the ceiling keeps it busy, they are wrong, and a
request took time / requests: every latency is scaled by that ratio. Without a binding ceiling,
L < 1 means that the service waits for requests: a camera sends the next one whenever a report is
due, so that it always seems to have one in flight.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

from dlsched.estimate.latency.lag import Lag
from dlsched.estimate.tuning import (
    CLEARLY,
    FINE,
    FULL_RATIO,
    LITTLE,
    MOSTLY,
    ROOM_RATIO,
    SAMPLE_WEIGHT,
    SAMPLES,
    SIGMAS,
)
from dlsched.model.facts import LatencySketch
from dlsched.report.buckets import GROWTH, UNIT_S


class ServiceSample(NamedTuple):
    """Observation of a service between two of its reports."""

    sketch: LatencySketch
    """At least one request."""
    cpu_core_s: float | None
    """CPU time of these requests; None: unread, or some reports of requests are missing."""
    elapsed_s: float
    ceiling_cores: float | None
    """None: it had no ceiling."""
    throttled: bool
    """The ceiling was binding all the time."""
    free: bool
    """Neither the ceiling nor other jobs slowed it down at any time."""
    one_ceiling: bool
    """One ceiling applied all the time; other jobs may have slowed it down."""
    in_flight: int
    used_cores: float | None = None
    """Mean use, also where the CPU time of exactly these requests is unknown."""


LOG_GROWTH = math.log(GROWTH)


def tail_step(
    sketch: LatencySketch, predicted_s: float, spread: float, tail_log: float, quantile: float
) -> float:
    """The Robbins-Monro step of the quantile factor's logarithm, before the gain. Where only bounds
    of latencies are known, the smallest step that they allow."""
    z, density = normal_quantile(quantile)
    log_s = math.log(predicted_s / UNIT_S) + z * spread - spread * spread / 2.0 + tail_log
    edge = log_s / LOG_GROWTH
    beyond = 0.0
    for index, many in reversed(sketch.buckets):
        if index <= edge:
            break
        beyond += many * min(1.0, index - edge)
    edge_s, perhaps = UNIT_S * math.exp(log_s), beyond
    for lowest_s, highest_s, many in sketch.spans:
        beyond += many if lowest_s >= edge_s else 0
        perhaps += many if highest_s > edge_s else 0
    fraction = min(max(1.0 - quantile, beyond / sketch.count), perhaps / sketch.count, 1.0)
    return (fraction - (1.0 - quantile)) * spread / density


@lru_cache(maxsize=64)
def normal_quantile(quantile: float) -> tuple[float, float]:
    """The quantile of the standard normal, and the density there."""
    normal = NormalDist()
    z = normal.inv_cdf(min(max(quantile, 1e-4), 1.0 - 1e-4))
    return z, normal.pdf(z)


_LEAST_CORES, LEAST_CORE_S = 1e-4, 1e-9
"""Lower bounds of ceilings and of the work of a request."""


def effective_cores(ceiling: float | None, width: float | None) -> float | None:
    if ceiling is None:
        return width
    least = max(ceiling, _LEAST_CORES)
    return least if width is None or least < width else width


def wait_and_width(
    sample: ServiceSample,
    mean_s: float,
    law: float,
    fixed: float,
    settled: float,
    prior: float,
    width: float | None,
    remembered: float,
) -> tuple[float, float, float | None]:
    """The wait, the requests it rests on, and the parallelism, by the formulas above: the wait
    where the ceiling binds, the parallelism where it does not."""
    count, ceiling = sample.sketch.count, sample.ceiling_cores
    gain = count / (count + settled + prior)
    held = effective_cores(ceiling, width)
    if not sample.free and held is not None:
        if sample.throttled and ceiling is not None:
            if width is not None and ceiling >= (1.0 - FINE) * width:
                width *= CLEARLY
            held = max(ceiling, _LEAST_CORES)
        fixed += gain * (mean_s - law / held - fixed)
        return fixed, min(settled + count, remembered), width
    # A busy service uses all that it can, and CPU time is less noisy than latency.
    used = law / mean_s
    if sample.in_flight == 1 and sample.cpu_core_s is not None and sample.elapsed_s > 0.0:
        used = sample.cpu_core_s / sample.elapsed_s
    now = max(used / max(1.0 - max(fixed, 0.0) * used / law, LITTLE), _LEAST_CORES)
    return fixed, settled, now if width is None else width + gain * (now - width)


@dataclass(frozen=True, slots=True)
class MeanNoise:
    """Estimate of the noise of a sample's mean latency, from the differences of successive samples.

    Requests of a closed loop alternate within a quota's periods: some wait for the next period,
    some do not, so single requests vary much more than their mean. Let s be the standard deviation
    of the logarithm of a sample's mean, times the square root of its requests n. Then two
    successive samples differ by s sqrt(1 / n + 1 / n') in root mean square; a slow change of the
    law adds little to that. `square` is s squared.
    """

    square: float = 0.0
    looks: float = 0.0
    last_off: float = 0.0
    """Logarithm of the previous mean over its prediction."""
    last_count: int = 0
    """Requests of the previous sample; 0: it cannot be compared with the next."""

    def believed(self, variation: float) -> float:
        """s; with few samples it is drawn to `variation`, that of independent requests."""
        trust = min(SAMPLE_WEIGHT * self.looks, 1.0)
        return math.sqrt(trust * self.square + (1.0 - trust) * variation * variation)

    def after(self, off: float, count: int, believed: float) -> MeanNoise:
        """The estimate after a sample of `count` requests whose logarithm is `off`."""
        if not self.last_count:
            return MeanNoise(self.square, self.looks, off, count)
        # Outliers are cut off: a pause is no noise.
        most = SIGMAS**2 * believed * believed
        drawn = (off - self.last_off) ** 2 / (1.0 / count + 1.0 / self.last_count)
        samples = min(self.looks, SAMPLES) + 1.0
        return MeanNoise(
            self.square + (min(drawn, most) - self.square) / samples, samples, off, count
        )

    def interrupted(self) -> MeanNoise:
        """The estimate after a sample that is not comparable."""
        return MeanNoise(self.square, self.looks) if self.last_count else self


NO_NOISE, NO_LAG = MeanNoise(), Lag()
_NOISE_KEPT = 0.008
"""Remaining noise of the mean, as a ratio."""
TAIL_PRIOR = 600.0
"""Weight of the log-normal prior of the tail, in requests (n0)."""
LITTLE_OFF = 0.13
"""Error of Little's law, as a logarithm, from which reports contradict each other."""
_LEAST_REMEMBERED, REMEMBERED = 40.0, 1500.0
"""Bounds of the number of requests that are remembered."""
BUSY = 0.7
"""With fewer requests in service on average, they do not follow each other. At .87, late reports
made closed loops of slow requests look open (40 services, 1.4 of the node: 32 met, not 34)."""
SEVERAL, SEVERAL_KEPT = 2.0, 0.999
"""Requests in flight beyond one, summed over reports, that exclude a closed loop of one client, and
the fraction of that sum kept a report later. A camera with a queue under a ceiling was taken for
one client again within ten seconds, over and over. A health check beside a request is no proof."""


@dataclass(frozen=True, slots=True)
class Clients:
    """Evidence on a service's clients: a closed loop of one client, or possibly an open loop."""

    always_one: float = 0.0
    """Fraction of its reports, faded, with exactly one request in flight."""
    bound: float = 0.0
    """Fraction of samples, faded, in which its ceiling was binding."""
    are_one: bool = False
    """Whether it is a closed loop of one client; else it may be an open loop."""
    several: float = 0.0
    """Requests in flight beyond one, summed over reports, slowly faded."""

    def after(
        self, in_flight: int, elapsed_s: float, *, throttled: bool, in_service: float
    ) -> Clients:
        """The evidence after one more report; `in_service` is Little's L."""
        one = in_flight == 1
        kept = (1.0 - SAMPLE_WEIGHT) ** max(elapsed_s, 1.0) if one else 1.0 - SAMPLE_WEIGHT
        said = Clients(
            kept * self.always_one + (1.0 - kept if one else 0.0),
            (1.0 - SAMPLE_WEIGHT) * self.bound + (SAMPLE_WEIGHT if throttled else 0.0),
            self.are_one,
            SEVERAL_KEPT * self.several + max(in_flight - 1, 0),
        )
        return replace(said, are_one=said.follow_each_other(in_service))

    @property
    def say_one(self) -> bool:
        """Whether most reports show one request in flight, whatever `are_one` is."""
        return self.always_one > MOSTLY and self.several < SEVERAL

    @property
    def may_be_one(self) -> bool:
        """Whether some reports show one request in flight, and hardly any several."""
        return self.always_one > LITTLE and self.several < SEVERAL

    def follow_each_other(self, in_service: float) -> bool:
        """Whether the service is a closed loop of one client: it is busy whenever it reports."""
        # Hysteresis: a report between two requests shows none in flight. One such report cost two
        # loops of the demo their ceilings for ten seconds, and the other six missed their targets.
        least = MOSTLY if self.are_one else FULL_RATIO
        busy = in_service > BUSY or self.bound > MOSTLY
        return self.always_one > least and busy and self.several < SEVERAL


UNSEEN = Clients()


@dataclass(frozen=True, slots=True)
class LatencyModel:
    """The law of one service, and the faded number of requests behind each of its parts."""

    work_core_s: float
    """Mean CPU work of a request, from `requests`."""
    requests: float
    fixed_s: float = 0.0
    """The wait, from `settled` requests."""
    settled: float = 0.0
    widest_cores: float | None = None
    """The parallelism; None: no ceiling has exceeded it yet."""
    spread: float = 0.3
    """Standard deviation of the logarithm of latency under one ceiling."""
    spread_requests: float = 0.0
    tail_log: float = 0.0
    """Logarithm of the quantile factor f over that of the log-normal."""
    tail_requests: float = 0.0
    in_service_s: float = 0.0
    """Sum of latencies, faded; divided by `span_s` it is Little's L."""
    span_s: float = 0.0
    clients: Clients = UNSEEN
    work_drift: float = 0.0
    """Page's sum of the work's error, and the work and requests since it began."""
    work_drift_core_s: float = 0.0
    work_drift_requests: float = 0.0
    law_drift: float = 0.0
    """Page's sum of the prediction's error; the measured wait and the requests since it began."""
    law_drift_s: float = 0.0
    law_drift_requests: float = 0.0
    measured_s: float = 0.0
    """Recent mean latency, scaled where reports contradict each other."""
    loads: int = 0
    """Number of detected changes of work."""
    means: MeanNoise = NO_NOISE
    lag: Lag = NO_LAG

    @property
    def in_service(self) -> float:
        """Mean number of requests in service: Little's L."""
        return self.in_service_s / self.span_s if self.span_s > 0 else 1.0

    @property
    def claim_ratio(self) -> float:
        """Reported over true latency; 1 where reports do not contradict each other."""
        if not self.is_one_client or self.in_service <= 0:
            return 1.0
        return self.in_service if abs(math.log(self.in_service)) > LITTLE_OFF else 1.0

    @property
    def is_one_client(self) -> bool:
        """Whether it is a closed loop of one client, which computes all the time at any speed."""
        return self.clients.follow_each_other(self.in_service)

    @property
    def is_open(self) -> bool:
        """Whether it is an open loop: more speed does not bring more requests."""
        return self.clients.always_one < FULL_RATIO and self.in_service < ROOM_RATIO

    @property
    def rate_per_s(self) -> float:
        return self.in_service / (self.claim_ratio * self.measured_s)

    @property
    def law_core_s(self) -> float:
        """The w of the law: work of all requests that share the ceiling."""
        if self.is_one_client:
            return self.work_core_s
        return self.work_core_s * max(1.0, self.in_service)

    @property
    def cv(self) -> float:
        """Coefficient of variation of latency: that of a log-normal with the measured spread."""
        return math.sqrt(math.exp(self.spread**2) - 1.0)

    @property
    def noise(self) -> float:
        """Relative standard error of a mean latency, times the square root of its requests."""
        noise = self.means.believed(self.cv) if self.is_one_client else self.cv
        return max(noise, FINE)

    def mean_s(self, cores: float | None) -> float | None:
        """Mean latency under that ceiling; None: no ceiling, and the parallelism is unknown."""
        held = effective_cores(cores, self.widest_cores)
        return None if held is None else max(self.fixed_s + self.law_core_s / held, 1e-9)

    def factor(self, quantile: float | None) -> float:
        """The ratio of that latency quantile to the mean; 1 for the mean (None)."""
        if quantile is None:
            return 1.0
        spread = self.spread
        return math.exp(
            normal_quantile(quantile)[0] * spread - spread * spread / 2.0 + self.tail_log
        )

    def error_ratio(self, quantile: float | None) -> float:
        """Standard error of a predicted latency, as a ratio of it."""
        noise = self.noise
        remembered = remembered_requests(noise)
        rests_on = min(self.requests, remembered)
        # The mean of n requests that fade is as exact as that of 2 n that do not.
        of_mean = noise / math.sqrt(rests_on * (1.0 + rests_on / remembered))
        if quantile is None:
            return of_mean
        _, density = normal_quantile(quantile)
        known = self.tail_requests + TAIL_PRIOR
        of_tail = self.spread / density * math.sqrt(quantile * (1.0 - quantile) / known)
        return math.hypot(of_mean, of_tail)

    def ceiling_for(self, latency_s: float, quantile: float | None) -> float | None:
        """The least ceiling in cores that keeps that latency; None: none does. It may exceed the
        parallelism, since neither is exact."""
        mean_s = latency_s / self.factor(quantile)
        spare_s = mean_s - self.fixed_s
        return self.law_core_s / spare_s if spare_s > FINE * mean_s else None

    def use_at(self, latency_s: float, quantile: float | None) -> float:
        """Mean use in cores while it keeps that latency."""
        if self.is_open:
            return self.work_core_s * self.rate_per_s
        return self.law_core_s * self.factor(quantile) / latency_s


def remembered_requests(noise: float) -> float:
    return min(max((noise / _NOISE_KEPT) ** 2 / 2.0, _LEAST_REMEMBERED), REMEMBERED)
