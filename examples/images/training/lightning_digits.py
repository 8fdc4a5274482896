"""A CNN on the bundled digits under PyTorch Lightning, as anybody would write it.

Reports are not its business: whoever runs it may add callbacks to its Trainer from outside.
"""

from __future__ import annotations

import argparse
import logging
import warnings

import digits
import networks
import pytorch_lightning as lightning
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset


class DigitClassifier(lightning.LightningModule):
    """The CNN, its loss, its held-out accuracy, its optimiser."""

    def __init__(self, width: int, rate: float) -> None:
        super().__init__()
        self.network = networks.cnn(width)
        self.rate = rate

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        loss: Tensor = self.network.loss(*batch, torch.default_generator)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], _: int) -> None:
        accuracy = self.network.measure(*batch)
        self.log("accuracy", accuracy, batch_size=len(batch[1]), prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.rate)


def loaders(batch: int) -> tuple[DataLoader[tuple[Tensor, ...]], DataLoader[tuple[Tensor, ...]]]:
    """Batches to learn from, in a new order each epoch, and all held-out images as one."""
    learn, held_out = (
        TensorDataset(torch.from_numpy(part.images), torch.from_numpy(part.labels))
        for part in digits.split(digits.load())
    )
    return (
        DataLoader(learn, batch_size=batch, shuffle=True),
        DataLoader(held_out, batch_size=len(held_out)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    lightning.seed_everything(chosen.seed, verbose=False)
    # It advises on GPUs and loader processes that 1,347 small images have no use for.
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    learn, held_out = loaders(chosen.batch)
    trainer = lightning.Trainer(
        max_epochs=chosen.epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(DigitClassifier(chosen.width, chosen.lr), learn, held_out)
    print(f"accuracy {float(trainer.callback_metrics['accuracy']):.4f}", flush=True)


if __name__ == "__main__":
    main()
