"""Keras reports: `model.fit(..., callbacks=[ProgressCallback()])`.

Owns the callback, for Keras 3 and the Keras within TensorFlow. It must not raise; without a
usable Keras it is a class that nobody calls.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, Optional

from dlsched.report.metric_names import TOTAL_STEPS, of_evaluation, of_training
from dlsched.report.progress import Progress
from dlsched.report.writer import PERIOD_S

try:
    from keras.callbacks import Callback  # type: ignore[import-not-found]
except Exception:  # noqa: BLE001 - a script may import us before it finds out the same
    Callback = object


class ProgressCallback(Callback):  # type: ignore[misc]
    """Tells each batch as a step, its metrics once a second, and every epoch's evaluation.

    With an epoch it tells how many steps the training will take, where Keras knows.

    Keras calls a training batch's accuracy `accuracy`: it is told as `train_accuracy`, and
    `val_accuracy` as `accuracy` too. A checkpoint is the script's to tell, by
    `Progress().checkpoint(step, path)`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._progress = Progress()
        self._step = 0
        self._told_s: Optional[float] = None

    def on_epoch_begin(self, epoch: Any, _logs: Any = None) -> None:
        """Count on from the epochs before, also from those of an earlier run."""
        with contextlib.suppress(Exception):
            self._step = max(self._step, epoch * int((self.params or {}).get("steps") or 0))

    def on_train_batch_end(self, _batch: Any, logs: Any = None) -> None:
        """Tell the step."""
        with contextlib.suppress(Exception):
            self._step += 1
            now_s = time.monotonic()
            due = self._told_s is None or now_s - self._told_s >= PERIOD_S
            if due:
                self._told_s = now_s
            self._progress.step(self._step, **(of_training(logs or {}) if due else {}))

    def on_epoch_end(self, _epoch: Any, logs: Any = None) -> None:
        """Tell what the epoch gave, and its evaluation."""
        with contextlib.suppress(Exception):
            told = logs or {}
            held_out = {name: told[name] for name in told if name.startswith("val_")}
            trained = {name: told[name] for name in told if name not in held_out}
            given = self.params or {}
            total = int(given.get("steps") or 0) * int(given.get("epochs") or 0)
            planned = {TOTAL_STEPS: total} if total >= self._step else {}
            metrics = {**planned, **of_training(trained), **of_evaluation(held_out)}
            self._progress.step(self._step, **metrics)
