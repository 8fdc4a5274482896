"""The resource that a snapshot divides: the node's CPU, or one GPU's time; with unit and texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal


@dataclass(frozen=True, slots=True)
class Cpu:
    """The node's CPU. Amounts are cores."""

    kind: Literal["cpu"] = "cpu"
    name: ClassVar[str] = "CPU"
    time: ClassVar[str] = "CPU time"

    def amount(self, value: float, digits: str = ".3f") -> str:
        """Text of an amount: `0.500 cores`."""
        return f"{value:{digits}} cores"

    def work(self, value_s: float) -> str:
        """Text of an amount over time: `12 core-s`."""
        return f"{value_s:.0f} core-s"


@dataclass(frozen=True, slots=True)
class GpuTime:
    """The time of one GPU. Amounts are fractions from 0 to 1."""

    uuid: str
    gpu: str
    """Its name for people: `GPU 0`."""
    kind: Literal["gpu"] = "gpu"

    @property
    def name(self) -> str:
        """`time on GPU 0`."""
        return f"time on {self.gpu}"

    @property
    def time(self) -> str:
        return self.name

    def amount(self, value: float, digits: str = ".3f") -> str:
        """Text of an amount: `0.500 of GPU 0's time`."""
        return f"{value:{digits}} of {self.gpu}'s time"

    def work(self, value_s: float) -> str:
        """Text of an amount over time: `12 s of GPU 0's time`."""
        return f"{value_s:.0f} s of {self.gpu}'s time"


Resource = Cpu | GpuTime

CPU = Cpu()
