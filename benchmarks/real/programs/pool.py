"""Steps of one library with its own pool of threads: pool.py COUNTS LIBRARY [follow].

Until it is ended it counts its steps in the file COUNTS, two integers of 64 bits, and then its
threads; 0: the library does not say. With `follow` its threads follow the allotment.
"""

from __future__ import annotations

import mmap
import struct
import sys
from collections.abc import Callable
from typing import Any

MODEL = "/models/resnet.onnx"
Threads = Callable[[], int]


def openblas() -> tuple[Callable[[], object], Threads]:
    """A product of matrices, as numpy has it computed."""
    import numpy as np
    from threadpoolctl import ThreadpoolController

    matrix = np.random.default_rng(1).random((384, 384), dtype=np.float32)
    (blas,) = ThreadpoolController().lib_controllers
    return lambda: matrix @ matrix, lambda: int(blas.num_threads)


def torch() -> tuple[Callable[[], object], Threads]:
    """A training's step of a small convolutional network."""
    import torch as t

    network = t.nn.Sequential(
        *(t.nn.Conv2d(1, 16, 3, padding=1), t.nn.ReLU(), t.nn.Conv2d(16, 32, 3, padding=1)),
        *(t.nn.ReLU(), t.nn.MaxPool2d(2), t.nn.Flatten(), t.nn.Linear(2048, 10)),
    )
    images, digits = t.randn(64, 1, 16, 16), t.randint(0, 10, (64,))
    adam = t.optim.Adam(network.parameters())

    def step() -> None:
        adam.zero_grad()
        t.nn.functional.cross_entropy(network(images), digits).backward()
        adam.step()

    return step, t.get_num_threads


class Model:
    """A batch of ONNX Runtime, whose threads are chosen when a model is opened."""

    def __init__(self) -> None:
        import numpy as np

        self._open(0)
        (given,) = self._session.get_inputs()
        shape = [one if isinstance(one, int) else 16 for one in given.shape]
        self._images = {given.name: np.random.default_rng(1).random(shape, dtype=np.float32)}

    def _open(self, threads: int) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = self.threads = threads
        place = ["CPUExecutionProvider"]
        self._session = ort.InferenceSession(MODEL, options, providers=place)

    def step(self, wanted: Any) -> None:
        """One batch, with as many threads as `wanted` has."""
        if wanted is not None and wanted.threads != self.threads:
            self._open(wanted.threads)
        self._session.run(None, self._images)


def run(counts: str, library: str, *more: str) -> None:
    fit: Callable[[], Any] = lambda: None  # noqa: E731
    if more == ("follow",):
        from dlsched.report import fit_to_allotment as fit
    if library == "onnxruntime":
        model = Model()
        step, threads = (lambda: model.step(fit())), (lambda: model.threads)
    else:
        compute, threads = {"openblas": openblas, "torch": torch}[library]()
        step = lambda: (fit(), compute())  # noqa: E731
    steps = 0
    with open(counts, "r+b") as file, mmap.mmap(file.fileno(), 16) as shared:  # noqa: PTH123
        while True:
            step()
            steps += 1
            struct.pack_into("qq", shared, 0, steps, threads())


run(*sys.argv[1:])
