"""Every installed policy and its parameters, as `dlsched policies --verbose` lists them."""

from __future__ import annotations

import inspect
import json

from click.testing import CliRunner

from dlsched.cli import main
from dlsched.policies.registry import load
from docs.generate.markdown import table


def markdown() -> str:
    """A section a policy: what it is, and a table of its parameters."""
    listed = CliRunner().invoke(
        main, ["policies", "--verbose", "-o", "json"], catch_exceptions=False
    )
    lines: list[str] = []
    for name, found in json.loads(listed.stdout)["policies"].items():
        lines += [f"(policy-{name})=", f"## {name}", "", inspect.getdoc(type(load(name))) or "", ""]
        if found["parameters"]:
            rows = (
                (f"`{one['name']}`", f"`{json.dumps(one['default'])}`", one["help"])
                for one in found["parameters"]
            )
            lines += [table(("parameter", "default", "what it does"), rows), ""]
    return "\n".join(lines)
