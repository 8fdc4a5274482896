"""A file of presets, as an operator may write it, and labels that build on one of them.

Promised: presets whose sources can be read, or lines that say what is wrong. A preset in full, as
`dlsched presets NAME` prints it, is that preset again.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from random import Random

import yaml

from benchmarks.robustness.fuzzing.mutation import NUMBERS, TEXTS, mutated
from benchmarks.robustness.fuzzing.trial import Broken, Refused, refusable, told
from dlsched.config.metrics.keys import MetricsKeys
from dlsched.config.metrics.loading import PresetError, joined, package_presets, parse_presets
from dlsched.config.metrics.resolving import Contradiction, Presets
from dlsched.model.sources import LogPattern, MetricsEndpoint
from dlsched.runtime.progress.log_lines import LogLines
from dlsched.runtime.progress.sources import read_sources
from tests.config.yaml_grammar import document

NAME = "presets"
_WORDS = tuple(
    word.encode()
    for word in (
        *MetricsKeys.model_fields, "base: vllm\n", "base: a\n", "{", "}", "[", "]", ":", ",", "!",
        "where: {a: '('}", "where: {a: '!.*'}", "unit: us", "kind: ratio", "kind: log", "via: true",
        "port: [1, 2]", "name: 'a,b'",
        "first_of: [{name: x}, {total: y, count: z}]", "when: a == b",
        "step: evaluations", "pattern: '(?P<a>.)'", "(?P<x>", "&a", "*a", "!!python/object:a ",
    )
)  # fmt: skip
_LABELS = (
    {"dlsched.metrics": "a"},
    {"dlsched.metrics": "a", "dlsched.metrics.port": "1"},
    {"dlsched.metrics": "a", "dlsched.metrics.where.model": "x", "dlsched.metrics.via": "edge"},
    {"dlsched.metrics": "a", "dlsched.metrics.pattern": "(?P<loss>.)", "dlsched.metrics.unit": "s"},
)


@cache
def _files() -> tuple[bytes, ...]:
    """Each packaged preset as a file of its own, under the name that the labels use."""
    presets = package_presets()
    return tuple(
        yaml.safe_dump({"a": presets.plain(name)}, sort_keys=False).encode()
        for name in sorted(presets.by_name)
    )


def make(rng: Random) -> bytes:
    if rng.random() < 0.1:
        return document(rng, ("vllm", "own", "base", "port", "name", "pattern", "where", "unit"))
    files = _files()
    data = rng.choice(files)
    if rng.random() < 0.2:
        data += rng.choice(files).replace(b"a:\n", b"b:\n", 1)
    words = (*_WORDS, *(odd.encode() for odd in (*NUMBERS, *TEXTS)))
    return mutated(rng, data, files, words) if rng.random() < 0.95 else rng.randbytes(64)


def answer(data: bytes) -> str:
    parsed = refusable(parse_presets, data, "own.yaml", meant=PresetError)
    presets = refusable(joined, package_presets(), [parsed], meant=PresetError)
    own = [name for name, one in presets.by_name.items() if one.file == "own.yaml"]
    found = [_sources(presets, name) for name in own]
    found += [told(read_sources, labels, presets) for labels in _LABELS]
    return "\n".join(found)


def _sources(presets: Presets, name: str) -> str:
    keys = presets.by_name[name].keys
    try:
        sources = refusable(presets.sources, keys, meant=Contradiction)
    except Refused as refused:
        return str(refused)
    again = parse_presets(yaml.safe_dump({name: presets.plain(name)}).encode(), "again")[1][name]
    if presets.sources(again) != sources:
        raise Broken(f"{name} in full is another preset")
    for source in sources:
        if isinstance(source, LogPattern):
            LogLines(source.pattern, source.step, source.when)
        elif isinstance(source, MetricsEndpoint) and not source.ports:
            raise Broken("an endpoint without a port")
    return json.dumps([asdict(one) for one in sources])
