"""One cause is named where it is clearly the largest, and none where it is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.estimate.bottleneck import SAMPLES_MIN, Callee, Found, Reading, judge, misses
from dlsched.estimate.sketch import from_latencies
from dlsched.model.bottleneck import Cause, WaitFact
from dlsched.model.facts import ThreadsFact, Usage
from dlsched.model.spec import AccuracyTarget, ContainerSpec, LatencyTarget, Limits
from dlsched.model.state import JobState, JobView, MemoryUse, Progress, Spinning, ThreadUse
from tests.doubles import job_spec

CORES = 8.0
EVERY_S = 2.0


def service(latency_s: float = 0.2, limit: float | None = None) -> JobView:
    spec = replace(job_spec("a"), target=LatencyTarget(0.05, 0.95))
    progress = Progress(recent=from_latencies([latency_s] * 100))
    return JobView(spec, JobState.RUNNING, actual=Limits(limit), progress=progress)


def readings(
    *,
    ran: float = 0.1,
    queued: float = 0.0,
    kernel: float = 0.0,
    in_flight: float = 8,
    throttled: float = 0.0,
    callee: float = 0.0,
    hits: float = 0.0,
    returned: float = 0.0,
    count: float = 8,
    **gauges: float,
) -> list[Reading]:
    """Samples of constant rates a second."""
    found = []
    for at in range(int(count)):
        now_s = at * EVERY_S
        waits = WaitFact(
            at_s=now_s,
            queued_s=queued * now_s,
            kernel_s=kernel * now_s,
            limit_hits=round(hits * now_s),
            refaults=round(returned * now_s),
            major_faults=0,
            **{"threads": 10.0, "free": 1.0, **gauges},
        )
        callees = (Callee("db", 10.0, callee / 10.0),) if callee else ()
        found.append(Reading(waits, ran * now_s, round(in_flight), throttled, callees))
    return found


def found(job: JobView | None = None, **what: float) -> Found:
    result = judge(readings(**what), job or service(), CORES, 30.0)  # type: ignore[arg-type]
    assert result is not None
    return result


def training(used_cores: float | None = 0.1, **changes: Any) -> JobView:
    job = replace(service(), usage=Usage(window_cores=used_cores), progress=Progress())
    spec = replace(job.spec, target=AccuracyTarget("accuracy", 0.9, 0.97), **changes)
    return replace(job, spec=spec)


@pytest.mark.parametrize(
    ("cause", "what"),
    [
        (Cause.CPU, {"ran": 0.1, "queued": 0.9}),
        (Cause.CPU, {"ran": 0.3, "queued": 0.5, "throttled": 0.9}),
        (Cause.DISK, {"in_disk": 0.8}),
        (Cause.MEMORY, {"in_disk": 0.6, "kernel": 0.2, "ran": 0.3, "hits": 90, "returned": 900}),
        (Cause.LOADER, {"ran": 0.1}),
        (Cause.LOADER, {"ran": 0.02, "at_lock": 9.0}),  # workers that wait for a batch
        (None, {"ran": 0.3, "in_disk": 0.3}),  # of each a little
        (None, {"ran": 0.9, "queued": 0.3}),  # it computes again
    ],
)
def test_causes_of_trainings(cause: Cause | None, what: dict[str, float]) -> None:
    found = judge(readings(in_flight=0, **what), training(), CORES, 30.0)
    assert (found and found.cause) == cause


@pytest.mark.parametrize(
    ("cause", "what"),
    [
        (Cause.CPU, {"ran": 1.0, "queued": 3.0, "count": 10}),
        (Cause.CPU, {"ran": 0.5, "queued": 0.4, "throttled": 0.9, "in_flight": 1}),
        (Cause.DISK, {"in_disk": 6.0}),
        (Cause.DISK, {"in_disk": 1.0, "threads": 1.0, "in_flight": 30}),  # one thread, a queue
        (Cause.DISK, {"in_disk": 0.3, "in_flight": 0.3, "ran": 0.05}),
        (Cause.MEMORY, {"in_disk": 2.0, "kernel": 0.4, "ran": 0.5, "hits": 90, "returned": 900}),
        (Cause.MEMORY, {"kernel": 1.8, "ran": 1.9, "hits": 900, "returned": 9000}),
        (Cause.CALLEE, {"callee": 7.0}),
        (Cause.CALLEE, {"callee": 1.0, "threads": 1.0, "in_flight": 12}),
        (Cause.LOCK, {"at_lock": 7.0, "threads": 9.0}),
        (Cause.TRAFFIC, {"ran": 1.0, "busiest": 0.98, "in_flight": 30, "threads": 2.0}),
        (
            Cause.TRAFFIC,
            {"ran": 7.9, "queued": 20.0, "in_flight": 40, "threads": 40.0, "count": 10},
        ),
        (Cause.TRAFFIC, {"ran": 6.9, "queued": 8.0, "in_flight": 40, "threads": 40.0, "count": 10}),
        (Cause.TRAFFIC, {"ran": 1.0, "at_lock": 15.0, "threads": 20.0, "in_flight": 30}),
        (Cause.NOT_KNOWN, {}),
        (Cause.NOT_KNOWN, {"ran": 1.0, "queued": 0.3, "in_flight": 2}),  # it computes itself
        (Cause.NOT_KNOWN, {"ran": 1.0, "busiest": 1.0, "in_flight": 1}),  # and has no queue
        (Cause.NOT_KNOWN, {"ran": 2.0, "queued": 2.0, "in_disk": 1.9}),  # none is clearly larger
        (Cause.NOT_KNOWN, {"ran": 1.0, "queued": 3.0, "in_disk": 1.1, "count": 10}),
        (Cause.NOT_KNOWN, {"ran": 6.0, "queued": 8.0, "count": 10}),  # others have a quarter
        (Cause.NOT_KNOWN, {"ran": 0.2, "queued": 0.2}),  # little beside eight requests
        (Cause.NOT_KNOWN, {"at_lock": 2.0}),  # requests are elsewhere
        (Cause.NOT_KNOWN, {"at_lock": 24.0, "threads": 33.0}),  # eight threads have eight requests
        (Cause.NOT_KNOWN, {"at_lock": 8.0, "threads": 9.0, "free": 1.0}),  # none can hold the lock
        (Cause.NOT_KNOWN, {"ran": 3.0, "at_lock": 7.0, "threads": 9.0}),  # the holder computes
        (Cause.NOT_KNOWN, {"hits": 900, "returned": 9000}),  # pages come back, nobody waits
    ],
)
def test_causes(cause: Cause, what: dict[str, float]) -> None:
    assert found(**what).cause is cause


def test_pressure_shows_the_disk_and_memory_where_samples_do_not() -> None:
    for name, cause in (("disk_stall_s", Cause.DISK), ("memory_stall_s", Cause.MEMORY)):
        rates = {} if cause is Cause.DISK else {"hits": 90.0, "returned": 900.0}
        seen = [
            one._replace(waits=replace(one.waits, **{name: 0.9 * one.waits.at_s}))
            for one in readings(in_flight=1, ran=0.05, **rates)  # type: ignore[arg-type]
        ]
        result = judge(seen, service(), CORES, 30.0)
        assert result is not None
        assert result.cause is cause


def test_a_callee_that_was_known_in_few_samples_is_not_blamed() -> None:
    seen = [
        one if at < 3 else one._replace(callees=()) for at, one in enumerate(readings(callee=8.0))
    ]
    result = judge(seen, service(), CORES, 30.0)
    assert result is not None
    assert result.cause is Cause.NOT_KNOWN


def test_too_little_says_nothing() -> None:
    assert judge((), service(), CORES, 30.0) is None
    few = readings(in_disk=8.0, count=SAMPLES_MIN - 1)
    assert judge(few, service(), CORES, 30.0) is None
    soon = [
        one._replace(waits=replace(one.waits, at_s=one.waits.at_s / 10))
        for one in readings(in_disk=8.0)
    ]
    assert judge(soon, service(), CORES, 30.0) is None


def test_open_requests_follow_from_latency_where_the_job_does_not_count_them() -> None:
    """100 requests of 0.2 s in 30 s: 0.67 are open at a time."""
    assert found(in_flight=0, in_disk=0.6).cause is Cause.DISK
    assert found(in_flight=0, in_disk=0.2).cause is Cause.NOT_KNOWN


@pytest.mark.parametrize(
    ("what", "limit", "text"),
    [
        ({"in_disk": 6.0}, None, "On average 6.0 of its 10 threads waited for the disk"),
        ({"at_lock": 7.0, "threads": 9.0}, None, "Of its 8.0 open requests 7.0 waited at one lock"),
        ({"callee": 7.0}, None, "Of its 8.0 open requests 7.0 waited for db, which takes 700 ms"),
        (
            {"ran": 0.5, "queued": 2.0, "throttled": 0.97, "count": 10},
            0.5,
            "It was at its limit of 0.50 cores in 97 % of the kernel's periods.",
        ),
    ],
)
def test_the_evidence_has_the_numbers(
    what: dict[str, float], limit: float | None, text: str
) -> None:
    assert text in found(service(limit=limit), **what).evidence


@pytest.mark.parametrize(
    ("used_mib", "cause"), [(63, Cause.MEMORY), (40, Cause.DISK), (None, Cause.DISK)]
)
def test_a_limit_whose_hits_are_not_counted_shows_by_use(
    used_mib: int | None, cause: Cause
) -> None:
    used = Usage(memory_bytes=None if used_mib is None else used_mib << 20)
    job = replace(service(), memory=MemoryUse(limit_bytes=64 << 20), usage=used)
    assert found(job, in_disk=4.0, returned=900).cause is cause


def test_the_evidence_of_memory_names_the_limit() -> None:
    job = replace(service(), memory=MemoryUse(limit_bytes=64 << 20))
    result = found(job, in_disk=4.0, hits=90, returned=900)
    assert "limit of 64 MiB" in result.evidence
    assert "900 pages a second" in result.evidence


def test_threads_that_spin_are_no_lack_of_cpu() -> None:
    sample = ThreadsFact(0.0, 4, 0.5, 3.0, 0.6, "libgomp.so.1")
    spinning = Spinning(4, 0.5, limited=True, spun_ratio=0.6, library="libgomp.so.1")
    lacks = {"ran": 0.5, "queued": 3.0, "throttled": 0.99}
    job = replace(service(limit=0.5), threads=ThreadUse(sample, spinning, spun=True))
    assert found(job, **lacks).cause is Cause.THREADS
    assert found(job, in_disk=6.0).cause is Cause.DISK
    # One sample alone may be chance: until the next one nothing is said.
    job = replace(job, threads=ThreadUse(sample))
    assert judge(readings(**lacks), job, CORES, 30.0) is None  # type: ignore[arg-type]
    # Nor while they were not sampled, unless that takes too long.
    assert judge(readings(**lacks), service(), CORES, 30.0) is None  # type: ignore[arg-type]
    assert found(count=10, **lacks).cause is Cause.CPU
    job = replace(job, threads=ThreadUse(replace(sample, spun_ratio=0.0)))
    assert found(job, **lacks).cause is Cause.CPU


AMOUNT = st.floats(0.0, 16.0)


@given(
    in_disk=AMOUNT,
    callee=AMOUNT,
    queued=st.floats(0.0, 1.0),
    ran=st.floats(0.0, 8.0),
    at_lock=AMOUNT,
    in_flight=st.floats(0.0, 64.0),
)
def test_cpu_is_named_only_where_threads_wait_for_it(
    in_disk: float, callee: float, queued: float, ran: float, at_lock: float, in_flight: float
) -> None:
    result = found(
        in_disk=in_disk,
        callee=callee,
        queued=queued * max(in_disk, callee),  # something else is at least as large
        ran=ran,
        at_lock=at_lock,
        in_flight=in_flight,
    )
    assert result.cause is not Cause.CPU or queued * max(in_disk, callee) == 0.0


def test_who_misses_a_target() -> None:
    assert misses(service(0.06))
    assert not misses(service(0.04))
    assert not misses(replace(service(0.06), state=JobState.STOPPING))
    assert not misses(replace(service(0.06), progress=Progress()))


def test_which_training_hardly_computes() -> None:
    assert misses(training(0.4))
    assert not misses(training(0.6))
    assert not misses(training(None))
    assert not misses(replace(training(0.4), state=JobState.STOPPING))
    assert not misses(training(0.4, container=ContainerSpec("m", gpus=1)))
