"""The command `policies`, which lists policies and their parameters."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import textwrap
from typing import TYPE_CHECKING, Any

import click

from dlsched.cli.commands import options
from dlsched.cli.output import print_json, print_text
from dlsched.model.errors import PolicyError

if TYPE_CHECKING:
    from dlsched.policies.registry import Group


@click.command(short_help="List the installed policies.")
@click.option(
    "--verbose",
    "-v",
    is_flag=True,
    help="Show parameters, defaults and units too, as JSON always does.",
)
@options.output
def policies(verbose: bool, output: str) -> None:
    """List the installed policies, including your own (entry points of group dlsched.policies, or
    dlsched.cluster_policies for several hosts).

    \b
    Examples:
      dlsched policies
      dlsched policies --verbose
    """
    from dlsched.cluster.core.registry import CLUSTER
    from dlsched.policies.registry import NODE

    whole = verbose or output == "json"
    node, cluster = _found(NODE, whole), _found(CLUSTER, whole)
    if output == "json":
        print_json({"policies": node, "cluster_policies": cluster})
        return
    _print(node)
    if cluster:
        print_text("\nThese need several hosts: they place and move jobs between them.")
        _print(cluster)


def _found(group: Group, verbose: bool) -> dict[str, Any]:
    from dlsched.policies.registry import known

    return {
        name: {"summary": summary, "parameters": _parameters(name, group) if verbose else []}
        for name, summary in known(group).items()
    }


def _print(found: dict[str, Any]) -> None:
    width = max((len(name) for name in found), default=0)
    for name, one in found.items():
        print_text(f"{name:<{width}}  {one['summary']}")
        for parameter in one["parameters"]:
            print_text(f"    {parameter['name']} = {parameter['default']}")
            print_text(textwrap.indent(textwrap.fill(parameter["help"], 88), " " * 8))


def _parameters(name: str, group: Group) -> list[dict[str, Any]]:
    from dlsched.policies.registry import build

    try:
        cls: type[Any] = type(build(name, group=group)).Parameters
    except PolicyError:
        return []  # its summary says that it cannot be loaded
    docstrings = _field_docstrings(cls)
    return [
        {"name": field.name, "default": field.default, "help": docstrings.get(field.name, "")}
        for field in dataclasses.fields(cls)
    ]


def _field_docstrings(cls: type[Any]) -> dict[str, str]:
    """The docstrings below fields, which Python does not keep at run time."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, SyntaxError):
        return {}  # without the source, names and defaults remain
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }
