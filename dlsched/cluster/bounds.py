"""Bounds of what the controller and the agents send each other: types that refuse what is outside,
and functions by which a sender stays within."""

from __future__ import annotations

import ipaddress
import math
from typing import Annotated

from pydantic import AfterValidator, Field

from dlsched.model.spec import NAME
from dlsched.model.units import CORES_MAX, plain_text
from dlsched.report.lines import PATH_CHARACTERS

JOBS_MAX = 4096
IMAGES_MAX = 4096
NODES_MAX = 2048
IMAGE_CHARACTERS = 512
LINE_CHARACTERS = 500
WHOLE_MAX = 1 << 53
"""Of steps, epochs, bytes and counts: larger ones have no exact number in JSON."""
AMOUNT_MAX = 1e15
"""Of seconds, core-seconds and rates."""
VALUE_MAX = 1e100
"""Of a metric, with either sign."""
NODE = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,62}[A-Za-z0-9])?"
"""A node's name: what a certificate's CN can hold."""


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must be one line of printable characters")
    return text


def _ip_address(text: str) -> str:
    if text:
        ipaddress.ip_address(text)
    return text


Job = Annotated[str, Field(pattern=f"^(?:{NAME})$")]
Node = Annotated[str, Field(pattern=f"^(?:{NODE})$")]
Line = Annotated[str, Field(max_length=LINE_CHARACTERS), AfterValidator(_printable)]
PathText = Annotated[
    str, Field(max_length=PATH_CHARACTERS, pattern="^($|/)"), AfterValidator(_printable)
]
Image = Annotated[str, Field(max_length=IMAGE_CHARACTERS), AfterValidator(_printable)]
Address = Annotated[str, Field(max_length=64), AfterValidator(_ip_address)]
Epoch = Annotated[int, Field(ge=1, le=WHOLE_MAX)]
Whole = Annotated[int, Field(ge=0, le=WHOLE_MAX)]
ExitCode = Annotated[int, Field(ge=-WHOLE_MAX, le=WHOLE_MAX)]
Cores = Annotated[float, Field(ge=0.0, le=CORES_MAX)]
Amount = Annotated[float, Field(ge=0.0, le=AMOUNT_MAX)]
Value = Annotated[float, Field(ge=-VALUE_MAX, le=VALUE_MAX)]
Sha256 = Annotated[str, Field(pattern="^(?:[0-9a-f]{64})?$")]
Version = Annotated[str, Field(pattern="^(?:[0-9a-f]{16})?$")]
"""Of a job file."""


def is_within(number: float, low: float, high: float) -> bool:
    return math.isfinite(number) and low <= number <= high


def amount(number: float, most: float = AMOUNT_MAX) -> float:
    return min(max(float(number), 0.0), most) if not math.isnan(number) else 0.0


def known_amount(number: float | None) -> float | None:
    return number if number is not None and is_within(number, 0.0, AMOUNT_MAX) else None


def is_interval(low: float, mid: float, high: float) -> bool:
    return low <= mid <= high and all(is_within(one, 0.0, AMOUNT_MAX) for one in (low, mid, high))


def whole(number: int | None) -> int | None:
    return number if number is not None and 0 <= number <= WHOLE_MAX else None


def line(text: str) -> str:
    return plain_text(text[:LINE_CHARACTERS])


def is_path(text: str) -> bool:
    """Whether it is absolute, or empty."""
    return not text or (
        text.startswith("/") and len(text) <= PATH_CHARACTERS and text.isprintable()
    )


def is_image(name: str) -> bool:
    return len(name) <= IMAGE_CHARACTERS and name.isprintable()
