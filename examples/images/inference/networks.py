"""Five small convolutional networks, each in the manner of a well-known family.

Owns the architectures and nothing else: no data, no training, no files. They differ on purpose in
what an image costs (see the table in README.md), because a scheduler has nothing to decide among
equals. All take a batch of 1x32x32 images in [0, 1] and answer ten logits.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

CLASSES = 10


def conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Module:
    """Convolution, batch norm, ReLU: exporters fold the norm away, so it costs nothing later."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


def head(channels: int) -> nn.Module:
    """Mean over the image, then one linear layer."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


def separable(inputs: int, outputs: int, stride: int = 1) -> nn.Module:
    """A depthwise 3x3 and a pointwise 1x1 convolution in place of one full 3x3."""
    return nn.Sequential(
        conv(inputs, inputs, stride=stride, groups=inputs), conv(inputs, outputs, kernel=1)
    )


def vgg() -> nn.Module:
    """VGG: pairs of 3x3 convolutions between poolings, nothing else."""
    return nn.Sequential(
        conv(1, 16),
        conv(16, 16),
        nn.MaxPool2d(2),
        conv(16, 32),
        conv(32, 32),
        nn.MaxPool2d(2),
        conv(32, 64),
        conv(64, 64),
        head(64),
    )


class Residual(nn.Module):
    """Two 3x3 convolutions whose result is added to their input."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv(inputs, outputs, stride=stride),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, images: Tensor) -> Tensor:
        return torch.relu(self.body(images) + self.shortcut(images))


def resnet() -> nn.Module:
    """ResNet: six residual blocks in three stages, the deepest and dearest of the five."""
    return nn.Sequential(
        conv(1, 16),
        Residual(16, 16),
        Residual(16, 16),
        Residual(16, 32, stride=2),
        Residual(32, 32),
        Residual(32, 48, stride=2),
        Residual(48, 48),
        head(48),
    )


class Inception(nn.Module):
    """Four branches of different reach over one input, joined by channel."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            [
                conv(inputs, width, kernel=1),
                nn.Sequential(conv(inputs, width, kernel=1), conv(width, width)),
                nn.Sequential(conv(inputs, width, kernel=1), conv(width, width, kernel=5)),
                nn.Sequential(nn.MaxPool2d(3, 1, 1), conv(inputs, width, kernel=1)),
            ]
        )

    def forward(self, images: Tensor) -> Tensor:
        return torch.cat([branch(images) for branch in self.branches], dim=1)


def inception() -> nn.Module:
    """Inception: modules of parallel 1x1, 3x3, 5x5 and pooling branches."""
    return nn.Sequential(
        conv(1, 16, stride=2),
        Inception(16, 12),
        Inception(48, 12),
        nn.MaxPool2d(2),
        Inception(48, 20),
        Inception(80, 20),
        head(80),
    )


class XceptionBlock(nn.Module):
    """Two separable convolutions and a pooling beside a strided shortcut."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            separable(inputs, outputs), separable(outputs, outputs), nn.MaxPool2d(3, 2, 1)
        )
        self.shortcut = nn.Conv2d(inputs, outputs, 1, 2)

    def forward(self, images: Tensor) -> Tensor:
        answer: Tensor = self.body(images) + self.shortcut(images)
        return answer


def xception() -> nn.Module:
    """Xception: residual blocks of separable convolutions only."""
    return nn.Sequential(
        conv(1, 16),
        XceptionBlock(16, 32),
        XceptionBlock(32, 64),
        separable(64, 96),
        head(96),
    )


class InvertedResidual(nn.Module):
    """Widen by 1x1, filter depthwise, narrow by a linear 1x1; a shortcut where shapes agree."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1, expansion: int = 3) -> None:
        super().__init__()
        wide = inputs * expansion
        self.body = nn.Sequential(
            conv(inputs, wide, kernel=1),
            conv(wide, wide, stride=stride, groups=wide),
            nn.Conv2d(wide, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.same = inputs == outputs and stride == 1

    def forward(self, images: Tensor) -> Tensor:
        answer: Tensor = self.body(images)
        return answer + images if self.same else answer


def mobilenet() -> nn.Module:
    """MobileNet (v2): inverted residuals, an order of magnitude cheaper than the others."""
    return nn.Sequential(
        conv(1, 12, stride=2),
        InvertedResidual(12, 16, stride=2),
        InvertedResidual(16, 16),
        InvertedResidual(16, 32, stride=2),
        InvertedResidual(32, 32),
        conv(32, 96, kernel=1),
        head(96),
    )


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "vgg": vgg,
    "resnet": resnet,
    "inception": inception,
    "xception": xception,
    "mobilenet": mobilenet,
}
