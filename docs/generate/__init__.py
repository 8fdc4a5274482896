"""The parts of the documentation that come from the code and from the result files.

A page asks for one by a line of its own, `<!-- generated: NAME -->` or, of a bench's results,
`<!-- generated: result BENCH -->`. It is put there when Sphinx reads the page: none is kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from benchmarks.publish import hardware
from benchmarks.publish.blocks import BLOCKS
from docs.generate import (
    alarms,
    commands,
    job_file,
    labels,
    metrics,
    policies,
    presets,
    settings,
    status,
    threads,
    what_reads_what,
)

MARKER = re.compile(r"^<!-- generated: (?:result (?P<bench>\S+)|(?P<name>\S+)) -->$", re.MULTILINE)

PARTS: Mapping[str, Callable[[], str]] = {
    "commands": commands.markdown,
    "settings": settings.markdown,
    "job-file": job_file.markdown,
    "labels": labels.markdown,
    "presets": presets.markdown,
    "threads": threads.markdown,
    "what-reads-what": what_reads_what.markdown,
    "policies": policies.markdown,
    "status": status.markdown,
    "alarms": alarms.markdown,
    "metrics": metrics.markdown,
    "gpu-hardware": hardware.for_how_to,
    "metric-alerts": metrics.alerts,
    "metric-records": metrics.records,
}


def filled(page: str) -> str:
    """The page with its generated parts in it. Raises KeyError for one that does not exist."""
    return MARKER.sub(_part, page)


def _part(marker: re.Match[str]) -> str:
    if marker["bench"]:
        return BLOCKS[marker["bench"]]()
    return PARTS[marker["name"]]()
