"""A small transformer on the bundled digits under Hugging Face's Trainer.

The rows of an image are its tokens. One line, and its import, are dlsched's: the callback that
reports what Trainer logs and evaluates. Nothing is downloaded.
"""

from __future__ import annotations

import argparse

import digits
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset
from transformers import EvalPrediction, Trainer, TrainingArguments

from dlsched.report.transformers import ProgressCallback


class RowTransformer(nn.Module):
    """Two encoder layers over the sixteen rows, their mean, ten logits."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed = nn.Linear(digits.SIZE, width)
        self.place = nn.Parameter(torch.randn(digits.SIZE, width) / 50)
        layer = nn.TransformerEncoderLayer(
            width, nhead=4, dim_feedforward=2 * width, dropout=0.0, batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)
        self.head = nn.Linear(width, digits.CLASSES)

    def forward(self, images: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        rows = self.embed(images.squeeze(1)) + self.place
        logits = self.head(self.encoder(rows).mean(dim=1))
        if labels is None:
            return {"logits": logits}
        return {"loss": functional.cross_entropy(logits, labels), "logits": logits}


class Rows(Dataset[dict[str, Tensor]]):
    """Digits by the names that Trainer hands to the model."""

    def __init__(self, held: digits.Digits) -> None:
        self._images, self._labels = torch.from_numpy(held.images), torch.from_numpy(held.labels)

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, at: int) -> dict[str, Tensor]:
        return {"images": self._images[at], "labels": self._labels[at]}


def accuracy(predicted: EvalPrediction) -> dict[str, float]:
    """Part of the held-out images named rightly."""
    return {"accuracy": float(np.mean(predicted.predictions.argmax(axis=1) == predicted.label_ids))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--evaluate-every", type=int, default=20)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    arguments = TrainingArguments(
        output_dir="/tmp/trainer",
        max_steps=chosen.steps,
        per_device_train_batch_size=chosen.batch,
        per_device_eval_batch_size=450,
        learning_rate=chosen.lr,
        eval_strategy="steps",
        eval_steps=chosen.evaluate_every,
        logging_steps=chosen.evaluate_every,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        seed=chosen.seed,
    )
    torch.manual_seed(chosen.seed)
    learn, held_out = digits.split(digits.load())
    trainer = Trainer(
        model=RowTransformer(chosen.width),
        args=arguments,
        train_dataset=Rows(learn),
        eval_dataset=Rows(held_out),
        compute_metrics=accuracy,
        callbacks=[ProgressCallback()],
    )
    trainer.train()


if __name__ == "__main__":
    main()
