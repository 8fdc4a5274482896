"""The presets that come with dlsched, and their fields, from the files and the code that reads
them."""

from __future__ import annotations

from typing import Any

from dlsched.cli.commands.presets import reads
from dlsched.config.metrics.keys import MetricsKeys
from dlsched.config.metrics.loading import package_presets
from docs.generate.markdown import table


def markdown() -> str:
    """A table of every preset, and one of every field."""
    presets = package_presets()
    rows = (_row(name, presets.plain(name)) for name in sorted(presets.by_name))
    fields = (
        (f"`{name}`", field.description or "") for name, field in MetricsKeys.model_fields.items()
    )
    listed = table(("preset", "reads", "needs"), rows)
    return f"{listed}\n\n## Fields\n\n{table(('field', 'what it is'), fields)}"


def _row(name: str, fields: dict[str, Any]) -> tuple[str, str, str]:
    needs = f"`{fields['needs']}`" if "needs" in fields else ""
    return f"`{name}`", f"`{reads(fields)}`", needs
