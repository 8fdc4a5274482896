"""Writes a trace of one node as YAML for the strict reader, without keys at their default."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from dlsched.model.spec import Bounds, LatencyTarget, Target
from dlsched.simulation.node.learning_curves import Curve, Measured
from dlsched.simulation.node.workloads import (
    Fault,
    HostLoad,
    Load,
    ServiceLoad,
    SimulatedJob,
    Trace,
)


def render_trace(trace: Trace) -> str:
    """The text of a trace of one node, as they are generated and recorded."""
    whole = {
        "trace": 1,
        "name": trace.name,
        "node": {"cores": trace.node.cores, "memory": _bytes(trace.node.memory_bytes)},
        "duration": _seconds(trace.duration_s),
        "cycle": _seconds(trace.cycle_s),
        "window": _seconds(trace.window_s),
    }
    if trace.host:
        whole["host"] = _host_keys(trace.host)
    whole["jobs"] = [_job_keys(job) for job in trace.jobs]
    return yaml.dump(
        whole,
        Dumper=_Plain,
        sort_keys=False,
        default_flow_style=None,
        width=100,
        allow_unicode=False,
    )


def _host_keys(host: Iterable[HostLoad]) -> list[dict[str, Any]]:
    return [
        {
            "at": _seconds(one.at_s),
            "for": _seconds(one.for_s),
            "cores": one.cores,
            "shares": one.cpu_shares,
        }
        for one in host
    ]


class _Plain(yaml.SafeDumper):
    """A dumper without anchors and exponents."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _number(dumper: yaml.SafeDumper, value: float) -> yaml.Node:
    digits = f"{value:.9f}".rstrip("0")
    return dumper.represent_scalar("tag:yaml.org,2002:float", digits + "0" * digits.endswith("."))


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    # The strict reader takes 0o17 as a number, as in YAML 1.2; this library as text.
    style = "'" if value.startswith("0o") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style)


_Plain.add_representer(float, _number)
_Plain.add_representer(str, _text)


def _but(keys: Mapping[str, Any], **defaults: Any) -> dict[str, Any]:
    """The keys without those that are empty or at their default."""
    return {
        key: value
        for key, value in keys.items()
        if value is not None and value != [] and value != defaults.get(key)
    }


def _job_keys(job: SimulatedJob) -> dict[str, Any]:
    spec, bounds = job.spec, job.spec.bounds
    restart, memory_bytes = spec.container.restart, spec.container.memory_bytes
    retries = f":{restart.max_retries}" if restart.max_retries else ""
    cpus = None
    if bounds != Bounds():
        least = bounds.floor_cores if bounds.promised else None
        cpus = _but({"min": least, "max": bounds.ceiling_cores})
    return _but(
        {
            "name": job.name,
            "at": _seconds(job.arrives_s),
            "leaves": None if job.leaves_s is None else _seconds(job.leaves_s),
            "start_up": _seconds(job.start_up_s),
            "start_up_work": job.start_up_work_core_s,
            "weight": spec.weight,
            "cpus": cpus,
            "memory": None if memory_bytes is None else _bytes(memory_bytes),
            "restart": restart.name + retries,
            "target": _target_keys(spec.target),
            "background": spec.background,
            **_load_keys(job.load),
            "faults": [_fault_keys(one) for one in job.faults],
            "shifts": [
                {"at": _seconds(one.at_s), "work": one.work, "arrivals": one.arrivals}
                for one in job.shifts
            ],
        },
        at="0s",
        start_up="1s",
        start_up_work=0.0,
        weight=1.0,
        background=False,
        restart="no",
    )


def _fault_keys(fault: Fault) -> dict[str, Any]:
    length = None if fault.for_s is None else _seconds(fault.for_s)
    factor = fault.factor if fault.kind == "lying" else None
    keys = {"kind": fault.kind, "at": _seconds(fault.at_s), "for": length, "factor": factor}
    return _but(keys)


def _target_keys(target: Target | None) -> dict[str, Any] | None:
    if target is None:
        return None
    if isinstance(target, LatencyTarget):
        quantile = None if target.quantile is None else f"p{_digits(target.quantile * 100, 1)}"
        return _but({"latency": _seconds(target.seconds), "quantile": quantile})
    deadline = None if target.deadline_s is None else _seconds(target.deadline_s)
    return _but(
        {
            "metric": target.metric,
            "deliver": target.deliver,
            "finish": target.finish,
            "deadline": deadline,
        },
    )


def _load_keys(load: Load) -> dict[str, Any]:
    if isinstance(load, ServiceLoad):
        keys = {
            "work": load.work_core_s,
            "overhead": _seconds(load.overhead_s),
            "threads": load.threads,
            "noise": load.noise,
            "arrivals": load.arrivals_per_s,
        }
        return {"service": _but(keys, overhead="0s", threads=1.0)}
    keys = {
        "steps": load.steps,
        "work": load.work_core_s,
        "threads": load.threads,
        "evaluate_every": load.evaluate_every,
        "checkpoint_every": load.checkpoint_every,
        "noise": load.noise,
        "validation_set": load.validation_set,
        "curve": _curve_keys(load.curve),
    }
    return {"training": _but(keys, threads=1.0, noise=0.0)}


def _curve_keys(curve: Curve | Measured) -> dict[str, Any]:
    if isinstance(curve, Measured):
        return {"family": "points", "points": [list(point) for point in curve.points]}
    point = {"restart": "every"}.get(curve.family, "at")
    drawn = {
        "family": curve.family,
        "start": curve.start,
        "end": curve.end,
        "scale": curve.scale_steps,
        "exponent": curve.exponent if curve.family == "power" else None,
        point: curve.at_step or None,
        "for": curve.for_steps or None,
    }
    return _but(drawn)


def _seconds(duration_s: float) -> str:
    if 0 < duration_s < 1:
        return f"{_digits(duration_s * 1000, 6)}ms"
    return f"{_digits(duration_s, 6)}s"


def _bytes(size_bytes: int) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes % scale == 0:
            return f"{size_bytes // scale}{unit}"
    return str(size_bytes)


def _digits(value: float, places: int) -> str:
    text = f"{value:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
