"""A job file's text to a `JobSpec`, or to every problem in it at once.

Owns how keys become the container, bounds and targets that the rest of the program speaks, and the
digests by which a change is known. It must not list folders or know Docker.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import TypeAdapter

from dlsched.config.fields import PROBLEMS_MAX, validate
from dlsched.config.job_schema import (  # fmt: skip
    COMPOSES,
    FLAGS,
    CpusKeys,
    GpusKeys,
    JobKeys,
    TargetKeys,
    json_schema,
    known_keys,
)
from dlsched.config.job_values import RESERVED_VARIABLE, Pairs
from dlsched.config.metrics.loading import package_presets
from dlsched.config.metrics.resolving import Contradiction, Presets, check_target
from dlsched.config.text import judged_alone, read_regular
from dlsched.config.yaml import Document, Scalar, load_document
from dlsched.config.yaml import Path as Place
from dlsched.control.checkpoint_volume import checkpoint_volume
from dlsched.model.errors import Problem, SpecError
from dlsched.model.sources import ProgressSource
from dlsched.model.spec import (  # fmt: skip
    AccuracyTarget,
    Bounds,
    Checkpoint,
    ContainerSpec,
    Healthcheck,
    JobSpec,
    LatencyTarget,
    Logging,
    Restart,
    Stop,
    Target,
    Ulimit,
)
from dlsched.model.units import shown


def cluster_problems(spec: JobSpec) -> Iterator[tuple[Place, str]]:
    """Each problem with its key."""
    checkpoint = spec.checkpoint
    shared = checkpoint is not None and checkpoint.shared
    if checkpoint is not None and shared and checkpoint_volume(spec) is None:
        path = shown(checkpoint.path)
        what = f"the path {path} is in no writable volume, so no other node has the checkpoint"
        yield ("checkpoint", "shared"), what
    if spec.failover != "restart":
        return
    if not shared:
        what = (
            "restart on another node needs `checkpoint.shared: true`: else that node does not "
            "have the checkpoint"
        )
        yield ("failover",), what
    if spec.container.restart.name != "no":
        what = (
            "restart on another node needs `restart: no`: else Docker could start the container "
            "here, too, while that node runs the job"
        )
        yield ("failover",), what


def background_problem(spec: JobSpec) -> str | None:
    """Why it cannot come last; None: it can, or it is no background job."""
    if not spec.background:
        return None
    if spec.target is not None:
        return "a background job cannot have a target: leave out either `background` or `target`"
    if spec.bounds.floor_share < 1:
        return (
            "a background job cannot have a share of a GPU's time: leave out either `background` "
            "or `gpus.share`"
        )
    return None


__all__ = ["env_file_reader", "json_schema", "parse_spec"]

ENV_FILE_MAX_BYTES = 64 * 1024
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*(?:'|\.\.\.)|"(?:[^"\\]|\\.)*(?:"|\.\.\.)""")
"""A value as error lines show it: in quotes, and cut off when it is long."""
_ADAPTER = TypeAdapter(JobKeys)
_QUANTILE: Place = ("target", "quantile")
_NULL: Mapping[str, Scalar] = dict.fromkeys(("null", "Null", "NULL", "~"))
_COMPOSES: Mapping[Place, Mapping[str, Scalar]] = {
    ("restart",): {"no": "no"},
    ("command",): _NULL,
    ("entrypoint",): _NULL,
}
"""What Compose takes without quotes: `restart: no`, and null for what the image says."""


def parse_spec(
    text: str,
    file: str,
    read_file: Callable[[str], str] | None = None,
    refusals: Callable[[JobSpec], Iterable[tuple[Place, str]]] = lambda _: (),
    presets: Presets | None = None,
) -> JobSpec:
    """The job that the text describes.

    `read_file` gives the text of an env_file by its name as written (`env_file_reader` makes one);
    `refusals` finds where the job asks for what its owner may not have; `presets` None means those
    of the package. Raises SpecError with all problems, in the order of the file.
    """
    with judged_alone(file, SpecError):
        return _parsed(text, file, read_file, refusals, presets or package_presets())


