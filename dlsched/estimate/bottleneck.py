"""Why a service misses its latency target, or a training hardly computes, from samples of what its
threads wait for.

Everything is compared in threads, as a mean over the same time: those that run, that could run and
have no CPU, that wait for the disk, for memory or for one lock, and requests that wait for another
service. The largest is the cause if it is clearly the largest, and large beside the requests that
are open (Little's law: their mean number is their rate times their latency; a training's is one:
its step). Else the cause is not known: a wrong name sends people to the wrong place. `benchmarks
run bottleneck` has the evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import NamedTuple

from dlsched.estimate.measured import latency_of
from dlsched.estimate.spinning import spinning_text, spins
from dlsched.estimate.tuning import FULL_RATIO, MOSTLY
from dlsched.model.bottleneck import Cause, WaitFact
from dlsched.model.spec import AccuracyTarget
from dlsched.model.state import JobView, Spinning
from dlsched.model.units import counted, render_bytes, render_percent, render_seconds

SAMPLES_MIN = 5
SPAN_MIN_S = 8.0
"""Of fewer samples, or in a shorter time, nothing is said."""
PART = 0.4
"""A cause must hold this part of the open requests, or of one where fewer are open. A judgement:
half of the latency, less what samples miss."""
CLEARLY_MORE = 1.5
"""Times the second largest that the largest must be."""
CPU_MORE = 3.0
"""The same for CPU: who waits for a disk or a lock waits for a CPU after that, too, and a wrong CPU
is the worst name."""
QUEUED_RATIO = 0.5
"""Waiting for a CPU is a cause from this part of the time that it ran, if others have as much CPU.
With less, a CPU that is free would take away less than a third of the latency."""
THROTTLED_RATIO = 0.25
"""Part of the kernel's periods in which it hit its limit from which the limit is a cause, with
`THROTTLED_QUEUED_RATIO` of waiting: most of the waiting is by the limit then."""
THROTTLED_QUEUED_RATIO = 0.2
SEVERAL, SAMPLED_S = 1.5, 16.0
"""With so many threads that could run on average, some may spin. That is sampled within some 10 s.
"""
HITS_PER_S = 1.0
RETURNED_PER_S = 50.0
"""Times at the memory limit, and pages that come back: 50 of a quick disk are 5 ms a second."""
LITTLE_QUEUED_RATIO = 0.1
"""The same from which it is noticeable: with less, a CPU that is free would take away less than a
tenth of the latency."""
SATURATED_RATIO = 0.85
"""A thread that runs, or could, so much of the time has hardly a pause between requests. A job that
has so much of the host leaves others what clients, kernel and daemon need."""
QUEUE = 2.0
"""Requests open for each thread that runs from which there is a queue before them."""
LOCK_CORES = 0.5
"""With more CPU in use, threads at a lock may wait for one that computes."""
IDLE_CORES = 0.5
"""A training that uses less waits most of the time: without a GPU, all that it does is compute."""
BY_ITSELF = 0.15
"""How far from one core an interpreter that runs one thread at a time may be."""


class Callee(NamedTuple):
    """Another job that it calls."""

    job: str
    calls_per_s: float
    mean_s: float

    @property
    def waiting(self) -> float:
        """Its calls that are open, in the mean."""
        return self.calls_per_s * self.mean_s


class Reading(NamedTuple):
    """What is known of the job at one sample."""

    waits: WaitFact
    used_core_s: float
    in_flight: int
    throttled_ratio: float | None
    callees: tuple[Callee, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """A cause, what was measured, and what to do."""

    cause: Cause
    evidence: str
    remedy: str = ""
    lacks_cpu: bool = False
    """Whether it also waits noticeably for a CPU."""


class _Means(NamedTuple):
    """Means over the readings: threads, requests, or a second."""

    used: float
    queued: float
    kernel: float
    disk: float
    memory: float
    open: float
    callee: Callee | None
    throttled: float
    threads: float
    locked: float
    busiest: float
    hits: float
    returned: float

    @property
    def least(self) -> float:
        return PART * min(self.open, 1.0)


def misses(job: JobView) -> bool:
    """Whether it is a service whose latency is above its target, or a training that hardly computes
    and has no GPU for which it may wait."""
    if not job.runs or job.spec.target is None:
        return False
    if _trains(job):
        used_cores = job.usage.window_cores
        return (
            not (job.gpus or job.spec.container.gpus)
            and used_cores is not None
            and used_cores < IDLE_CORES
        )
    ratio = latency_of(job)[1]
    return ratio is not None and ratio > 1.0


def _trains(job: JobView) -> bool:
    return isinstance(job.spec.target, AccuracyTarget)


def judge(
    readings: Sequence[Reading], job: JobView, capacity_cores: float, window_s: float
) -> Found | None:
    """The cause in the time of these readings, oldest first; None: too little is measured yet.
    `window_s`: the time of `Progress.recent`."""
    span_s = readings[-1].waits.at_s - readings[0].waits.at_s if readings else 0.0
    if len(readings) < SAMPLES_MIN or span_s < SPAN_MIN_S:
        return None
    now = _means(readings, span_s, job, window_s)
    found = _judged(now, job, capacity_cores, span_s)
    return found and replace(found, lacks_cpu=now.queued > LITTLE_QUEUED_RATIO * now.used)


def _judged(now: _Means, job: JobView, capacity_cores: float, span_s: float) -> Found | None:
    amounts = {
        Cause.CPU: now.queued,
        Cause.MEMORY: now.memory,
        Cause.DISK: 0.0 if now.memory else now.disk,
        Cause.CALLEE: now.callee.waiting if now.callee else 0.0,
    }
    (cause, most), (_, second) = sorted(amounts.items(), key=lambda one: -one[1])[:2]
    more = CPU_MORE if cause is Cause.CPU else CLEARLY_MORE
    clear = most >= now.least and most >= more * second
    if cause is Cause.CPU:
        sample = job.threads.sample
        if clear and job.threads.spinning is not None:
            return _threads(job.threads.spinning)
        may_spin = now.used + now.queued >= SEVERAL and span_s < SAMPLED_S
        if clear and (may_spin if sample is None else spins(sample)):
            return None  # the next sample shows whether they do
        clear = clear and not _is_full(now, capacity_cores) and _lacks_cpu(now, capacity_cores)
    else:
        computing = now.used - (now.kernel if cause is Cause.MEMORY else 0.0)
        clear = clear and most >= computing
    if clear:
        return _SAYS[cause](now, job)
    if _trains(job):
        waits = sum(amounts.values())
        return _loader(now) if waits <= LITTLE_QUEUED_RATIO * now.used else None
    if max(amounts[Cause.MEMORY], amounts[Cause.DISK], amounts[Cause.CALLEE]) >= now.least:
        return _not_known(now, job)
    if now.locked >= MOSTLY * now.open and now.used < LOCK_CORES and now.queued < LOCK_CORES:
        return _lock(now, job)
    if _is_full(now, capacity_cores):
        return _traffic(now, capacity_cores)
    return _not_known(now, job)


def _means(readings: Sequence[Reading], span_s: float, job: JobView, window_s: float) -> _Means:
    first, last = readings[0].waits, readings[-1].waits
    # Young requests may be missing among those in flight, and slow ones among the answered.
    answered = job.progress.recent.sum_s / window_s
    in_flight = [1.0 if _trains(job) else max(one.in_flight, answered) for one in readings]
    used = max(readings[-1].used_core_s - readings[0].used_core_s, 0.0) / span_s
    kernel = min(max(last.kernel_s - first.kernel_s, 0.0) / span_s, used)
    disk = max(
        fmean(one.waits.in_disk for one in readings),
        (_grew(first.disk_stall_s, last.disk_stall_s) or 0.0) / span_s,
    )
    hits = (_grew(first.limit_hits, last.limit_hits) or 0.0) / span_s
    returned = max(
        _grew(first.refaults, last.refaults) or 0.0,
        _grew(first.major_faults, last.major_faults) or 0.0,
    )
    returned /= span_s
    stalled = (_grew(first.memory_stall_s, last.memory_stall_s) or 0.0) / span_s
    # Some kernels do not count the hits of a limit of memory and swap.
    used_bytes, limit_bytes = job.usage.memory_bytes or 0, job.memory.limit_bytes
    at_limit = limit_bytes is not None and used_bytes >= FULL_RATIO * limit_bytes
    short = returned >= RETURNED_PER_S and (hits >= HITS_PER_S or at_limit)
    return _Means(
        used=used,
        queued=max(last.queued_s - first.queued_s, 0.0) / span_s,
        kernel=kernel,
        disk=disk,
        memory=max(disk + kernel, stalled) if short else 0.0,
        open=fmean(in_flight),
        callee=max((_mean_of(one) for one in _by_job(readings)), default=None, key=_waiting),
        throttled=fmean(one.throttled_ratio or 0.0 for one in readings),
        threads=fmean(one.waits.threads for one in readings),
        locked=fmean(map(_at_lock, readings, in_flight)),
        busiest=fmean(one.waits.busiest for one in readings[1:]),
        hits=hits,
        returned=returned,
    )


def _grew(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else max(float(after - before), 0.0)


def _waiting(callee: Callee) -> float:
    return callee.waiting


def _by_job(readings: Sequence[Reading]) -> list[list[Callee]]:
    found: dict[str, list[Callee]] = {}
    for one in readings:
        for callee in one.callees:
            found.setdefault(callee.job, []).append(callee)
    # A callee of which nothing was known at some samples is not said to be slow.
    return [calls for calls in found.values() if len(calls) >= MOSTLY * len(readings)]


def _mean_of(calls: Sequence[Callee]) -> Callee:
    return Callee(
        calls[0].job, fmean(one.calls_per_s for one in calls), fmean(one.mean_s for one in calls)
    )


def _at_lock(reading: Reading, in_flight: float) -> float:
    """Open requests that wait at one lock: those that no other thread of the job has, where one of
    its threads may hold it."""
    waits = reading.waits
    others = waits.threads - waits.at_lock - waits.free
    if others < 1 or in_flight < QUEUE:
        return 0.0
    return max(min(waits.at_lock, in_flight - others), 0.0)


def _lacks_cpu(now: _Means, capacity_cores: float) -> bool:
    """Whether it waits for CPU that its limit or others keep from it: its own threads may wait for
    each other, too."""
    if now.throttled >= THROTTLED_RATIO:
        return now.queued >= THROTTLED_QUEUED_RATIO * now.used
    return min(now.queued, capacity_cores - now.used) >= QUEUED_RATIO * now.used


def _is_full(now: _Means, capacity_cores: float) -> bool:
    """Whether requests wait although it uses all CPU that there is, or that it can use."""
    if now.throttled >= THROTTLED_RATIO or now.open < QUEUE * max(now.used, 1.0):
        return False
    one_thread = now.busiest >= SATURATED_RATIO and now.queued < QUEUED_RATIO * now.used
    interpreter = abs(now.used - 1.0) <= BY_ITSELF and now.locked >= MOSTLY
    return one_thread or interpreter or now.used >= SATURATED_RATIO * capacity_cores


def _cpu(now: _Means, job: JobView) -> Found:
    evidence = (
        f"Its threads waited {now.queued:.2f} s for a CPU in each second, and ran {now.used:.2f} s."
    )
    limit = job.actual.cpu_cores
    if limit is None or now.throttled < THROTTLED_RATIO:
        return Found(
            Cause.CPU,
            f"{evidence} Others use the CPU.",
            "More CPU helps: give others less, or move a job to another host.",
        )
    evidence = (
        f"{evidence} It was at its limit of {limit:.2f} cores in {render_percent(now.throttled)} "
        "of the kernel's periods."
    )
    return Found(Cause.CPU, evidence, "More CPU helps: raise its limit, or give others less.")


def _threads(spinning: Spinning) -> Found:
    return Found(Cause.THREADS, spinning_text(spinning), "A CPU limit makes it slower.")


def _memory(now: _Means, job: JobView) -> Found:
    limit_bytes = job.memory.limit_bytes
    limit = "its limit" if limit_bytes is None else f"its limit of {render_bytes(limit_bytes)}"
    return Found(
        Cause.MEMORY,
        f"Its memory is at {limit}: {now.returned:.0f} pages a second that were dropped for that "
        "were read again.",
        "More CPU does not help; raise its memory limit.",
    )


def _disk(now: _Means, _: JobView) -> Found:
    return Found(
        Cause.DISK,
        f"On average {now.disk:.1f} of its {now.threads:.0f} threads waited for the disk, and "
        f"{now.used:.2f} ran.",
        "More CPU does not help; use a faster disk, or read and write less.",
    )


def _callee(now: _Means, _: JobView) -> Found:
    callee = now.callee or Callee("", 0.0, 0.0)
    return Found(
        Cause.CALLEE,
        f"Of its {now.open:.1f} open requests {min(callee.waiting, now.open):.1f} waited for "
        f"{callee.job}, which takes {render_seconds(callee.mean_s)} to answer.",
        f"More CPU for it does not help; `dlsched why {callee.job}` may say why that is slow.",
    )


def _loader(now: _Means) -> Found:
    return Found(
        Cause.LOADER,
        f"Its {now.threads:.0f} threads ran {now.used:.2f} s in each second, and hardly waited for "
        "a CPU, memory or the disk.",
        "More CPU does not help; see what it waits for: most often its data, or a process that "
        "prepares them.",
    )


def _lock(now: _Means, _: JobView) -> Found:
    return Found(
        Cause.LOCK,
        f"Of its {now.open:.1f} open requests {now.locked:.1f} waited at one lock, while it used "
        f"{now.used:.2f} cores.",
        "More CPU does not help; hold the lock for a shorter time, or run more copies.",
    )


def _traffic(now: _Means, capacity_cores: float) -> Found:
    if now.used >= SATURATED_RATIO * capacity_cores:
        why = f"the job uses {now.used:.2f} of the host's {capacity_cores:.2f} cores"
        remedy = "More CPU is not there; send it fewer requests, or run a copy on another host."
    else:
        why = f"the job computes all the time, on {now.used:.2f} cores, and cannot use more"
        remedy = "More CPU does not help; send it fewer requests, or run more copies."
    return Found(
        Cause.TRAFFIC,
        f"More requests come than it can answer: {counted(round(now.open), 'request')} were open "
        f"at a time, and {why}.",
        remedy,
    )


def _not_known(now: _Means, _: JobView) -> Found:
    callee = "" if now.callee is None else f", {now.callee.waiting:.2f} calls of {now.callee.job}"
    return Found(
        Cause.NOT_KNOWN,
        f"Of {now.open:.1f} open requests none of these explains most: {now.used:.2f} threads ran, "
        f"{now.queued:.2f} waited for a CPU, {now.disk:.2f} for the disk, {now.locked:.2f} at one "
        f"lock{callee}.",
        "It may wait for a service that dlsched does not measure, or compute for so long itself.",
    )


_SAYS = {Cause.CPU: _cpu, Cause.MEMORY: _memory, Cause.DISK: _disk, Cause.CALLEE: _callee}
