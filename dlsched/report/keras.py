"""Keras reports: `model.fit(..., callbacks=[ProgressCallback()])`. For Keras 3 and the Keras in
TensorFlow. It never raises; without Keras the class is unused."""

from __future__ import annotations

import contextlib
import time
from typing import Any, Optional

from dlsched.report.metric_names import TOTAL_STEPS, of_evaluation, of_training
from dlsched.report.progress import Progress
from dlsched.report.writer import PERIOD_S

try:
    from keras.callbacks import Callback  # type: ignore[import-not-found]
except Exception:  # noqa: BLE001 - the script's own import reports the failure
    Callback = object


class ProgressCallback(Callback):  # type: ignore[misc]
    """Reports each batch as a step, its metrics once a second, and every epoch's evaluation.

    After an epoch it reports the total number of steps, where Keras knows it. A training batch's
    `accuracy` is reported as `train_accuracy`, and `val_accuracy` also as `accuracy`. Scripts
    report checkpoints themselves, by `Progress().checkpoint(step, path)`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._progress = Progress()
        self._step = 0
        self._reported_s: Optional[float] = None

    def on_epoch_begin(self, epoch: Any, _logs: Any = None) -> None:
        """Count on from earlier epochs, also those of an earlier run."""
        with contextlib.suppress(Exception):
            self._step = max(self._step, epoch * int((self.params or {}).get("steps") or 0))

    def on_train_batch_end(self, _batch: Any, logs: Any = None) -> None:
        """Report the step."""
        with contextlib.suppress(Exception):
            self._step += 1
            now_s = time.monotonic()
            due = self._reported_s is None or now_s - self._reported_s >= PERIOD_S
            if due:
                self._reported_s = now_s
            self._progress.step(self._step, **(of_training(logs or {}) if due else {}))

    def on_epoch_end(self, _epoch: Any, logs: Any = None) -> None:
        """Report the epoch's metrics and its evaluation."""
        with contextlib.suppress(Exception):
            values = logs or {}
            held_out = {name: values[name] for name in values if name.startswith("val_")}
            trained = {name: values[name] for name in values if name not in held_out}
            given = self.params or {}
            total = int(given.get("steps") or 0) * int(given.get("epochs") or 0)
            planned = {TOTAL_STEPS: total} if total >= self._step else {}
            metrics = {**planned, **of_training(trained), **of_evaluation(held_out)}
            self._progress.step(self._step, **metrics)
