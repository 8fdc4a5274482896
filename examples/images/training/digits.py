"""The bundled digits: 1,797 scanned 8x8 grey images, made 16x16, and a fixed split of them.

Owns how an image becomes an input and which images are held out, so that no two trainings can
differ in it, whatever their seeds. Needs numpy only.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SMALL, SIZE = 8, 16
BRIGHTEST = 16
CLASSES = 10
BUNDLE = Path(__file__).with_name("data") / "digits.npz"
SPLIT_SEED = 2026
HELD_OUT_RATIO = 0.25


@dataclass(frozen=True, slots=True)
class Digits:
    """Images (n x 1 x 16 x 16, 0 to 1) and the digit that each of them shows."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]

    def take(self, at: NDArray[np.int64]) -> Digits:
        """The images at these positions."""
        return Digits(self.images[at], self.labels[at])


def enlarge(images: NDArray[Any]) -> NDArray[np.float32]:
    """n x 8 x 8 grey values (0 to 16) as n x 1 x 16 x 16 images, bilinear, edges repeated."""
    centres = np.clip((np.arange(SIZE) + 0.5) * SMALL / SIZE - 0.5, 0, SMALL - 1)
    distance = np.abs(centres[:, np.newaxis] - np.arange(SMALL))
    stretch = np.maximum(0, 1 - distance).astype(np.float32)
    pixels = images.astype(np.float32) / np.float32(BRIGHTEST)
    enlarged: NDArray[np.float32] = (stretch @ pixels @ stretch.T)[:, np.newaxis]
    return enlarged


def load(path: Path = BUNDLE) -> Digits:
    """All images of the bundle, in its order."""
    with np.load(path) as stored:
        return Digits(enlarge(stored["images"]), stored["labels"].astype(np.int64))


def split(digits: Digits) -> tuple[Digits, Digits]:
    """Images to learn from, and a quarter of each digit's, held out; the same at every call."""
    random = np.random.RandomState(SPLIT_SEED)
    held_out = np.zeros(len(digits.labels), bool)
    for digit in range(CLASSES):
        of_digit = random.permutation(np.flatnonzero(digits.labels == digit))
        held_out[of_digit[: round(HELD_OUT_RATIO * len(of_digit))]] = True
    return digits.take(np.flatnonzero(~held_out)), digits.take(np.flatnonzero(held_out))


def save(path: Path, images: NDArray[Any], labels: NDArray[Any]) -> None:
    """Store n x 8 x 8 grey values and their digits, one byte each, compressed."""
    np.savez_compressed(path, images=images.astype(np.uint8), labels=labels.astype(np.uint8))
