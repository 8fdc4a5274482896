"""Lightning with a tiny module: its bar of tqdm (`bar`), or a callback that prints (`print`).

Where rich is installed its bar is the default, which a log shows once, at the end.
"""

import sys
import tempfile

import lightning
import torch
from lightning.pytorch.callbacks import TQDMProgressBar
from training import circles, keep

EPOCHS = 4


class Tiny(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(4, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2)
        )
        self.curve = []

    def training_step(self, batch: list, _: int) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch: list, _: int) -> None:
        right = (self.net(batch[0]).argmax(-1) == batch[1]).float().mean()
        self.log("val_acc", right, prog_bar=True)

    def on_validation_epoch_end(self) -> None:
        if not self.trainer.sanity_checking:
            self.curve.append((self.current_epoch, self.trainer.callback_metrics["val_acc"]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), 1e-2)


def batches(seed: int) -> torch.utils.data.DataLoader:
    points, inside = circles(512, seed)
    rows = torch.utils.data.TensorDataset(torch.tensor(points), torch.tensor(inside))
    return torch.utils.data.DataLoader(rows, batch_size=64)


class Printing(lightning.Callback):
    def on_validation_epoch_end(self, trainer: lightning.Trainer, module: Tiny) -> None:
        if not trainer.sanity_checking:
            accuracy = trainer.callback_metrics["val_acc"]
            print(f"epoch={trainer.current_epoch} val_acc={accuracy:.4f}", flush=True)


bar = sys.argv[1] == "bar"
with tempfile.TemporaryDirectory() as folder:
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=EPOCHS,
        default_root_dir=folder,
        enable_progress_bar=bar,
        callbacks=[TQDMProgressBar() if bar else Printing()],
        log_every_n_steps=1,
        logger=False,
        enable_checkpointing=False,
    )
    model = Tiny()
    trainer.fit(model, batches(1), batches(2))
keep(model.curve)
