"""The bundled test images: 8x8 grey digits, stored small and made 32x32 when read.

Owns how an image becomes a network's input, so training and serving cannot differ in it. Needs
numpy only: an image of this folder holds neither scikit-learn nor torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SMALL, LARGE = 8, 32
BRIGHTEST = 16
TEST_SPLIT = Path(__file__).with_name("models") / "digits-test.npz"


@dataclass(frozen=True, slots=True)
class Digits:
    """Network inputs (n x 1 x 32 x 32, 0 to 1) and the digit each of them shows."""

    inputs: NDArray[np.float32]
    labels: NDArray[np.int64]

    def batch(self, start: int, count: int) -> Digits:
        """`count` images from the start-th on, going round when the end is reached."""
        at = np.arange(start, start + count) % len(self.labels)
        return Digits(self.inputs[at], self.labels[at])


def upsample(images: NDArray[Any]) -> NDArray[np.float32]:
    """n x 8 x 8 grey values (0 to 16) as n x 1 x 32 x 32 inputs, bilinear, edges repeated."""
    stretch = _interpolation()
    pixels = images.astype(np.float32) / np.float32(BRIGHTEST)
    return (stretch @ pixels @ stretch.T)[:, np.newaxis]


def load(path: Path = TEST_SPLIT) -> Digits:
    """The held-out images that no network was trained on."""
    with np.load(path) as stored:
        return Digits(upsample(stored["images"]), stored["labels"].astype(np.int64))


def save(path: Path, images: NDArray[Any], labels: NDArray[Any]) -> None:
    """Store n x 8 x 8 grey values and their digits, one byte each, compressed."""
    np.savez_compressed(path, images=images.astype(np.uint8), labels=labels.astype(np.uint8))


def _interpolation() -> NDArray[np.float32]:
    """The 32 x 8 matrix whose product with a column of pixels is that column stretched."""
    centres = (np.arange(LARGE) + 0.5) * SMALL / LARGE - 0.5
    centres = np.clip(centres, 0, SMALL - 1)
    distance = np.abs(centres[:, np.newaxis] - np.arange(SMALL))
    weights: NDArray[np.float32] = np.maximum(0, 1 - distance).astype(np.float32)
    return weights
