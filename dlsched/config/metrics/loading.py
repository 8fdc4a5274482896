"""Preset files: those of the package, and the operator's own, which may replace them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter

from dlsched.config.fields import text, validate
from dlsched.config.inbox.files import is_operators_alone
from dlsched.config.metrics.keys import PRESET, MetricKeys, MetricsKeys
from dlsched.config.metrics.resolving import Contradiction, Preset, Presets
from dlsched.config.text import judged_alone, read_regular, utf8_text
from dlsched.config.yaml import Document, load_document
from dlsched.config.yaml import Path as Place
from dlsched.model.errors import Problem, SettingsError

SIZE_MAX_BYTES = 64 * 1024
FILES_MAX = 256
"""Files in the operator's folder; more are a mistake."""
PRESETS_MAX = 64
"""In one file."""

_Name = Annotated[str, text(PRESET, "a preset's name: a-z, 0-9, . _ -, at most 63")]
_ADAPTER = TypeAdapter(Annotated[dict[_Name, MetricsKeys], Field(max_length=PRESETS_MAX)])


class PresetError(SettingsError):
    """A preset file is invalid: exit 2 at start; on SIGHUP the old presets stay."""


@cache
def package_presets() -> Presets:
    found = sorted(Path(__file__).with_name("presets").glob("*.yaml"))
    return joined(Presets(), [parse_presets(one.read_bytes(), one.name) for one in found])


def load_presets(folder: Path) -> Presets:
    """The package's presets and those of that folder, if it is there. Raises PresetError with every
    problem of the first file that has some, and where others than the operator may change one."""
    try:
        with suppress(FileNotFoundError):
            _check_owner(folder, folder.stat())
        found = sorted(folder.glob("*.yaml"))
    except OSError as error:
        raise _unreadable(folder, error.strerror or "cannot be read") from error
    if len(found) > FILES_MAX:
        raise _unreadable(folder, f"has {len(found)} preset files, must have at most {FILES_MAX}")
    return joined(package_presets(), [parse_presets(_content(one), str(one)) for one in found])


def parse_presets(content: bytes, file: str) -> tuple[Document, dict[str, MetricsKeys]]:
    """The presets of one file, by name. Raises PresetError."""
    with judged_alone(file, PresetError):
        document = load_document(utf8_text(content, file, PresetError), file)
        return document, validate(document, _ADAPTER, _known_keys, PresetError, null_ok=False)


def joined(before: Presets, parsed: list[tuple[Document, dict[str, MetricsKeys]]]) -> Presets:
    """With the presets of these files, of which a later one replaces its namesake. Raises
    PresetError."""
    by_name = dict(before.by_name)
    for document, given in parsed:
        by_name |= {name: Preset(keys, document.file) for name, keys in given.items()}
    presets = Presets(by_name)
    for document, given in parsed:
        problems = tuple(_contradictions(presets, document, given))
        if problems:
            raise PresetError(problems)
    return presets


def _contradictions(
    presets: Presets, document: Document, given: dict[str, MetricsKeys]
) -> Iterator[Problem]:
    for name, keys in given.items():
        try:
            presets.check(keys)
        except Contradiction as error:
            yield document.problem((name, *error.place), error.what)


def _content(file: Path) -> bytes:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            _check_owner(file, os.fstat(descriptor))
            return read_regular(descriptor, SIZE_MAX_BYTES)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _unreadable(file, f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise _unreadable(file, str(error)) from error


def _check_owner(path: Path, status: os.stat_result) -> None:
    if not is_operators_alone(status):
        how = f"belongs to uid {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}"
        what = f"others than root may change the file ({how}): `chown root` and `chmod go-w` it"
        raise _unreadable(path, what)


def _unreadable(file: Path | str, what: str) -> PresetError:
    return PresetError((Problem(str(file), 0, 0, "", what),))


def _known_keys(above: Place) -> list[str]:
    if len(above) > 2 and above[1] == "first_of":
        return list(MetricKeys.model_fields)
    return list(MetricsKeys.model_fields) if above else []
