"""Closed loop: batch after batch without a pause, each one measured.

The work is real: what the network answers is held against the labels, and stderr tells the
accuracy every 30 seconds. SIGTERM and SIGINT end it after the batch at hand, with exit code 0.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import options

if TYPE_CHECKING:
    from classifier import Predict
    from digits import Digits

TELL_EVERY_S = 30.0


class Loop:
    """Answers the test images over and over and counts how many it got right."""

    def __init__(self, predict: Predict, images: Digits, batch: int) -> None:
        self.batches = 0
        self._predict, self._images, self._batch = predict, images, batch
        self._right = 0

    def step(self) -> None:
        """One batch: the next images in order, going round."""
        some = self._images.batch(self.batches * self._batch, self._batch)
        self._right += int((self._predict(some.inputs) == some.labels).sum())
        self.batches += 1

    def summary(self) -> str:
        """Accuracy so far, in a sentence."""
        answered = self.batches * self._batch
        accuracy = f"{self._right / answered:.4f}" if answered else "unknown"
        return f"accuracy {accuracy} over {answered} images in {self.batches} batches"


def run(
    loop: Loop,
    measure: Callable[[], AbstractContextManager[Any]],
    stop: threading.Event,
    most: int | None,
    tell: Callable[[str], None],
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Step until `stop` is set or `most` batches are done; tell now and then, and at the end."""
    told_at = now()
    while not stop.is_set() and (most is None or loop.batches < most):
        with measure():
            loop.step()
        if now() - told_at >= TELL_EVERY_S:
            tell(loop.summary())
            told_at = now()
    tell(loop.summary())


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_model(parser)
    parser.add_argument(
        "--batch",
        type=int,
        default=os.environ.get("BATCH", "64"),
        help="images in a batch (environment: BATCH; default 64)",
    )
    parser.add_argument("--batches", type=int, help="end after so many")
    return parser.parse_args(arguments)


def main() -> None:
    chosen = parse()
    # As process 1 of a container this gets no SIGTERM that it did not ask for, and under a small
    # quota the imports below take seconds: so ask first.
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())

    import classifier
    import digits
    import reporting

    predict = classifier.open_model(chosen.model, chosen.threads)
    loop = Loop(predict, digits.load(), chosen.batch)

    def tell(text: str) -> None:
        print(f"{chosen.model}: {text}", file=sys.stderr, flush=True)

    run(loop, reporting.measure, stop, chosen.batches, tell)


if __name__ == "__main__":
    main()
