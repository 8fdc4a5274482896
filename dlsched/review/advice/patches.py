"""Recommendations as text to paste: a Compose file's services, or keys of job files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from dlsched.model.units import plain_text
from dlsched.review.advice.result import Advice, Recommended


def compose(advice: Advice) -> str:
    """A Compose file to merge: plain Docker's own limits, and the same bounds for dlsched."""
    lines = [
        "# cpus and cpu_shares apply without dlsched; the labels bound what dlsched gives.",
        "# Service names are those of the containers: change them to your file's.",
        "services:",
    ]
    return _document(advice, lines, _service)


def job_files(advice: Advice) -> str:
    """The keys to change in each job file, one document a job."""
    return _document(advice, [], _job)


def _document(
    advice: Advice, head: list[str], render: Callable[[Recommended], Iterator[str]]
) -> str:
    return "\n".join([*head, *(line for one in advice.jobs for line in render(one))]) + "\n"


def _service(one: Recommended) -> Iterator[str]:
    yield f"  {json.dumps(one.name)}:"
    yield f"    # {_comment(one)}"
    if one.min_cores is None and one.cpu_shares is None and one.memory is None:
        yield "    {}"
        return
    if one.max_cores is not None:
        yield f"    cpus: {_number(one.max_cores)}"
    if one.cpu_shares is not None:
        yield f"    cpu_shares: {one.cpu_shares}"
    if one.memory is not None:
        yield f"    mem_limit: {one.memory.min_bytes}"
    if one.min_cores is None and one.memory is None:
        return
    yield "    labels:"
    if one.memory is not None:
        yield f'      dlsched.memory.max: "{one.memory.max_bytes}"'
    if one.min_cores is None:
        return
    yield f'      dlsched.cpus.min: "{_number(one.min_cores)}"'
    if one.max_cores is not None:
        yield f'      dlsched.cpus.max: "{_number(one.max_cores)}"'
    if one.weight != 1.0:
        yield f'      dlsched.weight: "{_number(one.weight)}"'


def _job(one: Recommended) -> Iterator[str]:
    yield "---"
    yield f"# {_comment(one)}"
    yield f"name: {json.dumps(one.name)}"
    bounds = [
        f"{key}: {_number(cores)}"
        for key, cores in (("min", one.min_cores), ("max", one.max_cores))
        if cores is not None
    ]
    if bounds:
        yield f"cpus: {{{', '.join(bounds)}}}"
    if one.memory is not None:
        yield f"memory: {one.memory.key}"
    if one.weight != 1.0:
        yield f"weight: {_number(one.weight)}"


def _comment(one: Recommended) -> str:
    """Its reason on one line: text of containers must not become keys."""
    reach = "out of reach: " if one.need.out_of_reach is not None else ""
    return plain_text(f"{reach}{one.why}")


def _number(value: float) -> str:
    return f"{value:g}"
