"""Forecast of a service's latency target and the reason in text, cached by rounded numbers."""

from __future__ import annotations

import math
from functools import lru_cache

from dlsched.estimate.sketch import measured_s, quantile_bounds
from dlsched.estimate.tuning import FEW_REQUESTS, LITTLE, QUIET_S
from dlsched.model.forecast import Forecast, ForecastKind, as_of
from dlsched.model.resource import CPU, Resource
from dlsched.model.spec import BAND_RATIO
from dlsched.model.state import JobView, Progress
from dlsched.model.units import counted, render_quantile
from dlsched.model.units import render_seconds as _s
from dlsched.policies.adaptive.services.model import ServiceMemory

_SHORTEST_S, _LONGEST_S = 0.1, 3600.0
_KEPT = 8192
_HUNG = 10
"""A service hangs if it answers nothing while its oldest request is so many times its typical
latency old, and at least `QUIET_S`, since a service that starts or is moved pauses too."""
_HANGS = (
    f"the job hangs: its oldest request has waited over {_HUNG} times as long, and none is answered"
)


def met_outlook(
    one: ServiceMemory,
    job: JobView,
    now_s: float,
    cores: float | None,
    needs_cores: float,
    *,
    band: bool,
    resource: Resource = CPU,
) -> tuple[str, Forecast]:
    """For a service that has the CPU to meet its target: the ceiling and the mean use it needs."""
    model, target_s = one.model, one.target_s
    assert model is not None
    now_is_s = measured(one, job.progress)
    if _hangs(job.progress, max(now_is_s, target_s)):
        return unknown_outlook(target_s, one.quantile, _HANGS)
    given = None if cores is None else _three(cores)
    needs = _three(needs_cores)
    rounded = (target_s, one.quantile, _three(now_is_s), given, needs, resource)
    if _keeps(now_is_s, target_s, band=band):
        return _with_cpu(ForecastKind.MET, *rounded)
    samples = (model.cv / LITTLE) ** 2 + 1.0
    rate = model.rate_per_s
    in_s = _three(max(samples / rate, _SHORTEST_S) if rate > 0.0 else _LONGEST_S)
    # Counted from the last change of limits: a later forecast would never come true.
    at_s = max(job.changed_at_s or 0.0, job.started_at_s or 0.0) + in_s
    answer = _with_cpu(ForecastKind.EXPECTED, *rounded, round(at_s), in_s)
    if as_of(answer[1], now_s) is answer[1]:
        return answer
    return _with_cpu(ForecastKind.UNKNOWN, *rounded)


def hopeless_outlook(
    one: ServiceMemory, job: JobView, now_s: float, *, band: bool, resource: Resource = CPU
) -> tuple[str, Forecast]:
    """For a service whose target cannot be met by its model; unknown if measured to be met. What is
    measured is a bound of the best: on a busy host the model, which takes waiting for the host's
    CPUs for its own, may expect worse."""
    target_s = one.target_s
    if _hangs(job.progress, max(one.best_s or 0.0, target_s)):
        return unknown_outlook(target_s, one.quantile, _HANGS)
    if job.progress.window.count >= FEW_REQUESTS:
        now_is_s = measured(one, job.progress)
        if _keeps(now_is_s, target_s, band=band):
            return _unexpected(target_s, one.quantile, _three(now_is_s))
    tried = one.useless_until_s > now_s
    model_s = one.best_s or 0.0
    shown_s, count = _shown(job.progress, one.quantile)
    if shown_s is None or shown_s >= model_s:
        best_s = float(f"{model_s:.3g}")
        return impossible_outlook(target_s, one.quantile, best_s, tried, resource)
    if shown_s <= target_s:
        of = f" of {counted(count, 'request')}"
        return _unexpected(target_s, one.quantile, _three(shown_s), of)
    best_s = _three(shown_s, down=True)
    return impossible_outlook(target_s, one.quantile, best_s, tried, resource, is_measured=True)


def expected_s(one: ServiceMemory, cores: float | None) -> float | None:
    """The latency, as the target measures it, that the model expects under this ceiling, in two
    digits; None: it expects none. Without a ceiling its CPU depends on what the others use."""
    if one.model is None or cores is None:
        return None
    mean_s = one.model.mean_s(cores)
    return None if mean_s is None else float(f"{mean_s * one.model.factor(one.quantile):.2g}")


def _shown(progress: Progress, quantile: float | None) -> tuple[float | None, int]:
    """The least that is measured now, under the present limits or under all of late, and of how
    many requests."""
    least_s, count = None, 0
    for sketch in (progress.recent, progress.window):
        seconds = measured_s(sketch, quantile)
        if seconds is not None and (least_s is None or seconds < least_s):
            least_s, count = seconds, sketch.count
    return least_s, count


def _keeps(latency_s: float, target_s: float, *, band: bool) -> bool:
    if band:
        return (1.0 - BAND_RATIO) * target_s <= latency_s <= (1.0 + BAND_RATIO) * target_s
    return latency_s <= target_s


def measured(one: ServiceMemory, progress: Progress) -> float:
    """The latency compared with its target, in seconds: of the requests under the present limits
    if they are enough, else the model's recent one."""
    model, window, quantile = one.model, progress.window, one.quantile
    assert model is not None
    if window.count < FEW_REQUESTS or (
        quantile is not None and window.count * (1.0 - quantile) < 1.0
    ):
        return model.measured_s * model.factor(quantile)
    if quantile is None:
        return window.sum_s / window.count / model.claim_ratio
    bounds = quantile_bounds(window, quantile)
    judged_s = None if bounds is None else bounds.against(one.target_s)
    if judged_s is None:
        return model.measured_s * model.factor(quantile)
    return judged_s / model.claim_ratio


