"""Submits a job file to the watch folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from dlsched.config.inbox.files import Moved, is_job_file, list_files, read_job_file
from dlsched.config.job import env_file_reader, parse_spec
from dlsched.config.metrics.resolving import Presets
from dlsched.config.users import owner_of
from dlsched.config.yaml import Path as Place
from dlsched.model.errors import Problem, SpecError
from dlsched.model.spec import JobSpec
from dlsched.store.atomic import write_whole


def own_folder(watch: Path) -> Path:
    """Where this process's user puts job files: the user's own subfolder, if there is one."""
    uid = os.geteuid()
    name = owner_of(uid).name
    own = watch / (name or "")
    try:
        is_there = uid != 0 and name is not None and own.stat().st_uid == uid
    except OSError:
        is_there = False
    return own if is_there else watch


def submit(
    text: str,
    file_name: str,
    folder: Path,
    refusals: Callable[[JobSpec], Iterable[tuple[Place, str]]] = lambda _: (),
    presets: Presets | None = None,
    read_file: Callable[[str], str] | None = None,
) -> JobSpec:
    """Check the text and write it into the folder atomically; returns the job.

    `refusals`, `presets` and `read_file` (None: an env_file is one of the folder) are as in
    `parse_spec`. Raises SpecError when the text or
    file name is invalid or the file is another job's; OSError when the folder is not writable.
    """
    if not is_job_file(file_name) or "/" in file_name or "\0" in file_name:
        what = "is not the name of a job file: it must end in .yaml or .yml, and hold no /"
        raise SpecError((Problem(file_name, 0, 0, "", what),))
    spec = parse_spec(text, file_name, read_file or env_file_reader(folder), refusals, presets)
    _refuse_other_job(spec, folder, file_name, presets)
    write_whole(folder / file_name, text)
    return spec


def _refuse_other_job(spec: JobSpec, folder: Path, name: str, presets: Presets | None) -> None:
    try:
        file = read_job_file(folder, name, list_files(folder).stamps[name])
        there = parse_spec(file.text, name, env_file_reader(folder), presets=presets)
    except (Moved, OSError, ValueError, KeyError, SpecError):
        return
    if there.name != spec.name:
        what = (
            f"is already the file of the job {there.name}: give the file of {spec.name} another "
            "name"
        )
        raise SpecError((Problem(name, 0, 0, "", what),))
