"""Which programs people run, what reads them, and how far each was tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Tried(StrEnum):
    """How far a stack was tried."""

    RUN = "really run"
    DOCUMENTED = "documented format"
    NOT_TRIED = "not tried"


@dataclass(frozen=True)
class Stack:
    """One serving or training program."""

    name: str
    title: str
    """As people call it."""
    preset: str
    reads: str
    """What is read of it."""
    tried: Tried = Tried.RUN
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels beside the preset's name."""
    metric: str | None = None
    """Of a training, the target's metric; None: a service, with a latency."""
    group: str | None = None
    """The pattern's group, where it is not called as the metric."""
    printed_to: float = 0.0
    """Resolution of the printed metric."""
    has_quantiles: bool = True
    """Whether a percentile can be read."""
    problem: str | None = None
    """What must be told, since it cannot be read."""
    command: tuple[str, ...] = ()
    """The program under programs/, with its arguments."""
    packages: tuple[str, ...] = ()
    """Those whose versions say what was run; the first is the stack itself."""
    environment: str = "serving"
    """Of tests/stacks/requirements: what it runs in."""
    timeout_s: float = 180.0
    note: str = ""
    """What it needs beyond what the preset says, or why it was not run."""


def _service(name: str, title: str, preset: str, reads: str, program: str, **more: object) -> Stack:
    return Stack(name, title, preset, reads, command=tuple(program.split()), **more)  # type: ignore[arg-type]


LATENCY = "latency: mean and percentiles"
MEAN = "latency: mean"

SERVING = (
    _service(
        "fastapi",
        "FastAPI with prometheus-fastapi-instrumentator, uvicorn",
        "fastapi",
        LATENCY,
        "fastapi_single.py",
        packages=("prometheus-fastapi-instrumentator", "fastapi", "uvicorn"),
    ),
    _service(
        "fastapi-multiprocess",
        "the same under gunicorn with 2 workers, multi-process mode",
        "fastapi",
        LATENCY,
        "fastapi_gunicorn.py multiprocess",
        packages=("prometheus-fastapi-instrumentator", "fastapi", "gunicorn", "uvicorn-worker"),
        note="PROMETHEUS_MULTIPROC_DIR names a folder",
    ),
    _service(
        "fastapi-in-turn",
        "the same without multi-process mode",
        "fastapi",
        "nothing: `ps` and `why` say that several processes answer in turn, and what helps",
        "fastapi_gunicorn.py in-turn",
        packages=("prometheus-fastapi-instrumentator", "fastapi", "gunicorn", "uvicorn-worker"),
        problem="several processes answer in turn",
    ),
    _service(
        "prometheus-multiprocess",
        "Prometheus' own Python client, 4 processes, multi-process mode",
        "fastapi",
        LATENCY,
        "prometheus_multiprocess.py",
        labels={"dlsched.metrics.name": "inference_duration_seconds"},
        packages=("prometheus-client",),
        note="`dlsched.metrics.name`: your histogram's name; PROMETHEUS_MULTIPROC_DIR",
    ),
    _service(
        "starlette",
        "Starlette with starlette_exporter",
        "starlette",
        LATENCY,
        "starlette_exporter_run.py",
        packages=("starlette_exporter", "starlette"),
    ),
    _service(
        "flask",
        "Flask with prometheus_flask_exporter",
        "flask",
        LATENCY,
        "flask_exporter.py",
        packages=("prometheus_flask_exporter", "flask", "gunicorn"),
    ),
    _service(
        "gunicorn-log",
        "gunicorn's access log, 2 workers",
        "gunicorn",
        LATENCY,
        "gunicorn_log.py",
        packages=("gunicorn", "flask"),
    ),
    _service(
        "nginx-log",
        "nginx as proxy, by its access log",
        "nginx",
        LATENCY,
        "nginx_log.py",
        packages=("nginx", "gunicorn"),
    ),
)


def _training(
    name: str, title: str, preset: str, metric: str, program: str, **more: object
) -> Stack:
    return Stack(
        name,
        title,
        preset,
        f"learning curve: {metric}",
        metric=metric,
        command=tuple(program.split()),
        **more,  # type: ignore[arg-type]
    )


TRAINING = (
    _training(
        "xgboost",
        "XGBoost by its scikit-learn interface",
        "xgboost",
        "auc",
        "xgboost_train.py sklearn",
        printed_to=1e-5,
        packages=("xgboost",),
        environment="boosting",
    ),
    _training(
        "xgboost-native",
        "XGBoost by its own interface, several metrics",
        "xgboost",
        "auc",
        "xgboost_train.py native",
        printed_to=1e-5,
        packages=("xgboost",),
        environment="boosting",
    ),
    _training(
        "lightgbm",
        "LightGBM, evaluated on training data and one set",
        "lightgbm",
        "auc",
        "lightgbm_train.py two",
        printed_to=1e-6,
        packages=("lightgbm",),
        environment="boosting",
    ),
    _training(
        "lightgbm-one-set",
        "LightGBM, evaluated on one set alone",
        "lightgbm",
        "auc",
        "lightgbm_train.py one",
        printed_to=1e-6,
        packages=("lightgbm",),
        environment="boosting",
    ),
)

STACKS = (*SERVING, *TRAINING)
BY_NAME = {one.name: one for one in STACKS}
