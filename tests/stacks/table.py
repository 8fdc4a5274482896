"""Which programs people run, what reads them, and how far each was tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from dlsched.runtime.progress.sources import METRICS


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
    """Empty: none; the labels say everything."""
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
    unread: int = 0
    """Evaluations at the end that cannot be read."""
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

    @property
    def all_labels(self) -> dict[str, str]:
        """The labels that a container of it would have."""
        return {METRICS: self.preset, **self.labels} if self.preset else dict(self.labels)


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

# The rest of this table's trainings run on torch.
TORCH = (
    _training(
        "keras",
        "Keras 3 on torch, its bar",
        "keras",
        "accuracy",
        "keras_train.py bar",
        printed_to=1e-4,
        packages=("keras", "torch"),
        environment="torch",
    ),
    _training(
        "keras-lines",
        "Keras 3 on torch, one line an epoch (verbose=2)",
        "keras",
        "accuracy",
        "keras_train.py lines",
        printed_to=1e-4,
        packages=("keras", "torch"),
        environment="torch",
    ),
    _training(
        "hf-trainer",
        "Hugging Face Trainer",
        "hf-trainer",
        "eval_loss",
        "hf_trainer.py",
        printed_to=1e-4,
        packages=("transformers", "torch"),
        environment="torch",
    ),
    _training(
        "lightning",
        "Lightning, its bar of tqdm",
        "lightning",
        "accuracy",
        "lightning_train.py bar",
        printed_to=1e-3,
        unread=1,
        packages=("lightning", "torch"),
        environment="torch",
        note='`self.log("val_acc", ..., prog_bar=True)`, and TQDMProgressBar: the bar of rich, '
        "the default where rich is installed, stands in a log once, at the end. The last epoch's "
        "value is not read: a bar shows it only together with stale ones",
    ),
    _training(
        "lightning-print",
        "Lightning, a callback that prints",
        "",
        "accuracy",
        "lightning_train.py print",
        labels={"dlsched.metrics.pattern": r"epoch=(?P<step>[0-9]+) val_acc=(?P<accuracy>[0-9.]+)"},
        printed_to=1e-4,
        packages=("lightning", "torch"),
        environment="torch",
        note="a pattern of its own: `dlsched.metrics.pattern`",
    ),
    _training(
        "sb3",
        "Stable-Baselines3",
        "sb3",
        "reward",
        "sb3_train.py",
        printed_to=0.1,
        packages=("stable_baselines3", "torch"),
        environment="torch",
    ),
    _training(
        "torchrun",
        "torchrun with 2 ranks, each of which prints",
        "",
        "accuracy",
        "torchrun_ranks.py",
        labels={
            "dlsched.metrics.pattern": r"epoch (?P<step>[0-9]+): accuracy (?P<accuracy>[0-9.]+)"
        },
        printed_to=1e-4,
        packages=("torch",),
        environment="torch",
        note="a pattern of its own: `dlsched.metrics.pattern`",
    ),
    _training(
        "yolo",
        "Ultralytics YOLO",
        "yolo",
        "map",
        "yolo_train.py",
        printed_to=1e-3,
        packages=("ultralytics", "torch"),
        environment="vision",
        note="at the end the best weights are evaluated once more: it counts for the last epoch "
        "unless the value is the same",
    ),
)

STACKS = (*SERVING, *TRAINING, *TORCH)
BY_NAME = {one.name: one for one in STACKS}
