"""The settings: names and variables from the model, what they mean from config/dlsched.yaml."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dlsched.config.settings import setting_places, variable_name
from dlsched.daemon import wiring

FILE = Path(__file__).parents[2] / "config" / "dlsched.yaml"

Place = tuple[str, ...]

_KEY = re.compile(r"(?P<indent> *)(?P<key>[a-z_]+):(?P<value>.*)")


@dataclass
class _Explained:
    """What the shipped settings file says: comments above keys, and the values they have."""

    head: list[str] = field(default_factory=list)
    comments: dict[Place, list[str]] = field(default_factory=dict)
    values: dict[Place, str] = field(default_factory=dict)


def markdown() -> str:
    """Every setting: what it means, its default, and the variable that overrides the file."""
    explained = _explained(FILE.read_text(encoding="utf-8"))
    lines = [*_prose(explained.head), ""]
    group = ""
    for place in (tuple(map(str, place)) for place in setting_places()):
        if len(place) > 1 and place[0] != group:
            lines += _group(place[0], explained)
        group = place[0] if len(place) > 1 else ""
        lines += _setting(place, explained)
    return "\n".join(lines)


def _group(name: str, explained: _Explained) -> Iterator[str]:
    yield from (f"({name})=", f"## {name}", "")
    yield from (*_prose(explained.comments.get((name,), [])), "")


def _setting(place: Place, explained: _Explained) -> Iterator[str]:
    dotted = ".".join(place)
    yield from (f"({dotted})=", f"{'#' * (1 + len(place))} {dotted}", "")
    yield from (*_prose(explained.comments.get(place, [])), "")
    facts = [f"Default: `{explained.values[place]}`", f"environment: `{variable_name(place)}`"]
    facts += ["changed by a restart only"] if _at_start(place) else []
    yield from ("; ".join(facts) + ".", "")


def _at_start(place: Place) -> bool:
    inner = place[0] == "gpus" and place[1] in wiring._GPUS_AT_START
    return place[0] in wiring._AT_START or inner


def _prose(comment: list[str]) -> Iterator[str]:
    """The comment as Markdown: what is indented in it is an example."""
    inside = False
    for line in comment:
        example = line.startswith("  ")
        if example != inside:
            yield from ("```", "") if inside else ("", "```yaml")
        inside = example
        yield line[2:] if example else line
    if inside:
        yield "```"


def _explained(text: str) -> _Explained:
    explained = _Explained()
    comment: list[str] = []
    above = ""
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            comment.append(line.lstrip().removeprefix("#").removeprefix(" "))
        elif found := _KEY.fullmatch(line):
            place = (above, found["key"]) if found["indent"] else (found["key"],)
            value = found["value"].strip()
            explained.comments[place] = comment
            explained.values[place] = value
            explained.values |= {(*place, key): one for key, one in _flow(value).items()}
            above = above if found["indent"] else found["key"]
            comment = []
        elif not explained.values:
            explained.head, comment = comment, []
        else:
            comment = []
    return explained


def _flow(value: str) -> Mapping[str, str]:
    """The keys of a mapping that stands on one line."""
    inner = re.fullmatch(r"\{(.+)\}", value)
    pairs = (one.partition(":") for one in inner[1].split(",")) if inner else ()
    return {key.strip(): one.strip() for key, _, one in pairs}
