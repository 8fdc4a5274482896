"""Blindness: a running job whose progress is unknown, so no limit can be based on it. An idle
service and a training between two evaluations have nothing to report, so they are not blind. A
service whose latency is unclear, or of which too many requests fail, is treated like a blind one:
its answers do not say whether it has enough CPU."""

from __future__ import annotations

from dlsched.estimate.measured import surely_failing, too_many_fail, unclear
from dlsched.model.facts import ContainerFact
from dlsched.model.spec import MAX_FAILED_RATIO, LatencyTarget, Target
from dlsched.model.state import Progress
from dlsched.model.units import render_seconds

BLIND_AFTER_S = 60.0


def blindness(
    target: Target | None,
    fact: ContainerFact,
    progress: Progress,
    *,
    began_s: float,
    idle: bool,
    now_s: float,
    after_s: float,
    max_failed_ratio: float = MAX_FAILED_RATIO,
) -> str | None:
    """Why a running job is blind, in a few words; None: it is not. `began_s` is when it began to
    run, as no report is due before. `idle`: its last report said that no request was in flight."""
    if target is None:
        return None
    if not fact.has_source:
        return "no source of progress is given"
    reported_s = progress.as_of_s
    if now_s - max(began_s, began_s if reported_s is None else reported_s) <= after_s:
        if isinstance(target, LatencyTarget) and surely_failing(progress.recent, max_failed_ratio):
            return too_many_fail(max_failed_ratio)
        return unclear(target, progress.recent)
    silence = render_seconds(after_s)
    if reported_s is None or reported_s < began_s:
        return f"no report in the first {silence}"
    if progress.trouble is not None:
        return f"no report for {silence}: its source cannot be read"
    if isinstance(target, LatencyTarget) and not idle:
        return f"no report for {silence}"
    return None
