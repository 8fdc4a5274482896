"""Logs on stderr: one line per event, as text or JSON, with levels for systemd's journal."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Literal

from dlsched.model.units import plain_text

_PRIORITY = {
    logging.DEBUG: 7,
    logging.INFO: 6,
    logging.WARNING: 4,
    logging.ERROR: 3,
    logging.CRITICAL: 2,
}


class _Line(logging.Formatter):
    """One line of that kind. The journal adds the time, and reads the level from the prefix."""

    def __init__(self, kind: Literal["text", "json", "systemd"]) -> None:
        super().__init__()
        self._kind = kind

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        if record.exc_info and record.levelno >= logging.CRITICAL:
            message = f"{message} | {self.formatException(record.exc_info)}"
        message, level = plain_text(message), record.levelname.lower()
        if self._kind == "systemd":
            return f"<{_PRIORITY.get(record.levelno, 6)}>{message}"
        stamp = datetime.fromtimestamp(record.created, UTC)
        time = stamp.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if self._kind == "text":
            return f"{time} {level:8} {message}"
        return json.dumps({"time": time, "level": level, "logger": record.name, "message": message})


def set_up(level: str, style: Literal["text", "json"]) -> None:
    handler = logging.StreamHandler(sys.stderr)
    to_systemd = style == "text" and "JOURNAL_STREAM" in os.environ
    handler.setFormatter(_Line("systemd" if to_systemd else style))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("docker").setLevel(logging.WARNING)
    # It warns of each connection beyond those that it keeps; what fails is an error of its caller.
    logging.getLogger("urllib3").setLevel(logging.ERROR)
