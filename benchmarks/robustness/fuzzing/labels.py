"""Labels that strangers wrote, in the engine's answers on containers.

Promised: a description with values of the kinds that it names, or one line on why there is none.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from random import Random
from typing import Any

from benchmarks.robustness.fuzzing.trial import (
    Target,
    refusable,
    told,
    told_line,
)
from dlsched.model.facts import ContainerState
from dlsched.model.spec import ContainerSpec, Restart, Stop
from dlsched.runtime.docker.identity.adoption import NotAdoptable, counting, spec_of
from dlsched.runtime.docker.identity.labels import inherits, inspected, labels_in
from dlsched.runtime.machine.inspected import Inspected
from dlsched.runtime.originals import EngineLimits
from dlsched.runtime.progress.sources import read_sources
from tests.mutation import NUMBERS, TEXTS, Broken, mutated, mutated_json

_LABELS = {
    "dlsched.instance": "default",
    "dlsched.job": "face-unlock",
    "dlsched.digest": "d" * 64,
    "dlsched.container-digest": "c" * 64,
    "dlsched.source": "face-unlock.yaml",
    "dlsched.stop.signal": "SIGTERM",
    "dlsched.stop.grace": "30",
    "dlsched.restart": "on-failure:3",
    "dlsched.made": "0123456789abcdef",
}
ASKING = {
    "dlsched.enable": "true",
    "dlsched.target.latency": "50ms",
    "dlsched.target.quantile": "p95",
    "dlsched.target.metric": "accuracy",
    "dlsched.target.deliver": "0.9",
    "dlsched.target.finish": "0.97",
    "dlsched.target.deadline": "2h",
    "dlsched.cpus.min": "0.1",
    "dlsched.cpus.max": "2",
    "dlsched.weight": "2",
    "dlsched.metrics": "vllm",
    "dlsched.metrics.where.model_name": "!llama-.*",
    "dlsched.metrics.unit": "us",
    "dlsched.metrics.total": "ts_inference_latency_microseconds",
    "dlsched.metrics.count": "ts_inference_requests_total",
    "dlsched.metrics.per": "model_name",
    "dlsched.metrics.via": "edge",
    "dlsched.metrics.step": "carried",
    "dlsched.metrics.when": "at == of",
    "dlsched.metrics.path": "/metrics.jsonl",
    "dlsched.metrics.port": "8000",
    "dlsched.metrics.http_path": "/metrics",
    "dlsched.metrics.name": "vllm:e2e_request_latency_seconds",
    "dlsched.metrics.pattern": "step=(?P<step>\\d+) loss=(?P<loss>[0-9.]+)",
}
VALUES = (
    *NUMBERS,
    *TEXTS,
    *ASKING.values(),
    *_LABELS.values(),
    "true",
    "{a: 1}",
    "[1]",
    "x" * 5000,
)
KEYS = (
    *_LABELS, *ASKING, "dlsched.", "dlsched.x", "dlsched.target", "dlsched.cpus",
    "dlsched.metrics.where.", "dlsched.metrics.where.a b", "dlsched.metrics.",
    "dlsched.metrics.base", "team", "Id",
    "Name", "State", "Status", "Config", "HostConfig", "Labels", "RestartPolicy", "Error", "Pid",
)  # fmt: skip


_CONTAINER = ContainerSpec(image="image")


def _body(labels: dict[str, str]) -> dict[str, Any]:
    return {
        "Id": "0123456789abcdef" * 4,
        "Name": "/dlsched-face-unlock",
        "Image": "sha256:" + "1" * 64,
        "RestartCount": 2,
        "State": {
            "Status": "running", "Pid": 7, "StartedAt": "2026-11-21T11:00:00Z", "ExitCode": 0,
            "OOMKilled": False, "Error": "",
        },
        "Config": {"Labels": labels, "Image": "dlsched-examples/inference", "Env": ["A=b"]},
        "HostConfig": {
            "CpuQuota": 37_000, "CpuPeriod": 100_000, "CpuShares": 512, "NanoCpus": 0,
            "Memory": 0, "RestartPolicy": {"Name": "on-failure", "MaximumRetryCount": 3},
        },
    }  # fmt: skip


_ASKED = tuple(one.encode() for one in ASKING.values())


def _hurt(rng: Random, value: str) -> str:
    return mutated(rng, value.encode(), _ASKED, _ASKED).decode("utf-8", "replace")


def make_labels(rng: Random) -> bytes:
    labels = dict(_LABELS) if rng.random() < 0.5 else {"dlsched.enable": "true"}
    for name in rng.sample(list(ASKING), rng.randrange(5)):
        labels[name] = ASKING[name]
    for _ in range(rng.randrange(4)):
        value = rng.choice(VALUES)
        value = _hurt(rng, value) if rng.random() < 0.4 else value
        labels[rng.choice(KEYS)] = value
    if rng.random() < 0.01:
        labels |= {f"dlsched.{number}": "x" for number in range(rng.randrange(3000))}
    image = {name: labels[name] for name in labels if rng.random() < 0.1}
    body = _body(labels)
    if rng.random() < 0.3:
        body = mutated_json(rng, body, KEYS)
    return json.dumps({"body": body, "image": {"Config": {"Labels": image}}}).encode()


def read_labels(data: bytes) -> str:
    try:
        given = json.loads(data)
        body, image = dict(given["body"]), dict(given["image"])
    except (ValueError, KeyError, TypeError):
        return "no answer of an engine"
    found = refusable(inspected, body)
    _check(found)
    labels = labels_in(body)
    try:
        given = labels_in(image)
    except (AttributeError, TypeError):
        return "no image of an engine"
    own = counting(labels, given)

    def spec() -> str:
        return json.dumps(asdict(spec_of(found.name, own, _CONTAINER, None)), allow_nan=False)

    lines = (
        found,
        inherits(labels, given),
        told(spec, meant=NotAdoptable),
        told(read_sources, own),
    )
    return "\n".join(map(str, lines))


_KINDS = {
    "container_id": str, "name": str, "image": str, "job": str, "digest": str, "source": str,
    "container_digest": str, "stop": Stop, "state": ContainerState, "pid": int, "started_at": str,
    "instance": str | None, "exit_code": int | None, "oom_killed": bool, "error": str | None,
    "restarts": int, "limits": EngineLimits, "restart": Restart | None,
}  # fmt: skip


def _check(found: Inspected) -> None:
    for name, meant in _KINDS.items():
        if not isinstance(getattr(found, name), meant):  # type: ignore[arg-type]
            raise Broken(f"{name} is of another kind: {getattr(found, name)!r}")
    if not 0 <= found.stop.grace_s < math.inf:
        raise Broken(f"a grace that is none: {found.stop.grace_s}")
    if not isinstance(found.stop.signal, str):
        raise Broken(f"a signal that is none: {found.stop.signal!r}")
    told_line(found.error or "none")


def labels() -> Target:
    return Target("labels", make_labels, read_labels)
