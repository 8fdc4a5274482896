"""How a service's latency answers to CPU, learned while it runs.

Owns the model and the law that it follows; `update` learns it from reports, with `width`, `tail`,
`change`, `lag` and `mean_noise` for their parts. It must not decide
anything, nor know targets, nodes or time.

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
so: then L = 1. If the latencies say otherwise while its ceiling keeps it busy all the time, they
are not what they claim, and what a request took is time / requests: every latency is taken for so
many times what it says. Where no ceiling does, L < 1 tells of a service that waits for requests: a
camera sends the next one whenever a report is due, so that it seems to have one all the time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dlsched.estimate.latency.lag import Lag
from dlsched.estimate.latency.mean_noise import MeanNoise
from dlsched.estimate.latency.tail import normal_quantile
from dlsched.estimate.latency.width import effective_cores
from dlsched.estimate.tuning import FINE, FULL_RATIO, LOOK_WEIGHT, MOSTLY, ROOM_RATIO

NO_NOISE, NO_LAG = MeanNoise(), Lag()
_NOISE_KEPT = 0.008
"""How much of the noise may be left, as a ratio."""
TAIL_PRIOR = 600.0
"""Requests that the log-normal is worth in the tail (n0)."""
LITTLE_OFF = 0.13
"""Logarithm by which Little's law must be off before a service contradicts itself."""
_LEAST_REMEMBERED, REMEMBERED = 40.0, 1500.0
"""Bounds of the requests after which older ones fade."""
BUSY = 0.7
"""Fewer in service in the mean, and its requests do not follow each other. At .87 lines that come
late already made closed loops of slow requests seem open (40 services, 1.4 of the node: 32 instead
of 34 met)."""
SEVERAL, SEVERAL_KEPT = 2.0, 0.999
"""So many requests in flight beside one, over reports, and it is no closed loop of one client; and
what is left of that evidence a report later. A camera that queued up under a ceiling was taken for
one again within ten seconds, without end. A health check beside a request is seen now and then."""


@dataclass(frozen=True, slots=True)
class Clients:
    """What a service's reports say of who sends its requests."""

    always_one: float = 0.0
    """Part of its reports, faded, with exactly one request in flight."""
    bound: float = 0.0
    """Part of the looks, faded, in which its ceiling set the pace."""
    are_one: bool = False
    """Whether it is a closed loop of one client; else requests may come by themselves."""
    several: float = 0.0
    """Requests in flight but for one, over reports, faded slowly: one client never has two."""

    def after(
        self, in_flight: int, elapsed_s: float, *, throttled: bool, in_service: float
    ) -> Clients:
        """The same after one more report; `in_service` is Little's L."""
        one = in_flight == 1
        kept = (1.0 - LOOK_WEIGHT) ** max(elapsed_s, 1.0) if one else 1.0 - LOOK_WEIGHT
        said = Clients(
            kept * self.always_one + (1.0 - kept if one else 0.0),
            (1.0 - LOOK_WEIGHT) * self.bound + (LOOK_WEIGHT if throttled else 0.0),
            self.are_one,
            SEVERAL_KEPT * self.several + max(in_flight - 1, 0),
        )
        return replace(said, are_one=said.follow_each_other(in_service))

    @property
    def say_one(self) -> bool:
        """Whether most reports tell of one request at a time, decided or not."""
        return self.always_one > MOSTLY and self.several < SEVERAL

    def follow_each_other(self, in_service: float) -> bool:
        """Whether reports with one request in flight mean that there is one all the time."""
        # A report between two requests tells of none: over one, two loops of the demo lost their
        # ceilings for ten seconds, and the other six missed their targets.
        least = MOSTLY if self.are_one else FULL_RATIO
        busy = in_service > BUSY or self.bound > MOSTLY
        return self.always_one > least and busy and self.several < SEVERAL


UNSEEN = Clients()


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
    clients: Clients = UNSEEN
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
    means: MeanNoise = NO_NOISE
    lag: Lag = NO_LAG

    @property
    def in_service(self) -> float:
        """Requests in service at once, in the mean."""
        return self.in_service_s / self.span_s if self.span_s > 0 else 1.0

    @property
    def claim_ratio(self) -> float:
        """What its latencies say over what they must be; 1 where nothing speaks against them."""
        if not self.is_one_client or self.in_service <= 0:
            return 1.0
        return self.in_service if abs(math.log(self.in_service)) > LITTLE_OFF else 1.0

    @property
    def is_one_client(self) -> bool:
        """Whether it is a closed loop of one client: that computes all the time, however fast."""
        return self.clients.follow_each_other(self.in_service)

    @property
    def is_open(self) -> bool:
        """Whether requests come by themselves: being faster does not bring more of them."""
        return self.clients.always_one < FULL_RATIO and self.in_service < ROOM_RATIO

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
        return max(noise, FINE)

    @property
    def remembered(self) -> float:
        """Requests after which older ones fade: as many as make the noise small, and no more."""
        return remembered_requests(self.noise)

    def mean_s(self, cores: float | None) -> float | None:
        """Mean latency under that ceiling; None: without one, of unknown width."""
        held = effective_cores(cores, self.widest_cores)
        return None if held is None else max(self.fixed_s + self.law_core_s / held, 1e-9)

    def factor(self, quantile: float | None) -> float:
        """That quantile of latency over its mean; 1 for the mean (None)."""
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
        # Of requests that fade, the mean is as exact as of twice as many that do not.
        of_mean = noise / math.sqrt(rests_on * (1.0 + rests_on / remembered))
        if quantile is None:
            return of_mean
        _, density = normal_quantile(quantile)
        known = self.tail_requests + TAIL_PRIOR
        of_tail = self.spread / density * math.sqrt(quantile * (1.0 - quantile) / known)
        return math.hypot(of_mean, of_tail)

    def ceiling_for(self, latency_s: float, quantile: float | None) -> float | None:
        """The least ceiling in cores under which that latency is kept; None: none would.

        It may lie above the width: what the model says of either is not exact.
        """
        mean_s = latency_s / self.factor(quantile)
        spare_s = mean_s - self.fixed_s
        return self.law_core_s / spare_s if spare_s > FINE * mean_s else None

    def use_at(self, latency_s: float, quantile: float | None) -> float:
        """Mean cores in use while it keeps that latency."""
        if self.is_open:
            return self.work_core_s * self.rate_per_s
        return self.law_core_s * self.factor(quantile) / latency_s


def remembered_requests(noise: float) -> float:
    return min(max((noise / _NOISE_KEPT) ** 2 / 2.0, _LEAST_REMEMBERED), REMEMBERED)
