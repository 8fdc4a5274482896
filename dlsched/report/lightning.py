"""Lightning trainings report their steps, metrics and checkpoints by themselves.

Lightning calls `callbacks` through an entry point (see entry_points.py) for every Trainer. Where it
lacks that hook, a script passes `Trainer(callbacks=[progress_callback()])`.

It never imports a framework, raises into the training, adds to its checkpoints, or reads a metric
on rank 0 only: computing one may be a collective operation.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import time
from typing import Any, Dict, List, Optional, Tuple

from dlsched.report.metric_names import TOTAL_STEPS, of_evaluation, of_training
from dlsched.report.pacing import Section
from dlsched.report.progress import Progress
from dlsched.report.writer import PERIOD_S, current

FAMILIES = ("lightning.pytorch", "pytorch_lightning")
"""Lightning's packages; each accepts only callbacks of its own base class."""


def callbacks(family: str) -> List[Any]:
    """What Lightning adds to a Trainer of that family: one callback, or none without reporting."""
    with contextlib.suppress(Exception):
        if current() is not None:
            return [_made(family)]
    return []


def progress_callback() -> Any:
    """A callback for every Lightning package that the script has imported."""
    with contextlib.suppress(Exception):
        return _made(*(family for family in FAMILIES if family in sys.modules))
    return _Hooks()


class _Hooks:
    """Lightning's hooks. `*_`: the number of arguments depends on the version."""

    families: Tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self._progress = Progress()
        self._gpu = Section()
        self._speaks = False
        self._read_s: Optional[float] = None
        self._before: Dict[str, Any] = {}
        self._evaluated: Dict[str, Any] = {}
        self._saved: Any = None

    def __reduce__(self) -> Any:
        # The class is created on demand, also in spawned processes that get the Trainer.
        return _made, self.families

    def setup(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Of several callbacks in one Trainer only the first reports, and only on rank 0."""
        with contextlib.suppress(Exception):
            ours = [each for each in trainer.callbacks if isinstance(each, _Hooks)]
            self._speaks = ours[0] is self and getattr(trainer, "global_rank", 0) == 0

    def on_train_batch_start(self, *_: Any, **__: Any) -> None:
        """The batch is there: the GPU works for it until its end."""
        self._gpu.begin()

    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Report the step; its metrics once a second, since reading one may wait for a device."""
        self._gpu.end()
        if not self._speaks:
            return
        with contextlib.suppress(Exception):
            now_s = time.monotonic()
            if self._read_s is not None and now_s - self._read_s < PERIOD_S:
                self._progress.step(trainer.global_step)
                return
            self._read_s = now_s
            self._report_training(trainer)
            self._report_checkpoint(trainer)

    def on_validation_start(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Keep the metrics from before the evaluation."""
        with contextlib.suppress(Exception):
            self._before = dict(trainer.callback_metrics) if _training(trainer) else {}

    def on_validation_batch_start(self, *_: Any, **__: Any) -> None:
        self._gpu.begin()

    def on_validation_batch_end(self, *_: Any, **__: Any) -> None:
        self._gpu.end()

    def on_exception(self, *_: Any, **__: Any) -> None:
        self._gpu.end()

    def on_validation_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Report the evaluation's metrics, and the total number of steps."""
        with contextlib.suppress(Exception):
            if not _training(trainer):
                return
            known = dict(trainer.callback_metrics)
            added = {
                name: value for name, value in known.items() if value is not self._before.get(name)
            }
            self._evaluated.update(added)
            self._before = {}
            if self._speaks:
                metrics = {**_planned(trainer), **of_evaluation(added)}
                self._progress.step(trainer.global_step, **metrics)

    def on_train_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Report the last step, with the last epoch's metrics."""
        with contextlib.suppress(Exception):
            self._report_training(trainer)

    def teardown(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Report the last checkpoint, which is written after `on_train_end`."""
        with contextlib.suppress(Exception):
            self._report_checkpoint(trainer)

    def _report_training(self, trainer: Any) -> None:
        known = dict(trainer.callback_metrics)
        added = {name: value for name, value in known.items() if name not in self._evaluated}
        if self._speaks:
            self._progress.step(trainer.global_step, **of_training(added))

    def _report_checkpoint(self, trainer: Any) -> None:
        """Report what a ModelCheckpoint has saved since, after it is written."""
        for saver in getattr(trainer, "checkpoint_callbacks", ()):
            path = getattr(saver, "_last_checkpoint_saved", "") or saver.last_model_path
            path = path or saver.best_model_path
            step = getattr(saver, "_last_global_step_saved", trainer.global_step)
            if path and self._speaks and (path, step) != self._saved:
                self._saved = (path, step)
                self._progress.checkpoint(step, path if "://" in path else os.path.abspath(path))  # noqa: PTH100
                return


def _training(trainer: Any) -> bool:
    """Whether the evaluation is part of a training, and not the check before it."""
    function = getattr(getattr(trainer, "state", None), "fn", None)
    return function in (None, "fit") and not getattr(trainer, "sanity_checking", False)


def _planned(trainer: Any) -> Dict[str, int]:
    """The total number of steps, where it is known without reading the data."""
    with contextlib.suppress(Exception):
        if trainer.max_steps > 0:
            return {TOTAL_STEPS: int(trainer.max_steps)}
        if trainer.max_epochs > 0:
            together = int(trainer.accumulate_grad_batches)
            epoch = -(-int(trainer.num_training_batches) // together)  # infinite: it raises
            return {TOTAL_STEPS: epoch * int(trainer.max_epochs)}
    return {}


_classes: Dict[Tuple[str, ...], type] = {}


def _made(*families: str) -> Any:
    """A callback that is a subclass of those families' classes."""
    if families not in _classes:
        bases = [importlib.import_module(family).Callback for family in families]
        _classes[families] = type("ProgressCallback", (_Hooks, *bases), {"families": families})
    return _classes[families]()
