"""What README and the documentation say of GPU hardware: from gpu-truth.json, if there is one.

A rehearsal is refused. A file that names no GPU is as good as none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.gpu import truth
from benchmarks.publish import results

NAME = "gpu-truth"
_PAGE = "docs/results/gpus.md"


def saved() -> Mapping[str, Any] | None:
    """The script's result of a machine with a GPU. Raises ValueError for a rehearsal's."""
    found = results.load(NAME)
    if found is None:
        return None
    if found["rehearsal"] is not False:
        raise ValueError(
            f"benchmarks/results/{NAME}.json is a rehearsal without a GPU: delete it, and run "
            "make gpu-truth where there is one"
        )
    machine = found["machine"]
    return found if machine.get("gpu") and machine.get("driver") else None


def _where(found: Mapping[str, Any]) -> str:
    machine = found["machine"]
    return f"one {machine['gpu']} with driver {machine['driver']}, on {found['date']}"


def for_readme() -> str:
    """One sentence or two."""
    found = saved()
    if found is None:
        return (
            "**GPU support has not run on hardware**: it is tested on stand-ins for the driver and "
            "the devices."
        )
    return (
        f"**Parts of GPU support have run on hardware**, {_where(found)}: "
        f"{truth.summary(found['parts'])} ([figures]({_PAGE})). "
        "The daemon has read a GPU there and adopted a container that used it; starting, sharing "
        "and moving jobs are tested on stand-ins for the driver and the devices."
    )


def for_how_to() -> str:
    """The first sentence of the page on GPUs."""
    found = saved()
    if found is None:
        return "**This has not run on GPU hardware yet.**"
    return (
        "**On GPU hardware the daemon has only read a GPU and adopted a container that used it.** "
        f"What it relies on has run, {_where(found)}: "
        f"{truth.summary(found['parts'])} ([figures](../results/gpus.md))."
    )


def block() -> str:
    """Every part with its state and its figures."""
    found = saved()
    if found is None:
        return "Nothing on this page was measured on a GPU."
    parts: Mapping[str, Mapping[str, Any]] = found["parts"]
    table = [
        {
            "part": name,
            "state": part["state"],
            "reason": _safe(part["reason"]) or "-",
            "seconds": f"{part['seconds']:.1f}",
        }
        for name, part in parts.items()
    ]
    lists = []
    for name, part in parts.items():
        lines = [f"- {figure}: {_safe(value)}" for figure, value in truth.flat(part["figures"])]
        lists += ["\n".join([f"**{name}**\n", *lines])] if lines else []
    machine, commit = found["machine"], found["script"]["commit"]
    host = (
        f"Machine: {_where(found)}; CUDA {machine.get('cuda')}, torch {machine.get('torch')}, "
        f"{machine.get('cpus')} CPUs, kernel {machine.get('kernel')}. "
        f"Commit {commit or 'not known'}. {found['seconds']:.0f} s in all."
    )
    head = f"{truth.summary(parts)[:1].upper()}{truth.summary(parts)[1:]}."
    return "\n\n".join([head, results.markdown(table), *lists, host])


def _safe(text: str) -> str:
    """Text of programs, which Markdown must not read as its own."""
    return " ".join("".join(f"\\{c}" if c in "\\`*_{}[]<>|#$" else c for c in text).split())
