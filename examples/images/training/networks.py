"""Six small networks on 16x16 digits: CNN, MLP, VAE, LSTM, GRU and bidirectional RNN.

Owns the architectures and the loss and the held-out measure of each; no data, no files, no loop.
They differ on purpose in the shape of their learning curves, because a scheduler has nothing to
decide among equals.
"""

from __future__ import annotations

import torch
from digits import CLASSES, SIZE
from torch import Tensor, nn
from torch.nn import functional


class Classifier(nn.Module):
    """A body that answers ten logits; judged by its accuracy, higher is better."""

    metric = "accuracy"

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def loss(self, images: Tensor, labels: Tensor, _: torch.Generator) -> Tensor:
        """Mean cross entropy of a batch."""
        return functional.cross_entropy(self.body(images), labels)

    def measure(self, images: Tensor, labels: Tensor) -> float:
        """Part of the images that it names rightly, 0 to 1."""
        return float((self.body(images).argmax(dim=1) == labels).float().mean())


class Recurrent(nn.Module):
    """Reads an image row by row, top to bottom, and answers from what it has gathered."""

    def __init__(self, cell: type[nn.RNNBase], width: int, bidirectional: bool = False) -> None:
        super().__init__()
        self.cell = cell(SIZE, width, batch_first=True, bidirectional=bidirectional)
        self.head = nn.Linear(width * (1 + bidirectional), CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        states, _ = self.cell(images.squeeze(1))
        return self.head(states.mean(dim=1))


class Vae(nn.Module):
    """Variational autoencoder; judged by its negative ELBO in nats an image, lower is better."""

    metric = "elbo"
    LATENT = 16

    def __init__(self, width: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Flatten(),
            nn.Linear(SIZE * SIZE, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 2 * self.LATENT),
        )
        self.decoder = nn.Sequential(
            nn.Linear(self.LATENT, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, SIZE * SIZE),
        )

    def loss(self, images: Tensor, _: Tensor, random: torch.Generator) -> Tensor:
        """Mean negative ELBO of a batch, one sample of the latent an image."""
        mean, log_variance = self.encoder(images).chunk(2, dim=1)
        noise = torch.randn(mean.shape, generator=random)
        decoded = self.decoder(mean + noise * (log_variance / 2).exp())
        missed = functional.binary_cross_entropy_with_logits(
            decoded, images.flatten(1), reduction="sum"
        )
        divergence = (mean**2 + log_variance.exp() - 1 - log_variance).sum() / 2
        return (missed + divergence) / len(images)

    def measure(self, images: Tensor, labels: Tensor) -> float:
        """Negative ELBO in nats an image; its noise is the same at every call."""
        return float(self.loss(images, labels, torch.Generator().manual_seed(0)))


def cnn(width: int) -> nn.Module:
    """Four 3x3 convolutions in two stages."""
    return Classifier(
        nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(2 * width, CLASSES),
        )
    )


def mlp(width: int) -> nn.Module:
    """Three hidden layers."""
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs in (SIZE * SIZE, width, width):
        layers += [nn.Linear(inputs, width), nn.ReLU()]
    return Classifier(nn.Sequential(*layers, nn.Linear(width, CLASSES)))


def lstm(width: int) -> nn.Module:
    """Long short-term memory over the rows."""
    return Classifier(Recurrent(nn.LSTM, width))


def gru(width: int) -> nn.Module:
    """Gated recurrent units over the rows."""
    return Classifier(Recurrent(nn.GRU, width))


def birnn(width: int) -> nn.Module:
    """Plain recurrent units over the rows, downwards and upwards."""
    return Classifier(Recurrent(nn.RNN, width, bidirectional=True))


NETWORKS = {"cnn": cnn, "mlp": mlp, "vae": Vae, "lstm": lstm, "gru": gru, "birnn": birnn}


def shift(images: Tensor, reach: int, random: torch.Generator) -> Tensor:
    """Each image moved by up to `reach` pixels each way: 1,348 digits are few to learn from."""
    count = len(images)
    padded = functional.pad(images, [reach] * 4)
    down, right = torch.randint(0, 2 * reach + 1, (2, count, 1), generator=random)
    span = torch.arange(SIZE)
    rows, columns = (down + span)[:, :, None], (right + span)[:, None, :]
    return padded[torch.arange(count)[:, None, None], 0, rows, columns][:, None]
