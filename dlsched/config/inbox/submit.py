"""Submits a job file to the watch folder, and checks what the node lacks for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dlsched.config.inbox.files import Moved, is_job_file, list_files, read_job_file
from dlsched.config.job import env_file_reader, parse_spec
from dlsched.config.users import owner_of
from dlsched.config.yaml import Path as Place
from dlsched.control.gpus.placement import is_model, kinds_in_words
from dlsched.estimate.evaluations import reaches
from dlsched.model.errors import Problem, SpecError
from dlsched.model.spec import AccuracyTarget, JobSpec, LatencyTarget
from dlsched.model.units import render_bytes, render_cores, render_seconds, shown
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


def lacks(spec: JobSpec, node: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
    """Every key where the job asks for more than the node (as in `status.node_status`) can ever
    give."""
    if not node:
        return
    floor_cores, memory_bytes = spec.bounds.floor_cores, spec.container.memory_bytes or 0
    if floor_cores > node["capacity_cores"]:
        has = render_cores(node["capacity_cores"])
        yield ("cpus", "min"), f"{render_cores(floor_cores)}, the node has {has} to give"
    if memory_bytes > node["memory_bytes"]:
        has = render_bytes(node["memory_bytes"])
        yield ("memory",), f"{render_bytes(memory_bytes)}, the node has {has} to give"
    yield from _lacks_gpus(spec, node)


def _lacks_gpus(spec: JobSpec, node: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
    """No findings while the node cannot see all of its GPUs: the missing ones may come back."""
    asked, model = spec.container, spec.container.gpu_model
    if not asked.gpus or node.get("gpus") is None or node.get("gpu_trouble") is not None:
        return
    gpus = [gpu for gpu in node["gpus"] if not gpu["reserved"]]
    there, such = _counted(gpus), ""
    if asked.gpus <= len(gpus) and model is not None:
        gpus, such = [gpu for gpu in gpus if is_model(gpu["model"], model)], " such"
        if not gpus:
            yield ("gpus", "model"), f"{shown(model)}, the node has none{there}"
            return
    if asked.gpus <= len(gpus) and asked.gpu_memory_bytes is not None:
        most_bytes = max(gpu["memory_bytes"] for gpu in gpus)
        if asked.gpu_memory_bytes > most_bytes:
            what = f"{render_bytes(asked.gpu_memory_bytes)}, the node's largest{such} has "
            yield ("gpus", "memory"), f"{what}{render_bytes(most_bytes)}{there}"
            return
        gpus = [gpu for gpu in gpus if gpu["memory_bytes"] >= asked.gpu_memory_bytes]
        such = " such"
    if asked.gpus > len(gpus):
        yield ("gpus", "count"), f"{asked.gpus}{such}, the node has {len(gpus) or 'none'}{there}"


def _counted(gpus: list[Mapping[str, Any]]) -> str:
    kinds = kinds_in_words((gpu["model"], gpu["memory_bytes"]) for gpu in gpus)
    return f": {kinds}" if kinds else ""


def doubts(spec: JobSpec, jobs: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Reasons why the job may miss its targets, by the forecasts of the running job of that name.

    `jobs` are rows of `status.job_status`. Nothing where the target is of another kind.
    """
    row = next((row for row in jobs if row["name"] == spec.name), None)
    if row is None or row["target"] is None:
        return
    for outlook in row["outlook"]:
        if isinstance(spec.target, LatencyTarget) and outlook["tier"] == "latency":
            yield from _latency_doubts(spec, spec.target, row["target"], outlook)
        elif isinstance(spec.target, AccuracyTarget):
            yield from _tier_doubts(spec.target, row["target"], outlook)


def _latency_doubts(
    spec: JobSpec, target: LatencyTarget, before: Mapping[str, Any], outlook: Mapping[str, Any]
) -> Iterator[str]:
    """For the same quantile: the best latency, or the cores needed for it or for a longer one."""
    if before.get("quantile") != target.quantile:
        return
    best_s, needs_cores = outlook["best"], outlook["needs_cores"]
    ceiling_cores = spec.bounds.ceiling_cores
    if outlook["kind"] == "impossible" and best_s is not None and target.seconds < best_s:
        asked = render_seconds(target.seconds)
        yield f"target.latency: {asked}, at best {render_seconds(best_s)} as it runs now"
    elif needs_cores is None or ceiling_cores is None or target.seconds > before["seconds"]:
        return
    elif ceiling_cores < needs_cores:
        needs = f"its target needs {render_cores(needs_cores)} as it runs now"
        yield f"cpus.max: {render_cores(ceiling_cores)}, {needs}"


def _tier_doubts(
    target: AccuracyTarget, before: Mapping[str, Any], outlook: Mapping[str, Any]
) -> Iterator[str]:
    best, tier = outlook["best"], outlook["tier"]
    asked = {"deliver": target.deliver, "finish": target.finish}.get(tier)
    short = outlook["kind"] in ("impossible", "unlikely")
    if before.get("metric") != target.metric or not short or best is None:
        return
    if asked is not None and not reaches(target, asked, best):
        yield f"target.{tier}: {asked:g}, at best {best:.4g} is expected as it runs now"


def submit(
    text: str,
    file_name: str,
    folder: Path,
    refusals: Callable[[JobSpec], Iterable[tuple[Place, str]]] = lambda _: (),
) -> JobSpec:
    """Check the text and write it into the folder atomically; returns the job.

    `refusals` is as in `parse_spec`. Raises SpecError when the text or file name is invalid or the
    file is another job's; OSError when the folder is not writable.
    """
    if not is_job_file(file_name) or "/" in file_name or "\0" in file_name:
        what = "is not the name of a job file: it must end in .yaml or .yml, and hold no /"
        raise SpecError((Problem(file_name, 0, 0, "", what),))
    spec = parse_spec(text, file_name, env_file_reader(folder), refusals)
    _refuse_other_job(spec, folder, file_name)
    write_whole(folder / file_name, text)
    return spec


def _refuse_other_job(spec: JobSpec, folder: Path, name: str) -> None:
    try:
        file = read_job_file(folder, name, list_files(folder).stamps[name])
        there = parse_spec(file.text, name, env_file_reader(folder))
    except (Moved, OSError, ValueError, KeyError, SpecError):
        return
    if there.name != spec.name:
        what = f"is the file of the job {there.name}: submit {spec.name} under another name"
        raise SpecError((Problem(name, 0, 0, "", what),))
