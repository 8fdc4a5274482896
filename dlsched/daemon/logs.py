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
    def _message(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        if record.exc_info and record.levelno >= logging.CRITICAL:
            message = f"{message} | {self.formatException(record.exc_info)}"
        return plain_text(message)

    def _time(self, record: logging.LogRecord) -> str:
        stamp = datetime.fromtimestamp(record.created, UTC)
        return stamp.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Text(_Line):
    def format(self, record: logging.LogRecord) -> str:
        return f"{self._time(record)} {record.levelname.lower():8} {self._message(record)}"


class _Systemd(_Line):
    """The journal adds the time and reads the level from the prefix."""

    def format(self, record: logging.LogRecord) -> str:
        return f"<{_PRIORITY.get(record.levelno, 6)}>{self._message(record)}"


class _Json(_Line):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(
            {
                "time": self._time(record),
                "level": record.levelname.lower(),
                "logger": record.name,
                "message": self._message(record),
            }
        )


def set_up(level: str, style: Literal["text", "json"]) -> None:
    handler = logging.StreamHandler(sys.stderr)
    if style == "json":
        handler.setFormatter(_Json())
    elif "JOURNAL_STREAM" in os.environ:
        handler.setFormatter(_Systemd())
    else:
        handler.setFormatter(_Text())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for library in ("watchfiles", "docker"):
        logging.getLogger(library).setLevel(logging.WARNING)
    # It warns of each connection beyond those that it keeps; what fails is an error of its caller.
    logging.getLogger("urllib3").setLevel(logging.ERROR)
