"""Ultralytics: a tiny model from a yaml of its own, on a few images made on the spot."""

import os
import random
import tempfile
from pathlib import Path

OUT = Path(tempfile.mkdtemp())
# Read when it is imported.
os.environ["YOLO_CONFIG_DIR"] = str(OUT)

import cv2
import numpy as np
from training import keep
from ultralytics import YOLO
from ultralytics.utils import SETTINGS

EPOCHS, IMAGES, SIZE = 8, 64, 64

MODEL = """
nc: 1
backbone:
  - [-1, 1, Conv, [8, 3, 2]]
  - [-1, 1, Conv, [16, 3, 2]]
  - [-1, 1, Conv, [32, 3, 2]]
  - [-1, 1, C2f, [32]]
head:
  - [[3], 1, Detect, [nc]]
"""
chance = random.Random(1)
for part in ("train", "val"):
    for kind in ("images", "labels"):
        (OUT / kind / part).mkdir(parents=True)
    for number in range(IMAGES):
        image = np.zeros((SIZE, SIZE, 3), np.uint8)
        x, y = (chance.randint(8, 40) for _ in range(2))
        cv2.rectangle(image, (x, y), (x + 16, y + 16), (255, 255, 255), -1)
        cv2.imwrite(str(OUT / "images" / part / f"{number}.png"), image)
        box = f"0 {(x + 8) / SIZE} {(y + 8) / SIZE} 0.25 0.25\n"
        (OUT / "labels" / part / f"{number}.txt").write_text(box)
(OUT / "tiny.yaml").write_text(MODEL)
(OUT / "data.yaml").write_text(f"path: {OUT}\ntrain: images/train\nval: images/val\nnames: [box]\n")

curve: list[tuple[int, float]] = []
SETTINGS.update({"sync": False})
model = YOLO(str(OUT / "tiny.yaml"))


def keep_epoch(trainer: object) -> None:
    # The last call is about the best weights, once more.
    if len(curve) < EPOCHS:
        curve.append((trainer.epoch + 1, trainer.metrics["metrics/mAP50-95(B)"]))


model.add_callback("on_fit_epoch_end", keep_epoch)
model.train(
    data=str(OUT / "data.yaml"),
    epochs=EPOCHS,
    imgsz=SIZE,
    batch=8,
    nbs=8,
    mosaic=0.0,
    device="cpu",
    workers=0,
    plots=False,
    amp=False,
    project=str(OUT / "runs"),
    optimizer="Adam",
    lr0=0.01,
    warmup_epochs=0,
)
keep(curve)
