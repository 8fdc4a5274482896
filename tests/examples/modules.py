"""The modules of the example image that is on the path, imported where they are named."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class _Modules:
    def __getattr__(self, name: str) -> Any:
        return import_module(name)


example: Any = _Modules()