def _parsed(
    text: str,
    file: str,
    read_file: Callable[[str], str] | None,
    refusals: Callable[[JobSpec], Iterable[tuple[Place, str]]],
    presets: Presets,
) -> JobSpec:
    source = load_document(text, file, meanings=_COMPOSES, flags=FLAGS)
    try:
        keys = validate(source, _ADAPTER, known_keys, SpecError, null_ok=False, elsewhere=COMPOSES)
    except SpecError as error:
        raise SpecError(tuple(_discreet(problem) for problem in error.problems)) from None
    finding = _Crossing(source)
    spec = JobSpec(
        name=keys.name,
        container=_container(keys, finding, read_file),
        bounds=bounds_of(keys.cpus, keys.gpus),
        weight=keys.weight,
        target=target_of(keys.target),
        stop=Stop(keys.stop.signal, keys.stop.grace) if keys.stop else Stop(),
        checkpoint=_checkpoint(keys),
        failover=keys.failover,
        nodes=_pairs(keys.nodes, "nodes", finding),
        background=keys.background,
        memory_max_bytes=keys.memory.max if keys.memory else None,
        sources=_sources(keys, presets, finding),
        wire=keys.wire,
    )
    try:
        check_target(spec.sources, spec.target)
    except Contradiction as error:
        finding.add(("metrics", *error.place) if error.place else _QUANTILE, error.what)
    if keys.memory is not None and keys.memory.min is None:
        finding.add(("memory",), "needs min, the limit at the start")
    if (problem := background_problem(spec)) is not None:
        finding.add(("background",), problem)
    for place, what in (*cluster_problems(spec), *refusals(spec)):
        finding.add(place, what)
    if finding.problems:
        problems = sorted(finding.problems, key=lambda one: (one.line, one.column))
        raise SpecError(tuple(problems))
    spec = replace(spec, container_digest=_digest(spec.container))
    return replace(spec, digest=_digest(spec))


