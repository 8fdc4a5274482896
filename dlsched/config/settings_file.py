"""The settings file as a document, and the run directory in it.

Without pydantic, whose import takes longer than all of `dlsched ps`.
"""

from __future__ import annotations

from pathlib import Path

from dlsched.config.text import read_text
from dlsched.config.yaml import Document, load_document
from dlsched.model.errors import SettingsError

default_settings_file = Path("/etc/dlsched/dlsched.yaml")
"""Read when no other file is named, if it is there."""

PRESETS_DIR = Path("/etc/dlsched/presets.d")
"""The default of the setting `presets`."""

RUN_DIR = Path("/run/dlsched")
"""The default of the setting `run_dir`."""

UNIT = "dlsched.service"
"""The systemd unit of the daemon."""


def settings_document(file: Path | None) -> Document:
    """The file, or the default one if it exists; raises SettingsError if it cannot be read."""
    if file is None:
        if not default_settings_file.exists():
            return Document(str(default_settings_file), {})
        file = default_settings_file
    text = read_text(file, SettingsError)
    if all(not line.strip() or line.lstrip().startswith("#") for line in text.splitlines()):
        return Document(str(file), {})
    return load_document(text, str(file))


def plain_run_dir(file: Path | None) -> Path | None:
    """The setting `run_dir`; None where only `load_settings` can tell what is wrong with it.

    Raises SettingsError if the file cannot be read.
    """
    document = settings_document(file)
    if document.problems or not isinstance(document.value, dict):
        return None
    given = document.value.get("run_dir", str(RUN_DIR))
    if not isinstance(given, str) or not given.startswith("/") or ".." in given or "\0" in given:
        return None
    return Path(given)
