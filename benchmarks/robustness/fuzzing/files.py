"""Files that operators and users write, as YAML: job files, settings, presets.

Promised: what the file says, or lines that say what is wrong. Of a job file a `JobSpec` that the
engine's adapter can tell; a preset in full, as `dlsched presets NAME` prints it, is that preset
again.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache, partial
from pathlib import PurePosixPath
from random import Random

import yaml

from benchmarks.robustness.fuzzing.trial import (
    InFolder,
    Refused,
    Target,
    refusable,
    told,
    told_lines,
)
from dlsched.api.reading import as_json
from dlsched.config.inbox.files import Moved, read_job_file, stamp_at
from dlsched.config.job import parse_spec
from dlsched.config.metrics.keys import MetricsKeys
from dlsched.config.metrics.loading import PresetError, joined, package_presets, parse_presets
from dlsched.config.metrics.resolving import Contradiction, Presets
from dlsched.config.settings import load_settings, setting_places, variable_name
from dlsched.config.users import Owner, Rules, refusals
from dlsched.model.errors import PolicyError, SettingsError, SpecError
from dlsched.model.sources import LogPattern, MetricsEndpoint
from dlsched.model.spec import NAME as JOB_NAME
from dlsched.model.spec import JobSpec, Limits
from dlsched.policies import registry
from dlsched.runtime.docker.create.containers import Surroundings, create_body
from dlsched.runtime.docker.identity.labels import labels_of
from dlsched.runtime.progress.log_lines import LogLines
from dlsched.runtime.progress.sources import read_sources
from tests.config.yaml_grammar import document
from tests.mutation import ODD, Broken, mutated

# ------------------------------------------------------------------ job files


HEAD = b"name: face-unlock\nimage: dlsched-examples/inference\n"
BLOCKS = tuple(
    block.encode()
    for block in (
        "command: [python, serve.py, --model, mobilenet]\n",
        'command: python serve.py --model "mobile net"\n',
        "entrypoint: [/usr/bin/tini, --]\n",
        "environment: {MODEL: mobilenet, THREADS: 1}\n",
        "environment:\n  - A=b\n  - C=d=e\n",
        "env_file: a.env\n",
        "env_file: [a.env, b.env]\n",
        "volumes: [models:/models:ro, /srv:/data]\n",
        "volumes:\n- cache:/c:nocopy\n- /x:/y:z,ro\n",
        "volumes: [/data/mine:/d:ro]\n",
        "restart: on-failure:3\n",
        'restart: "no"\n',
        "cpus: {min: 0.1, max: 2}\n",
        "memory: 1GiB\n",
        "gpus: 1\n",
        "gpus: {count: 2, share: 0.5, memory: 8GiB, model: A100}\n",
        "gpus:\n  count: 1\n  share: {min: 0.2, max: 0.8}\n",
        "weight: 1\n",
        "target: {latency: 50ms, quantile: p95}\n",
        "metrics: vllm\n",
        "metrics: {base: fastapi, port: [8000, 9000], where: {handler: '!/x'}}\n",
        "metrics:\n  port: 1\n  first_of: [{name: a}, {total: b, count: c, unit: us}]\n",
        "metrics: {pattern: '(?P<step>.) (?P<loss>.)', step: carried, metric: loss}\n",
        "target: {metric: accuracy, deliver: 0.90, finish: 0.97, deadline: 2h}\n",
        "target: {metric: loss, deliver: 0.5, finish: 0.1}\n",
        "stop: {signal: SIGTERM, grace: 30s}\n",
        "checkpoint: {signal: SIGUSR1, timeout: 60s, path: /checkpoints}\n",
        'ports: ["127.0.0.1:9090:9090", "8080", "53:53/udp"]\n',
        "network: bridge\n",
        "user: 1000:1000\n",
        "working_dir: /app\n",
        "shm_size: 64MiB\n",
        'tmpfs: ["/tmp:size=64m"]\n',
        "tmpfs: /run\n",
        "ulimits: {nofile: {soft: 1024, hard: 2048}, core: 0}\n",
        'extra_hosts: ["registry.internal:10.0.0.7"]\n',
        'extra_hosts: {db: 10.0.0.8, "v6": "::1"}\n',
        "labels: {team: vision}\n",
        "labels: [a=b]\n",
        "read_only: true\n",
        "cap_drop: [ALL, CAP_NET_RAW]\n",
        "healthcheck: {test: [CMD, true], interval: 5s, retries: 3}\n",
        "healthcheck:\n  test: curl -f http://localhost\n  timeout: 1s\n",
        "healthcheck: {disable: true}\n",
        "logging: {driver: json-file, options: {max-size: 1m}}\n",
        "pull_policy: never\n",
        "x: |\n  a\n  b\n",
        "# a comment\n",
    )
)
JOB_KEYS = (
    "name",
    *sorted({block.decode().partition(":")[0] for block in BLOCKS} - {"x", "# a comment\n"}),
)
JOB_WORDS = tuple(
    word.encode()
    for word in (
        "&a ", "*a", "<<: *a\n", "!!python/object/apply:os.system [id]", "!!binary ", "! ", "!<x> ",
        "%YAML 1.1\n", "%TAG ! x\n", "---\n", "...\n", "--- ", "? ", ": ", "- ", "-\n", "{", "}",
        "[", "]", ",", "|", ">", "|-\n", ">+2\n", "|9\n", "'", '"', '"\\u202e"', '"\\ud800"',
        '"\\0"', '"\\e[2J"', '"\\N"', '"\\x85"', "#", " #", "@", "`", "\t", "\n", "\n ", "\n  ",
        "? [a, b]\n", "privileged: true\n", "cap_add: [ALL]\n", "devices: [/dev/sda]\n",
        "pid: host\n", "network: host\n", "runtime: nvidia\n", "volumes: [/:/host]\n",
        "volumes: [/var/run/docker.sock:/s]\n", "labels: {dlsched.instance: x}\n",
        "environment: {DLSCHED_JOB: x}\n", "name: ab\n",
        "image: a\n", "image: ''\n", "a: &a [*a, *a]\n", "2001-01-01", "0o7", "~", "=",
    )
)  # fmt: skip
ENV = b"# a comment\nA=b\nC='d e'\nTOKEN=\"hunter2\"\n"
_SECRET = "hunter2"
_BESIDE = b"\x1e"
"""Behind it stands what the env_files hold."""

_ONE_IN_LARGE = 10_000

_ROOT = "/data"
_RULES = Rules(
    images=("dlsched-examples/*",), mounts=(_ROOT,), volumes=("*",), ports=((8000, 9999),)
)
_USER = Owner(1000, 1000, "somebody")


def make_job(rng: Random) -> bytes:
    blocks = [HEAD, *(rng.choice(BLOCKS) for _ in range(rng.choice((0, 1, 1, 1, 2, 3))))]
    kind = rng.random()
    if kind < 1 / _ONE_IN_LARGE:
        return _large_job(rng)
    if kind < 0.02:
        return rng.randbytes(rng.randrange(64))
    if kind < 0.05:
        return b"".join(rng.choice(JOB_WORDS) for _ in range(rng.randrange(1, 12)))
    if kind < 0.15:
        return rng.choice((b"", HEAD, HEAD)) + document(rng, JOB_KEYS)
    if kind < 0.30:
        blocks = [HEAD, *(_hurt(rng, block) for block in blocks[1:])]
        data = b"".join(blocks)
    elif kind < 0.35:
        data = HEAD + rng.choice(BLOCKS)
    else:
        data = mutated(rng, b"".join(blocks), BLOCKS, JOB_WORDS)
    if b"env_file" in data and rng.random() < 0.8:
        data += _BESIDE + mutated(rng, ENV, (ENV,), (b"DLSCHED_JOB=1\n", b"=", b"\n", b"'"))
    return data


def _hurt(rng: Random, block: bytes) -> bytes:
    """A key with a value of another kind."""
    key, colon, value = block.partition(b":")
    odd = rng.choice(ODD)
    match rng.randrange(6):
        case 0:
            value = b" " + odd + b"\n"
        case 1:
            value = b" '" + odd.replace(b"'", b"''") + b"'\n"
        case 2:
            value = b" " + json.dumps(odd.decode()).encode() + b"\n"
        case 3:
            value = b" [" + odd + b", " + value.strip() + b"]\n"
        case 4:
            value = b" {" + odd + b": " + value.strip() + b"}\n"
        case _:
            value = mutated(rng, value, BLOCKS, JOB_WORDS)
    return key + colon + value


def _large_job(rng: Random) -> bytes:
    """Up to a little more than a job file may be."""
    unit = rng.choice(
        (b"[", b"{", b"- ", b"? ", b"a: ", b"[a,", b"{a: ", b'"', b"'", b"|\n ", b"# x\n", b"\n",
         b" ", b"- x\n", b"k%d: v\n", b"a b ", b"\\", b"&a ", b"*a ", b"!a ", b"x", b"x\n",
         b"x\n\n", "\u00e9".encode(), b'"\\u00e9" ', b"- - - ", b"a,", b"[],", b"? a\n: b\n")
    )  # fmt: skip
    size = rng.choice((1_000, 20_000, 80_000, 260_000, 270_000))
    units = size // len(unit)
    body = b"".join(unit.replace(b"%d", b"%d" % n) for n in range(units))
    lead = rng.choice((b"", HEAD, HEAD + b"command: ", HEAD + b"command: [", HEAD + b"labels:\n"))
    return lead + body


def largest_jobs() -> Iterator[bytes]:
    """Enough of the large ones that more of them find all the memory there that they need."""
    return (_large_job(Random(seed)) for seed in range(60))


class JobFile(InFolder):
    """One folder with one job file in it, over and over."""

    def __init__(self) -> None:
        super().__init__()
        self._file = self.folder / "job.yaml"

    def answer(self, data: bytes) -> str:
        content, _, beside = data.partition(_BESIDE)
        self._file.write_bytes(content)
        try:
            answer = self._described(beside)
        except Refused as refused:
            answer = str(refused)
        if _SECRET in answer and _SECRET.encode() not in content:
            raise Broken("what an env_file holds is told")
        return answer

    def _described(self, beside: bytes) -> str:
        stamp = stamp_at(self._file, through_links=False)
        assert stamp is not None

        def read() -> JobSpec:
            text = read_job_file(self.folder, "job.yaml", stamp).text
            return parse_spec(text, "job.yaml", partial(_beside, beside))

        try:
            spec = refusable(read, meant=(SpecError, ValueError))
        except Moved:
            raise Broken("a file that stood still has moved") from None
        return _described(spec) + _of_a_user(spec)


def _beside(content: bytes, name: str) -> str:
    """An env_file: all hold the same, but one that is not there."""
    if name == "b.env":
        raise FileNotFoundError(2, "No such file or directory")
    return content.decode()


def _described(spec: JobSpec) -> str:
    if not re.fullmatch(JOB_NAME, spec.name):
        raise Broken(f"a job is named otherwise than jobs are: {spec.name!a}")
    bounds = spec.bounds
    shares = (bounds.floor_share, bounds.ceiling_share)
    for number in (spec.weight, bounds.floor_cores, *shares, spec.stop.grace_s):
        if not (math.isfinite(number) and number >= 0):
            raise Broken(f"a spec holds the number {number}")
    described = json.dumps(as_json(spec), allow_nan=False)
    environment = dict(spec.container.environment)
    around = Surroundings(environment, labels_of(spec, "fuzz", "job.yaml"), "/fuzz", {}, {})
    body = partial(create_body, spec, Limits(1.0), 1024, around)
    return described + told(lambda: json.dumps(body(), allow_nan=False)[:1])


def _of_a_user(spec: JobSpec) -> str:
    """What a user would be told; raises Broken where one is let do what none may."""
    refused = [f"{place}: {what}" for place, what in refusals(spec, _RULES, _USER)]
    if refused:
        return told_lines(refused)
    for volume in spec.container.volumes:
        source = volume.partition(":")[0]
        place = PurePosixPath(os.path.normpath(source))
        if place.is_absolute() and not place.is_relative_to(_ROOT):
            raise Broken(f"a user may bind what is not theirs: {volume!a}")
    if spec.container.network == "host":
        raise Broken("a user may have the host's network")
    return ""


# ------------------------------------------------------------------ settings and their environment

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
_SETTING_WORDS = (
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


def make_settings(rng: Random) -> bytes:
    lines = rng.sample(_LINES, rng.randrange(4))
    kind = rng.random()
    if kind < 0.02:
        data = rng.randbytes(rng.randrange(64)).replace(_NEXT, b"")
    elif kind < 0.20:
        data = document(rng, tuple(line.decode().partition(":")[0] for line in _LINES))
    elif kind < 0.25:
        data = b"".join(lines)
    else:
        data = mutated(rng, b"".join(lines), _LINES, _SETTING_WORDS)
    for _ in range(rng.choice((0, 0, 1, 2))):
        value = rng.choice((*_VALUES, *ODD))
        if rng.random() < 0.5:
            value = mutated(rng, value, _VALUES, _SETTING_WORDS)
        data += _NEXT + rng.choice(_VARIABLES) + b"=" + value
    return data


class SettingsFile(InFolder):
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


# ------------------------------------------------------------------ presets

_PRESET_WORDS = tuple(
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
        yaml.safe_dump({"a": presets.plain(name)}).encode()  # in order: the same bytes for ever
        for name in sorted(presets.by_name)
    )


def make_presets(rng: Random) -> bytes:
    if rng.random() < 0.1:
        return document(rng, ("vllm", "own", "base", "port", "name", "pattern", "where", "unit"))
    files = _files()
    data = rng.choice(files)
    if rng.random() < 0.2:
        data += rng.choice(files).replace(b"a:\n", b"b:\n", 1)
    words = (*_PRESET_WORDS, *ODD)
    return mutated(rng, data, files, words) if rng.random() < 0.95 else rng.randbytes(64)


def read_presets(data: bytes) -> str:
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


def spec() -> Target:
    reader = JobFile()
    return Target("spec", make_job, reader.answer, 3.0, reader.close, largest_jobs)


def settings() -> Target:
    reader = SettingsFile()
    return Target("settings", make_settings, reader.answer, 3.0, reader.close)


def presets() -> Target:
    return Target("presets", make_presets, read_presets)