def _hangs(progress: Progress, typical_s: float) -> bool:
    waits_s = progress.oldest_s if progress.in_flight and not progress.fresh.count else 0.0
    return waits_s > max(_HUNG * typical_s, QUIET_S)


@lru_cache(maxsize=_KEPT)
def _with_cpu(
    kind: ForecastKind,
    asked: float,
    quantile: float | None,
    measured: float,
    given: float | None,
    needs: float,
    resource: Resource,
    at_s: float | None = None,
    in_s: float = 0.0,
) -> tuple[str, Forecast]:
    """For a service that has the CPU to meet its target; `at_s`: when that will be measured, after
    `in_s` of requests."""
    now = _measured(asked, quantile, measured)
    limit = _limit(given, resource)
    if kind is ForecastKind.MET:
        why = f"{now}: {limit}; the job needs {resource.amount(needs, 'g')}"
    elif kind is ForecastKind.EXPECTED:
        why = (
            f"{now}: {limit}; the target is expected to be met, measured after {_s(in_s)} of new "
            "requests"
        )
    else:
        why = f"{now}: {limit}; the target was expected to be met by now, and is not"
    return why, Forecast(
        kind,
        "latency",
        at_s=at_s,
        earliest_s=None if at_s is None else round(at_s - 0.5 * in_s, 1),
        latest_s=None if at_s is None else round(at_s + in_s, 1),
        needs_cores=needs,
        why=why,
    )


@lru_cache(maxsize=_KEPT)
def crowded_outlook(
    asked: float,
    quantile: float | None,
    needs: float,
    lacks: tuple[tuple[str, float], ...],
    resource: Resource = CPU,
) -> tuple[str, Forecast]:
    """For a service left out of the chosen set; `lacks`: the jobs that could give it cores."""
    givers = " and ".join(f"{name} gave {resource.amount(cores, 'g')}" for name, cores in lacks)
    why = f"{_target(asked, quantile)} needs {resource.amount(needs, 'g')}"
    if givers:
        why += (
            f", but other services need the {resource.name} for their own targets; the target "
            f"would be met if {givers}"
        )
    else:
        why += f", more {resource.name} than is free now"
    return why, Forecast(
        ForecastKind.CROWDED,
        "latency",
        needs_cores=needs,
        lacks=lacks,
        why=why,
        why_has_numbers=True,
    )


@lru_cache(maxsize=_KEPT)
def impossible_outlook(
    asked: float,
    quantile: float | None,
    best: float,
    tried: bool,
    resource: Resource = CPU,
    is_measured: bool = False,
) -> tuple[str, Forecast]:
    """For a service whose target cannot be met on this node. `is_measured`: the best is what is
    measured now, since the model expects worse."""
    if tried:
        how = f"more {resource.name} was tried and did not help"
    elif is_measured:
        how = f"as measured now, and more {resource.name} is not expected to help"
    else:
        how = f"with all the {resource.name} that the job can use"
    if best > asked and _s(best) != _s(asked):
        why = f"{_target(asked, quantile)} cannot be met on this node: {_s(best)} at best, {how}"
    else:
        why = (
            f"{_target(asked, quantile)} cannot be met reliably on this node: {_s(best)} at best, "
            f"{how}, and single requests take longer"
        )
    return why, Forecast(
        ForecastKind.IMPOSSIBLE, "latency", best=best, why=why, why_has_numbers=True
    )


@lru_cache(maxsize=_KEPT)
def unknown_outlook(asked: float, quantile: float | None, reason: str) -> tuple[str, Forecast]:
    why = f"{_target(asked, quantile)}: {reason}"
    return why, Forecast(ForecastKind.UNKNOWN, "latency", why=why)


def _unexpected(
    asked_s: float, quantile: float | None, measured_s: float, of: str = ""
) -> tuple[str, Forecast]:
    """For a service that meets a target which its model calls impossible."""
    why = (
        f"{_measured(asked_s, quantile, measured_s, of)}: the target is met, though the policy's "
        "model of the job says that it cannot be"
    )
    return why, Forecast(ForecastKind.UNKNOWN, "latency", why=why)


def _measured(asked_s: float, quantile: float | None, measured_s: float, of: str = "") -> str:
    """Such as `p95 is 97.8 ms, target 50 ms`."""
    return f"{render_quantile(quantile)} is {_s(measured_s)}{of}, target {_s(asked_s)}"


def _target(asked_s: float, quantile: float | None) -> str:
    return f"target {render_quantile(quantile)} {_s(asked_s)}"


def _limit(cores: float | None, resource: Resource) -> str:
    return "no limit is set" if cores is None else f"the limit is {resource.amount(cores, 'g')}"


def _three(value: float, *, down: bool = False) -> float:
    """Rounded to three digits, so that the text does not change with every request. `down`: to no
    more than it is."""
    if not 1e-9 < value < 1e9:
        return value
    digits = 2 - math.floor(math.log10(value))
    near = round(value, digits)
    return round(near - 10.0**-digits, digits) if down and near > value else near
