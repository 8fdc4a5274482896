"""Figures of parts as lines, for the terminal and for the documentation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def flat(figures: Mapping[str, Any], under: str = "") -> Iterator[tuple[str, str]]:
    """Each figure by its whole name, nested ones with dots between; numbers to three digits."""
    for name, value in figures.items():
        whole = f"{under}{name}"
        if isinstance(value, Mapping):
            yield from flat(value, f"{whole}.")
        elif isinstance(value, Sequence) and any(isinstance(one, Mapping) for one in value):
            yield from flat({str(index): one for index, one in enumerate(value)}, f"{whole}.")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            yield whole, "; ".join(map(cell, value)) or "none"
        else:
            yield whole, cell(value)


def cell(value: Any) -> str:
    """One value as text."""
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def counted(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Names of parts by their state."""
    found: dict[str, list[str]] = {}
    for name, part in parts.items():
        found.setdefault(part["state"], []).append(name)
    return found


def summary(parts: Mapping[str, Mapping[str, Any]]) -> str:
    """How many parts ran, and which did not: `7 of 8 parts ran; failed: pacing`."""
    by_state = counted(parts)
    ran = len(by_state.pop("ran", ()))
    others = [f"{state}: {', '.join(names)}" for state, names in by_state.items()]
    return "; ".join([f"{ran} of {len(parts)} parts ran", *others])


def report(parts: Mapping[str, Mapping[str, Any]]) -> str:
    """All parts and their figures, for a terminal."""
    lines = []
    for name, part in parts.items():
        reason = f": {part['reason']}" if part["reason"] else ""
        lines.append(f"{name:<10} {part['state']}{reason} ({part['seconds']:.1f} s)")
        lines += [f"    {figure}: {value}" for figure, value in flat(part["figures"])]
    return "\n".join([*lines, "", summary(parts)])
