"""Job files, which users write, as YAML.

Promised: a `JobSpec` that the engine's adapter can tell, or lines that say what is wrong.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import PurePosixPath
from random import Random

from benchmarks.robustness.fuzzing.trial import (
    InFolder,
    Refused,
    Target,
    refusable,
    told,
    told_lines,
)
from dlsched.api.codec import as_json
from dlsched.config.inbox.files import Moved, read_job_file, stamp_at
from dlsched.config.job import parse_spec
from dlsched.config.users import Owner, Rules, refusals
from dlsched.model.errors import SpecError
from dlsched.model.spec import NAME as JOB_NAME
from dlsched.model.spec import JobSpec, Limits
from dlsched.runtime.docker.create.containers import Surroundings, create_body
from dlsched.runtime.docker.identity.labels import labels_of
from tests.config.yaml_grammar import document
from tests.mutation import ODD, Broken, mutated

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


def spec() -> Target:
    reader = JobFile()
    return Target("spec", make_job, reader.answer, 3.0, reader.close, largest_jobs)
