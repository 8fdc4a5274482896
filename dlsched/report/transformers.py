"""Hugging Face's Trainer reports: `Trainer(..., callbacks=[ProgressCallback()])`. It never raises;
without `transformers` the class is unused."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Dict

from dlsched.report.metric_names import TOTAL_STEPS, of_evaluation, of_training
from dlsched.report.pacing import Section
from dlsched.report.progress import Progress

try:
    from transformers import TrainerCallback  # type: ignore[import-not-found]
except Exception:  # noqa: BLE001 - the script's own import reports the failure
    TrainerCallback = object


class ProgressCallback(TrainerCallback):  # type: ignore[misc]
    """Reports steps, logged values, evaluations within a training, and checkpoints."""

    def __init__(self) -> None:
        super().__init__()
        self._progress = Progress()
        self._gpu = Section()
        self._training = False

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """From here on evaluations belong to this training."""
        self._training = True

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """The batch is there: the GPU works for it until the step's end."""
        self._gpu.begin()

    def on_prediction_step(self, *_: Any, **__: Any) -> None:
        """One step of an evaluation has ended, and the next begins."""
        self._gpu.begin()

    def on_predict(self, *_: Any, **__: Any) -> None:
        """The last step of a prediction has ended."""
        self._gpu.end()

    def on_step_end(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        """Report the step."""
        self._gpu.end()
        self._report(state, {})

    def on_log(self, _args: Any, state: Any, _control: Any, logs: Any = None, **_: Any) -> None:
        """Report what a step logs; an evaluation's own values come with `on_evaluate`."""
        with contextlib.suppress(Exception):
            self._report(
                state,
                of_training(
                    {name: logs[name] for name in logs if not name.startswith(("eval_", "test_"))}
                ),
            )

    def on_evaluate(
        self, _args: Any, state: Any, _control: Any, metrics: Any = None, **_: Any
    ) -> None:
        """Report an evaluation, and the total number of steps."""
        self._gpu.end()
        with contextlib.suppress(Exception):
            total = int(getattr(state, "max_steps", 0) or 0)
            planned = {TOTAL_STEPS: total} if total > 0 else {}
            self._report(state, {**planned, **of_evaluation(metrics)})

    def on_save(self, args: Any, state: Any, _control: Any, **_: Any) -> None:
        """Report a checkpoint, by Trainer's own name for it."""
        with contextlib.suppress(Exception):
            path = os.path.abspath(  # noqa: PTH100 - imports few modules into a job
                os.path.join(args.output_dir, f"checkpoint-{state.global_step}")  # noqa: PTH118
            )
            if state.is_world_process_zero and os.path.isdir(path):  # noqa: PTH112
                self._progress.checkpoint(state.global_step, path)

    def _report(self, state: Any, metrics: Dict[str, Any]) -> None:
        with contextlib.suppress(Exception):
            if self._training and state.is_world_process_zero:
                self._progress.step(state.global_step, **metrics)
