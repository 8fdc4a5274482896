"""A trained network behind ONNX Runtime, and the catalogue of those that exist.

Owns the session and its options; knows nothing of loops, requests or reports. Importing it is
cheap: the runtime itself is loaded when a network is opened.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MODELS = Path(__file__).with_name("models")
CATALOGUE = MODELS / "MODELS.json"

Predict = Callable[["NDArray[np.float32]"], "NDArray[np.int64]"]


def catalogue() -> dict[str, dict[str, Any]]:
    """What MODELS.json tells of each network, by name."""
    models: dict[str, dict[str, Any]] = json.loads(CATALOGUE.read_text())["models"]
    return models


def open_model(name: str, threads: int) -> Predict:
    """The network of that name as a function from inputs to digits."""
    return open_session((MODELS / catalogue()[name]["file"]).read_bytes(), threads)


def open_session(content: bytes, threads: int) -> Predict:
    """An ONNX file's bytes as a function from inputs to digits, run on `threads` threads."""
    # Later versions than the pinned one send usage data unless told not to before the import.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # A thread that spins while it waits burns the quota that the next batch needs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Planning all buffers of a pass ahead as one block doubles the memory and saves no time here.
    options.enable_mem_pattern = False
    session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def predict(inputs: NDArray[np.float32]) -> NDArray[np.int64]:
        (logits,) = session.run(None, {"images": inputs})
        digits: NDArray[np.int64] = logits.argmax(axis=1)
        return digits

    return predict