def env_file_reader(folder: Path) -> Callable[[str], str]:
    """Reads env_files relative to that folder: regular files only, at most 64 KiB each.

    What it returns raises OSError or ValueError with one line that says why.
    """

    def read(name: str) -> str:
        descriptor = os.open(folder / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return read_regular(descriptor, ENV_FILE_MAX_BYTES).decode()
        finally:
            os.close(descriptor)

    return read


class _Crossing:
    """Problems that only show when single keys are right."""

    def __init__(self, source: Document) -> None:
        self._source = source
        self.problems: list[Problem] = []

    def add(self, path: Place, what: str) -> None:
        """Past `PROBLEMS_MAX` it only says that there is more."""
        if len(self.problems) == PROBLEMS_MAX:
            self.problems.append(
                self._source.problem((), "there are more problems than are listed")
            )
        elif len(self.problems) < PROBLEMS_MAX:
            self.problems.append(self._source.problem(path, what))


def _container(
    keys: JobKeys, finding: _Crossing, read_file: Callable[[str], str] | None
) -> ContainerSpec:
    _refuse_twice(keys.volumes, "volumes", lambda volume: volume.split(":")[1], finding)
    _refuse_twice(keys.tmpfs, "tmpfs", lambda entry: entry.partition(":")[0], finding)
    return ContainerSpec(
        image=keys.image,
        command=keys.command,
        entrypoint=keys.entrypoint,
        environment=_environment(keys, finding, read_file),
        volumes=keys.volumes,
        restart=restart_of(keys.restart),
        memory_bytes=keys.memory.min if keys.memory else None,
        gpus=keys.gpus.count if keys.gpus else 0,
        gpu_memory_bytes=keys.gpus.memory if keys.gpus else None,
        gpu_model=keys.gpus.model if keys.gpus else None,
        ports=keys.ports,
        network=keys.network,
        user=keys.user,
        working_dir=keys.working_dir,
        shm_size_bytes=keys.shm_size,
        tmpfs=keys.tmpfs,
        ulimits=tuple(
            Ulimit(name, limit.soft, limit.hard)
            for name, limit in sorted((keys.ulimits or {}).items())
        ),
        extra_hosts=_extra_hosts(keys),
        labels=_pairs(keys.labels, "labels", finding),
        read_only=keys.read_only,
        cap_drop=tuple(sorted({name.removeprefix("CAP_") for name in keys.cap_drop})),
        healthcheck=_healthcheck(keys),
        logging=_logging(keys),
        pull_policy=keys.pull_policy,
        threads=keys.threads,
    )


def _sources(keys: JobKeys, presets: Presets, finding: _Crossing) -> tuple[ProgressSource, ...]:
    try:
        return () if keys.metrics is None else presets.sources(keys.metrics)
    except Contradiction as error:
        inner = () if error.place == ("base",) else error.place
        finding.add(("metrics", *inner), error.what)
        return ()


def _environment(
    keys: JobKeys, finding: _Crossing, read_file: Callable[[str], str] | None
) -> tuple[tuple[str, str], ...]:
    merged: dict[str, str] = {}
    for index, name in enumerate(keys.env_file or ()):
        path: Place = ("env_file", index)
        if read_file is None:
            finding.add(
                path, f"{shown(name)} cannot be found: this job file was not read from a folder"
            )
            continue
        try:
            content = read_file(name)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else error
            finding.add(path, f"{shown(name)} cannot be read: {why}")
            continue
        for what, pair in _env_lines(content):
            if what:
                finding.add(path, f"{shown(name)} {what}")
            else:
                merged[pair[0]] = pair[1]
    merged.update(_pairs(keys.environment, "environment", finding))
    return tuple(sorted(merged.items()))


def _env_lines(content: str) -> Iterator[tuple[str, tuple[str, str]]]:
    for number, line in enumerate(content.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        key, equals, value = stripped.partition("=")
        value = value.strip()
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]{0,254}", key):
            # Not shown: an env_file is where secrets are.
            yield f"line {number} is not KEY=VALUE", ("", "")
        elif key.startswith(RESERVED_VARIABLE):
            yield f"line {number}: {key} is set by dlsched: leave it out", ("", "")
        elif "\0" in value:
            yield f"line {number}: the value of {key} contains a zero byte", ("", "")
        else:
            if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
                value = value[1:-1]
            yield "", (key, value)


def _pairs(given: Pairs | None, key: str, finding: _Crossing) -> tuple[tuple[str, str], ...]:
    if isinstance(given, dict):
        return tuple(sorted(given.items()))
    merged: dict[str, str] = {}
    for index, entry in enumerate(given or ()):
        name, _, value = entry.partition("=")
        if name in merged:
            finding.add((key, index), f"{shown(name)} is given twice")
        merged[name] = value
    return tuple(sorted(merged.items()))


def _refuse_twice(
    entries: tuple[str, ...], key: str, target: Callable[[str], str], finding: _Crossing
) -> None:
    index_of: dict[str, int] = {}
    for index, entry in enumerate(entries):
        path = target(entry).rstrip("/")
        if path in index_of:
            what = f"the target path {shown(path)} is already used by {key}[{index_of[path]}]"
            finding.add((key, index), what)
        index_of.setdefault(path, index)


def restart_of(text: str) -> Restart:
    """The restart policy of this checked text, such as `on-failure:3`."""
    name, _, retries = text.partition(":")
    known = cast(Literal["no", "always", "unless-stopped", "on-failure"], name)
    return Restart(known, int(retries or 0))


def _extra_hosts(keys: JobKeys) -> tuple[str, ...]:
    given = keys.extra_hosts
    if isinstance(given, dict):
        return tuple(f"{host}:{address}" for host, address in given.items())
    return given or ()


def _healthcheck(keys: JobKeys) -> Healthcheck | None:
    given = keys.healthcheck
    if given is None:
        return None
    if given.disable:
        return Healthcheck(("NONE",))
    return Healthcheck(
        given.test or (), given.interval, given.timeout, given.start_period, given.retries
    )


def _logging(keys: JobKeys) -> Logging:
    given = keys.logging
    if given is None or (given.driver == "json-file" and given.options is None):
        return Logging()
    return Logging(given.driver, tuple(sorted((given.options or {}).items())))


def bounds_of(cpus: CpusKeys | None, gpus: GpusKeys | None = None) -> Bounds:
    bounds = Bounds()
    if cpus is not None:
        bounds = Bounds(cpus.min, cpus.max, promised="min" in cpus.model_fields_set)
    if gpus is None:
        return bounds
    return replace(bounds, floor_share=gpus.share.min, ceiling_share=gpus.share.max)


def target_of(given: TargetKeys | None) -> Target | None:
    if given is None:
        return None
    if given.latency is not None:
        return LatencyTarget(given.latency, given.quantile, given.max_failed, given.of)
    assert given.metric is not None and given.deliver is not None and given.finish is not None
    return AccuracyTarget(given.metric, given.deliver, given.finish, given.deadline)


def _checkpoint(keys: JobKeys) -> Checkpoint | None:
    given = keys.checkpoint
    return Checkpoint(given.signal, given.timeout, given.path, given.shared) if given else None


def _discreet(problem: Problem) -> Problem:
    """The problem without the values that it quotes, where those may be secrets."""
    if not re.match(r"environment\b", problem.path):
        return problem
    return replace(problem, what=_QUOTED.sub("***", problem.what))


def _digest(value: object) -> str:
    """SHA-256 over canonical JSON, defaults left out: a field that a later release adds changes
    no digest, and so recreates no container."""
    content = json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()


def _canonical(value: Any) -> Any:
    if is_dataclass(value):
        return {type(value).__name__: {
            item.name: plain
            for item in fields(value)
            if item.metadata.get("digest", True)
            and (plain := _canonical(getattr(value, item.name))) != _canonical(item.default)
        }}  # fmt: skip
    if isinstance(value, tuple):
        return [_canonical(part) for part in value]
    return value
