"""The names under which a framework's metrics are told.

Owns one rule. `accuracy` means accuracy on held-out data: an evaluation's accuracy is told under
its own name and as `accuracy`; what a framework calls `accuracy` of its training batches is told
as `train_accuracy`. Every other name stays, with `_` for characters that no job file's
`target.metric` may have; one that `Progress.step` has a use of its own for is left out. It must
not judge values.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Mapping

from dlsched.report.lines import NAME_CHARACTERS, RESERVED

TOTAL_STEPS = "total_steps"
"""The metric by which a training tells how many steps it will take in all."""

_HELD_OUT = re.compile(r"(?:(?:val|valid|validation|eval)[_/.-])?(?:acc|accuracy)(?:_epoch)?", re.I)
_UNFIT = re.compile(r"[^A-Za-z0-9_./-]")

_TAKEN = RESERVED | {"self"}


def of_training(metrics: Mapping[str, Any]) -> Dict[str, Any]:
    """What training batches gave, as it is told."""
    return {
        "train_accuracy" if name.lower() in ("acc", "accuracy") else name: value
        for name, value in _cleaned(metrics).items()
    }


def of_evaluation(metrics: Mapping[str, Any]) -> Dict[str, Any]:
    """What an evaluation gave, as it is told: `accuracy` first, since a line has an end."""
    cleaned = _cleaned(metrics)
    held_out = [name for name in cleaned if _HELD_OUT.fullmatch(name)]
    if held_out and "accuracy" not in cleaned:
        return dict(accuracy=cleaned[held_out[0]], **cleaned)
    return cleaned


def _cleaned(metrics: Mapping[str, Any]) -> Dict[str, Any]:
    cleaned = {_UNFIT.sub("_", str(name))[:NAME_CHARACTERS]: metrics[name] for name in metrics}
    return {name: value for name, value in cleaned.items() if name not in _TAKEN}
