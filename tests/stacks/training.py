"""The training programs."""

from __future__ import annotations

import platform

from tests.stacks.stack import Stack

LIBGOMP = f"/usr/lib/{platform.machine()}-linux-gnu/libgomp.so.1"
"""OpenMP, of Debian's package libgomp1."""


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
        files=(LIBGOMP,),
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
        files=(LIBGOMP,),
        environment="boosting",
    ),
)

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
        ends_with_best=True,
        note="at the end the best weights are evaluated once more: it counts for the last epoch "
        "unless the value is the same",
    ),
)
