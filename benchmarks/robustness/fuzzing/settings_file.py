"""The operator's settings: a file and an environment.

Promised: `Settings`, or lines that say what is wrong.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from random import Random

from benchmarks.robustness.fuzzing.mutation import NUMBERS, TEXTS, mutated
from benchmarks.robustness.fuzzing.trial import InFolder, Refused, refusable
from dlsched.config.settings import load_settings, setting_places, variable_name
from dlsched.model.errors import PolicyError, SettingsError
from dlsched.policies import registry
from tests.config.yaml_grammar import document

NAME, WITHIN_S = "settings", 3.0
_LINES = tuple(
    line.encode()
    for line in (
        "instance: default\n",
        "state_dir: /var/lib/dlsched\n",
        "run_dir: /run/dlsched\n",
        "watch: /etc/dlsched/jobs.d\n",
        "policy: dqoes\n",
        "policy: dqoes?gain=0.1&backoff=1\n",
        "policy_options: {gain: 0.1}\n",
        "shadow: fair\n",
        "shadow_options: {}\n",
        "period: 1s\n",
        "window: 30s\n",
        "capacity: threads\n",
        "capacity: 3.5\n",
        "reserve: {cpus: 0, memory: 512MiB}\n",
        "max_jobs: 64\n",
        "dead_band: 0.02\n",
        "cooldown: 0s\n",
        "group_weight: 8\n",
        "tier_evaluations: 3\n",
        "deliver_hook: {command: [/bin/true, x], user: nobody, timeout: 30s}\n",
        "deliver_hook:\n  command: null\n  user: root\n",
        "engine: {host: unix:///run/x, timeout: 10s}\n",
        "engine:\n  config_file: /root/.docker/config.json\n  cgroup_parent: /lab\n",
        "gpus: {injection: auto, device_folder: /dev, prefer: pack, foreign: avoid, move: true}\n",
        "gpus:\n  reserved: [GPU-8f6d8f5e-0b5c, MIG-1/7/0]\n  on_loss: move\n",
        "journal: {max_size: 1GiB, max_age: 7d, frame: 5m}\n",
        "log: {level: info, format: text}\n",
    )
)
_VARIABLES = tuple(variable_name(place).encode() for place in setting_places())
_VALUES = tuple(line.partition(b": ")[2].strip() for line in _LINES)
_WORDS = (
    *_VALUES,
    *_VARIABLES,
    b"null",
    b"{",
    b"}",
    b"[",
    b"&a ",
    b"*a",
    b"!!x ",
    b"---\n",
    b"?",
    b"&",
    b"=",
)
_NEXT = b"\x1e"
"""Between the file and each variable."""


def make(rng: Random) -> bytes:
    lines = rng.sample(_LINES, rng.randrange(4))
    kind = rng.random()
    if kind < 0.02:
        data = rng.randbytes(rng.randrange(64)).replace(_NEXT, b"")
    elif kind < 0.20:
        data = document(rng, tuple(line.decode().partition(":")[0] for line in _LINES))
    elif kind < 0.25:
        data = b"".join(lines)
    else:
        data = mutated(rng, b"".join(lines), _LINES, _WORDS)
    for _ in range(rng.choice((0, 0, 1, 2))):
        value = rng.choice((*_VALUES, *(odd.encode() for odd in (*NUMBERS, *TEXTS))))
        if rng.random() < 0.5:
            value = mutated(rng, value, _VALUES, _WORDS)
        data += _NEXT + rng.choice(_VARIABLES) + b"=" + value
    return data


class Reader(InFolder):
    """One settings file, over and over."""

    def answer(self, data: bytes) -> str:
        content, *variables = data.split(_NEXT)
        file = self.folder / "dlsched.yaml"
        file.write_bytes(content)
        environ = {}
        for variable in variables:
            # No environment can hold a zero byte.
            name, _, value = variable.replace(b"\0", b"").partition(b"=")
            environ[os.fsdecode(name)] = os.fsdecode(value)
        environ.pop("DLSCHED_CONFIG", None)
        try:
            settings = refusable(load_settings, file, environ, {}, meant=SettingsError)
        except Refused as refused:
            return str(refused).replace(str(self.folder), "")
        text = json.dumps(asdict(settings), default=str, allow_nan=False)
        # `module:Class` would be imported: that is what the operator then asked for.
        if ("?" in settings.policy or settings.policy_options) and ":" not in settings.policy:
            load = registry.load
            refusable(load, settings.policy, settings.policy_options, meant=PolicyError)
        return text
