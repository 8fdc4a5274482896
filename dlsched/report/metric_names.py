"""The names under which a framework's metrics are reported.

`accuracy` means accuracy on held-out data: an evaluation's accuracy is reported under its own name
and as `accuracy`; a training batch's `accuracy` is reported as `train_accuracy`. Other names stay,
with `_` for characters that are invalid in a job file's `target.metric`; names that `Progress.step`
uses itself are left out.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Mapping

from dlsched.report.lines import NAME_CHARACTERS, RESERVED

TOTAL_STEPS = "total_steps"
"""The metric with which a training reports its total number of steps."""

_HELD_OUT = re.compile(r"(?:(?:val|valid|validation|eval)[_/.-])?(?:acc|accuracy)(?:_epoch)?", re.I)
_UNFIT = re.compile(r"[^A-Za-z0-9_./-]")

_TAKEN = RESERVED | {"self"}


def of_training(metrics: Mapping[str, Any]) -> Dict[str, Any]:
    """The metrics of training batches, under their reported names."""
    return {
        "train_accuracy" if name.lower() in ("acc", "accuracy") else name: value
        for name, value in _cleaned(metrics).items()
    }


def of_evaluation(metrics: Mapping[str, Any]) -> Dict[str, Any]:
    """The metrics of an evaluation, under their reported names; `accuracy` first, as lines are
    bounded."""
    cleaned = _cleaned(metrics)
    held_out = [name for name in cleaned if _HELD_OUT.fullmatch(name)]
    if held_out and "accuracy" not in cleaned:
        return dict(accuracy=cleaned[held_out[0]], **cleaned)
    return cleaned


def _cleaned(metrics: Mapping[str, Any]) -> Dict[str, Any]:
    cleaned = {_UNFIT.sub("_", str(name))[:NAME_CHARACTERS]: metrics[name] for name in metrics}
    return {name: value for name, value in cleaned.items() if name not in _TAKEN}
