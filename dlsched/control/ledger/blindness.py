"""Who is blind, and who is idle. Blind: a running job whose progress is unknown, so no limit can be
based on it. Idle: a service without requests, which has nothing to report. A training between two
evaluations is neither. A service whose latency is unclear, or of which too many requests fail, is
treated like a blind one: its answers do not say whether it has enough CPU."""

from __future__ import annotations

from typing import NamedTuple

from dlsched.estimate.measured import lacking, surely_failing, too_many_fail, unclear
from dlsched.estimate.tuning import THROTTLED_RATIO
from dlsched.model.facts import ContainerFact, Usage
from dlsched.model.spec import MAX_FAILED_RATIO, LatencyTarget, Target
from dlsched.model.state import Idle, Progress
from dlsched.model.units import render_seconds

BLIND_AFTER_S = 60.0
IDLE_CORES = 0.05
"""Cores, as a mean over a silence, up to which a service does no work. Measured over a minute
without requests: http.server and gunicorn 0.0002, uvicorn 0.002, four workers of it 0.01, Flask
with its reloader 0.003; a health check that starts Python takes 0.14 core-seconds, which is 0.03
cores each 5 s. One request a second of 60 ms of CPU time is above it."""


class Silence(NamedTuple):
    """What is measured of a job beside its reports."""

    request_s: float | None = None
    """When its last requests were reported (monotonic), failed ones too; None: never."""
    in_flight: bool | None = None
    """Whether a writer had requests in flight at its last report; None: none said."""
    cores: float | None = None
    """Mean CPU use since its last report of latencies, over `SILENCE_S` or more; None: unread."""
    start_observed: bool = False
    """Whether its start was observed."""
    failing_s: float | None = None
    """When its first failed request since its last answer was reported; None: it failed none."""
    latency_s: float | None = None
    """When its last report of latencies came, of no request too; None: never."""


class Condition(NamedTuple):
    blind: str | None = None
    idle: Idle | None = None


NEITHER = Condition()


def condition(
    target: Target | None,
    fact: ContainerFact,
    progress: Progress,
    silence: Silence,
    usage: Usage,
    *,
    began_s: float,
    now_s: float,
    after_s: float,
    max_failed_ratio: float = MAX_FAILED_RATIO,
) -> Condition:
    """Why a running job is blind, in a few words, or since when it is idle. `began_s` is when it
    began to run, as no report is due before. `after_s`: how long it may report nothing."""
    if target is None:
        return NEITHER
    if not fact.has_source:
        return Condition("the job names no source of progress")
    lacks = progress.lacks
    if lacks is not None and now_s - max(began_s, lacks.since_s) > after_s:
        return Condition(lacking(target, progress))
    # What a service reports beside its latency does not say whether it has requests.
    as_of_s = silence.latency_s if isinstance(target, LatencyTarget) else progress.as_of_s
    silent = now_s - max(began_s, as_of_s or began_s) > after_s
    fails = isinstance(target, LatencyTarget) and surely_failing(progress.recent, max_failed_ratio)
    if fails and not silent:
        return Condition(too_many_fail(max_failed_ratio))
    never = as_of_s is None or as_of_s < began_s
    if silent and never and progress.as_of_s is not None and progress.as_of_s >= began_s:
        return Condition("the job reports, but never a latency")
    mute = f"no report in the first {render_seconds(after_s)}"
    if not never:
        mute = f"no report for {render_seconds(after_s)}"
    if silent and progress.trouble is not None:
        return Condition(f"{mute}: {progress.trouble}")
    log = progress.log
    if silent and never and log is not None and log.lines and not log.matched:
        return Condition(f"{mute}: none of the log's lines matches the pattern")
    if not isinstance(target, LatencyTarget):
        return Condition(mute) if silent and never else NEITHER
    request_s = max(began_s, silence.request_s or began_s)
    if now_s - request_s <= after_s:
        if silence.failing_s is not None and now_s - max(began_s, silence.failing_s) > after_s:
            return Condition(f"each request has failed for {render_seconds(after_s)}")
        return Condition(unclear(target, progress.recent))
    began = silence.start_observed and request_s == began_s
    if not silent:
        # Its reports count no request. Of one that waits for its answer they may tell.
        return NEITHER if progress.in_flight else Condition(idle=Idle(request_s, began))
    if silence.in_flight is not None and not never:
        return Condition(mute) if silence.in_flight else Condition(idle=Idle(request_s, began))
    if silence.cores is None or (usage.throttled_ratio or 0.0) > THROTTLED_RATIO:
        return Condition(mute)
    if silence.cores > IDLE_CORES:
        return Condition(f"{mute}, although the job uses CPU")
    return Condition(idle=Idle(request_s, began, certain=False))
