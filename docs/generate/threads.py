"""The variables by which a job's libraries choose their threads, from the code that sets them."""

from __future__ import annotations

from dlsched.runtime.docker.create.containers import VARIABLES
from docs.generate.markdown import table

_VALUES = {"cpus": "whole cores", "cores": "whole cores, at most the host's physical ones"}


def markdown() -> str:
    """A table of every variable."""
    rows = (
        (f"`{one.name}`", _VALUES.get(one.value, f"`{one.value}`"), one.read_by, one.evidence)
        for one in VARIABLES
    )
    return table(("variable", "value", "read by", "known from"), rows)
