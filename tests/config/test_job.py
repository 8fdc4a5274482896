"""Job files: what is read, every problem at once with its place, and digests."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dlsched.config.fields import PROBLEMS_MAX
from dlsched.config.job import env_file_reader, json_schema, parse_spec
from dlsched.config.job_schema import FLAGS
from dlsched.model.errors import SpecError
from dlsched.model.spec import (
    AccuracyTarget,
    Bounds,
    Checkpoint,
    Healthcheck,
    JobSpec,
    LatencyTarget,
    Logging,
    Restart,
    Stop,
    Ulimit,
)

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "jobs").glob("*.yaml"))
LEAST = "name: face-unlock\nimage: dlsched-examples/inference\n"
DESIGNED = """\
name: face-unlock
image: dlsched-examples/inference
command: [python, serve.py, --model, mobilenet]
environment: {MODEL: mobilenet}
volumes: [models:/models:ro]
restart: on-failure
cpus: {min: 0.1, max: 2}
memory: 1GiB
gpus: 1
weight: 1
target: {latency: 50ms, quantile: p95}
stop: {signal: SIGTERM, grace: 30s}
"""


def parsed(more: str = "") -> JobSpec:
    return parse_spec(LEAST + more, "job.yaml")


def problems(text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        parse_spec(text, "job.yaml")
    return str(caught.value).split("\n")


def only_problem(more: str) -> str:
    (problem,) = problems(LEAST + more)
    return problem


def test_the_designed_file_means_what_it_says() -> None:
    spec = parse_spec(DESIGNED, "job.yaml")
    assert (spec.name, spec.weight) == ("face-unlock", 1.0)
    assert spec.bounds == Bounds(0.1, 2.0)
    assert spec.target == LatencyTarget(0.05, 0.95)
    assert spec.stop == Stop("SIGTERM", 30.0)
    container = spec.container
    assert container.image == "dlsched-examples/inference"
    assert container.command == ("python", "serve.py", "--model", "mobilenet")
    assert container.environment == (("MODEL", "mobilenet"),)
    assert container.volumes == ("models:/models:ro",)
    assert container.restart == Restart("on-failure")
    assert (container.memory_bytes, container.gpus) == (1 << 30, 1)


def test_what_is_left_out_has_the_defaults_of_the_model() -> None:
    spec = parsed()
    assert spec == JobSpec(
        name=spec.name,
        container=replace(JobSpec("x", spec.container).container, image=spec.container.image),
        container_digest=spec.container_digest,
        digest=spec.digest,
    )
    assert spec.container.logging == Logging()
    assert spec.target is None


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_right(example: Path) -> None:
    spec = parse_spec(example.read_text(), example.name, env_file_reader(example.parent))
    assert spec.name == example.stem


def test_the_commented_example_shows_every_key() -> None:
    text = next(path for path in EXAMPLES if path.name == "every-key.yaml").read_text()
    schema = json_schema()
    for key in schema["properties"]:
        assert f"\n{key}:" in text or f"\n# {key}:" in text, key


# -------------------------------------------------------------------------------- every kind


@pytest.mark.parametrize(
    ("more", "target"),
    [
        ("target: {latency: 50ms}", LatencyTarget(0.05)),
        ("target: {latency: 50ms, quantile: mean}", LatencyTarget(0.05)),
        ("target: {latency: 2s, quantile: p99.9}", LatencyTarget(2.0, 0.999)),
        (
            "target: {metric: accuracy, deliver: 0.90, finish: 0.97, deadline: 2h}",
            AccuracyTarget("accuracy", 0.9, 0.97, 7200.0),
        ),
        ("target: {metric: loss, deliver: 2, finish: 1}", AccuracyTarget("loss", 2.0, 1.0)),
    ],
)
def test_targets(more: str, target: object) -> None:
    assert parsed(more).target == target


@pytest.mark.parametrize(
    ("more", "field", "value"),
    [
        ("command: python 'a b' c", "command", ("python", "a b", "c")),
        ("command: [a, 1, 1e-3, 2.50]", "command", ("a", "1", "1e-3", "2.50")),
        ("entrypoint: [tini, --]", "entrypoint", ("tini", "--")),
        ("environment: [B=2, A=x=y, C=]", "environment", (("A", "x=y"), ("B", "2"), ("C", ""))),
        ("environment: {V: 1.10}", "environment", (("V", "1.10"),)),
        ('restart: "no"', "restart", Restart("no")),
        ("restart: no", "restart", Restart("no")),
        ("command: null", "command", None),
        ("command: ~", "command", None),
        ("entrypoint: null", "entrypoint", None),
        ("restart: on-failure:3", "restart", Restart("on-failure", 3)),
        ("restart: unless-stopped", "restart", Restart("unless-stopped")),
        ('ports: ["8080:80", 9000, "127.0.0.1::53/udp"]', "ports",
         ("8080:80", "9000", "127.0.0.1::53/udp")),
        ("network: host", "network", "host"),
        ("user: 1000:1000", "user", "1000:1000"),
        ("user: 1000", "user", "1000"),
        ("working_dir: /app", "working_dir", "/app"),
        ("shm_size: 64M", "shm_size_bytes", 64 << 20),
        ("tmpfs: /tmp:size=64m", "tmpfs", ("/tmp:size=64m",)),
        ("tmpfs: [/tmp, /run]", "tmpfs", ("/tmp", "/run")),
        ("ulimits: {nofile: 1024, core: {soft: 0, hard: -1}}", "ulimits",
         (Ulimit("core", 0, -1), Ulimit("nofile", 1024, 1024))),
        ("extra_hosts: {db: 10.0.0.1}", "extra_hosts", ("db:10.0.0.1",)),
        ('extra_hosts: ["db=10.0.0.1", "h:host-gateway"]', "extra_hosts",
         ("db:10.0.0.1", "h:host-gateway")),
        ("labels: {team: vision}", "labels", (("team", "vision"),)),
        ("read_only: true", "read_only", True),
        ("cap_drop: [NET_RAW, CAP_CHOWN]", "cap_drop", ("CHOWN", "NET_RAW")),
        ("healthcheck: {test: curl x, interval: 5s, retries: 2}", "healthcheck",
         Healthcheck(("CMD-SHELL", "curl x"), 5.0, None, None, 2)),
        ("healthcheck: {test: [CMD, true-ish]}", "healthcheck", Healthcheck(("CMD", "true-ish"))),
        ("healthcheck: {disable: true}", "healthcheck", Healthcheck(("NONE",))),
        ("logging: {driver: local}", "logging", Logging("local", ())),
        ("logging: {options: {max-size: 1m}}", "logging",
         Logging("json-file", (("max-size", "1m"),))),
        ("logging: {driver: json-file}", "logging", Logging()),
        ("pull_policy: never", "pull_policy", "never"),
        ("threads: own", "threads", "own"),
    ],
)  # fmt: skip
def test_container_keys(more: str, field: str, value: object) -> None:
    assert getattr(parsed(more).container, field) == value


@pytest.mark.parametrize(
    ("gpus", "count", "floor", "ceiling", "memory_bytes", "model"),
    [
        ("1", 1, 1.0, 1.0, None, None),
        ("{count: 2}", 2, 1.0, 1.0, None, None),
        ("{count: 1, share: 0.5}", 1, 0.5, 1.0, None, None),
        ("{count: 1, share: 0.05}", 1, 0.05, 1.0, None, None),
        ("{count: 1, share: {min: 0.2, max: 0.8}}", 1, 0.2, 0.8, None, None),
        ("{count: 1, share: {max: 0.8}}", 1, 0.05, 0.8, None, None),
        ("{count: 64, memory: 64MiB}", 64, 1.0, 1.0, 64 << 20, None),
        ("{count: 1, memory: 8GiB, model: A100 80GB}", 1, 1.0, 1.0, 8 << 30, "A100 80GB"),
        ("{count: 1, model: 4090}", 1, 1.0, 1.0, None, "4090"),
    ],
)
def test_gpus(
    gpus: str, count: int, floor: float, ceiling: float, memory_bytes: int | None, model: str | None
) -> None:
    spec = parsed(f"cpus: {{min: 0.5, max: 2}}\ngpus: {gpus}\n")
    assert spec.bounds == Bounds(0.5, 2.0, floor, ceiling)
    container = spec.container
    assert (container.gpus, container.gpu_memory_bytes) == (count, memory_bytes)
    assert container.gpu_model == model


def test_checkpoint_and_stop() -> None:
    spec = parsed("checkpoint: {signal: USR1, path: /ckpt}\nstop: {signal: INT}\n")
    assert spec.checkpoint == Checkpoint("SIGUSR1", 60.0, "/ckpt")
    assert spec.stop == Stop("SIGINT", 10.0)


SHARED = "volumes: [nfs:/c]\ncheckpoint: {signal: USR1, path: /c, shared: true}"


@pytest.mark.parametrize(
    ("more", "field", "value"),
    [
        ("", "failover", "wait"),
        ("nodes: {host: gpu-1, data: x}", "nodes", (("data", "x"), ("host", "gpu-1"))),
        ("nodes: [data=x, host=gpu-1]", "nodes", (("data", "x"), ("host", "gpu-1"))),
        ("background: true", "background", True),
        (
            "volumes: [nfs:/c]\ncheckpoint: {signal: USR1, path: /c/d, shared: true}",
            "checkpoint",
            Checkpoint("SIGUSR1", 60.0, "/c/d", shared=True),
        ),
        (f"{SHARED}\nfailover: restart", "failover", "restart"),
    ],
)
def test_job_keys(more: str, field: str, value: object) -> None:
    assert getattr(parsed(more), field) == value


# ------------------------------------------------------------------------------ what is wrong


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("restart: off", "job.yaml:3:10: restart: 'off' means false to some YAML parsers"),
        ("restart: false", "restart: false is not one of no, always"),
        ("restart: null", "job.yaml:3:10: restart: has no value"),
        ("command:", "job.yaml:3:9: command: has no value"),
        ("healthcheck: {test: null}", "job.yaml:3:21: healthcheck.test: has no value"),
        ("user: no", "job.yaml:3:7: user: 'no' means false to some YAML parsers"),
        ("restart: on-failure:0", "restart: 'on-failure:0' is not one of"),
        ("weight: 1e3", "weight: '1e3' is not a number: some YAML parsers read"),
        ('weight: "3"', "weight: '3' is not a number: in quotes a number is text; leave"),
        ("weight: 0", "weight: 0 is out of bounds: above 0, at most 1000"),
        ("weight: 1001", "weight: 1001 is out of bounds"),
        ("weight: true", "weight: true is not a number"),
        ("cpus: 2", "cpus: 2 is given where a mapping is expected"),
        ("cpus: {min: 0.005}", "cpus.min: 0.005 is out of bounds: 0.01 to 4096"),
        ("cpus: {min: 3, max: 2}", "cpus: min 3 cores is above max 2 cores"),
        ("memory: 1MiB", "memory: '1MiB' is out of bounds: 6 MiB to"),
        ("memory: lots", "memory: 'lots' is not a size"),
        ("memory: {min: 2GiB, max: 1GiB}", "memory: min 2 GiB is above max 1 GiB"),
        ("memory: {max: 1GiB}", "memory: needs min, the limit at the start"),
        ("memory: {min: 1GiB, max: 1MiB}", "memory.max: '1MiB' is out of bounds: 6 MiB to"),
        ("memory: {most: 1GiB}", "memory.most: unknown key"),
        ("memory:", "job.yaml:3:8: memory: has no value"),
        ("gpus: {}", "job.yaml:3:7: gpus.count: is required, but missing"),
        ("gpus: {share: 0.5, model: A100}", "gpus.count: is required, but missing"),
        ("gpus: {count: 0, share: 0.5}", "gpus.count: 0 is out of bounds: 1 to 64"),
        ("gpus: {count: 65}", "job.yaml:3:15: gpus.count: 65 is out of bounds: 1 to 64"),
        ("gpus: {count: 1, share: 0}", "gpus.share: 0 is out of bounds: 0.05 to 1"),
        ("gpus: {count: 1, share: 1.01}", "gpus.share: 1.01 is out of bounds: 0.05 to 1"),
        ("gpus: {count: 1, share: half}", "gpus.share: 'half' is not a number"),
        ("gpus: {count: 1, share: {min: 0.01}}", "gpus.share.min: 0.01 is out of bounds: 0.05"),
        ("gpus: {count: 1, share: {max: 2}}", "gpus.share.max: 2 is out of bounds: 0.05 to 1"),
        ("gpus: {count: 1, share: {min: 0.9, max: 0.8}}", "share: min 0.9 is above max 0.8"),
        ("gpus: {count: 1, share: {mni: 1}}", "gpus.share.mni: unknown key; did you mean min?"),
        ("gpus: {count: 1, memory: 63MiB}", "gpus.memory: '63MiB' is out of bounds: 64 MiB to"),
        ("gpus: {count: 1, memory: 0.5}", "gpus.memory: '0.5' is out of bounds: 64 MiB"),
        ("gpus: {count: 1, model: ''}", (
            "gpus.model: '' is not a GPU's product name: 1 to 64 printable "
            "characters"
        )),
        ("gpus: {count: 1, model: 'A100 '}", (
            "is not a GPU's product name: 1 to 64 printable "
            "characters"
        )),
        (f"gpus: {{count: 1, model: {'x' * 65}}}", (
            "is not a GPU's product name: 1 to 64 printable "
            "characters"
        )),
        ('gpus: {count: 1, model: "A\\e[2J"}', (
            "'A\\x1b[2J' is not a GPU's product name: 1 to 64 "
            "printable"
        )),
        ("gpus: {count: 1, modle: A100}", "gpus.modle: unknown key; did you mean model?"),
        ("gpus: all", "gpus: 'all' is not a whole number"),
        ("gpus: [{count: 1}]", "gpus: a list is not a whole number"),
        ("runtime: nvidia", "runtime: unknown key; write `gpus: 1` for a GPU"),
        ("privileged: true", (
            "privileged: unknown key; no job gets devices; for GPUs write `gpus: "
            "1`"
        )),
        ("container_name: x", "container_name: unknown key; write name"),
        ("devices: [nvidia.com/gpu=all]", "devices: unknown key; write `gpus: 1` for a GPU"),
        ("deploy: {resources: {}}", "deploy: unknown key; write `cpus`, `memory`"),
        ("gpus: 0", "gpus: 0 is out of bounds: 1 to 64"),
        ("gpus: 1.5", "gpus: 1.5 is not a whole number"),
        ("target: {}", "target: needs `latency`, or `metric`, `deliver` and `finish`"),
        ("target: {quantile: p95}", "target: needs `latency`"),
        ("target: {latency: 50}", "target.latency: '50' has no unit: write 50s or 50ms"),
        ("target: {latency: 1us}", "out of bounds: 100 us to 1 h"),
        ("target: {latency: 1s, quantile: p100}", "target.quantile: 'p100' is neither mean nor"),
        ("target: {latency: 1s, quantile: p49}", "a quantile from p50 to p99.9"),
        ("target: {latency: 1s, deliver: 1}", "two kinds of target at once, latency beside"),
        ("target: {metric: x, deliver: 1}", "target: finish missing"),
        ("target: {metric: x, deliver: 1, finish: 1}", "both 1: they must differ"),
        ("target: {metric: accuracy, deliver: 0.9, finish: 0.8}",
         "finish 0.8 must be above deliver 0.9: for accuracy, higher is better"),
        ("target: {metric: loss, deliver: 1, finish: 2}", "must be below deliver 1"),
        ("target: {metric: val_loss, deliver: 1, finish: 2}", "for val_loss, lower is better"),
        ("target: {metric: eval/F1, deliver: 0.9, finish: 0.8}", "for eval/F1, higher is better"),
        ("target: {metric: val_acc, deliver: 0.9, finish: 97}",
         "target: deliver 0.9 is a ratio, finish 97 is in per cent"),
        ("target: {metric: accuracy, deliver: 95, finish: 101}",
         "finish 101: an accuracy is above 0, at most 1 or 100 per cent"),
        ("target: {metric: accuracy, deliver: -0.5, finish: 0.9}", "deliver -0.5: an accuracy"),
        ("target: {metric: accuracy, deliver: 0.9, finish: 0.97, deadline: 0s}",
         "target.deadline: '0s' is out of bounds: 1 s to "),
        ("target: {metric: step, deliver: 1, finish: 2}", "target.metric: 'step' is not a metric"),
        ("stop: {signal: SIGFOO}", "stop.signal: 'SIGFOO' is not a signal"),
        ("stop: {grace: 2h}", "stop.grace: '2h' is out of bounds: 0 s to 1 h"),
        ("checkpoint: {signal: KILL, path: /c}", "checkpoint.signal: a job cannot catch SIGKILL"),
        ("checkpoint: {signal: USR1}", "checkpoint.path: is required, but missing"),
        ("checkpoint: {signal: USR1, path: c}", "'c' is not an absolute path"),
        (
            "checkpoint: {signal: USR1, path: /c, shared: true}",
            "job.yaml:3:46: checkpoint.shared: the path '/c' is in no writable volume",
        ),
        (
            "volumes: [nfs:/c:ro]\ncheckpoint: {signal: USR1, path: /c, shared: true}",
            "job.yaml:4:46: checkpoint.shared: the path '/c' is in no writable volume",
        ),
        (
            "volumes: [nfs:/c]\ntmpfs: /c/t\ncheckpoint: {signal: HUP, path: /c/t, shared: true}",
            "job.yaml:5:47: checkpoint.shared: the path '/c/t' is in no writable volume",
        ),
        ("environment: [A]", "job.yaml:3:15: environment[0]: *** is not KEY=VALUE"),
        ("environment: {A: true}", "environment.A: true is a boolean here: put the text in quotes"),
        ("environment: {A: [1]}", "environment.A: a list is given where text is expected"),
        ("environment: {DLSCHED_JOB: x}", "environment.DLSCHED_JOB: *** is reserved for dlsched"),
        ("environment: [A=1, B=2, A=3]", "environment[2]: 'A' is given twice"),
        ("labels: {dlsched.instance: x}", "'dlsched.instance' is reserved for dlsched"),
        ("volumes: [/a]", "volumes[0]: '/a' is not source:target"),
        ("volumes: [./a:/b]", "'./a' is neither an absolute path nor a name"),
        ("volumes: [/a:b]", "the target 'b' is not an absolute path"),
        ("volumes: [/a:/b:rx]", "the mode 'rx' is not one of"),
        ("volumes: [/a:/run/dlsched/in]", "the target '/run/dlsched/in' is in dlsched's own"),
        ("volumes: [/a:/x, /b:/x/]", "volumes[1]: the target path '/x' is already used"),
        ("volumes: /a:/b", "volumes: '/a:/b' is given where a list is expected"),
        ("tmpfs: /run/dlsched", "tmpfs: the target '/run/dlsched' is in dlsched's own"),
        ("tmpfs: /run//dlsched/out", "the target '/run//dlsched/out' is in dlsched's own"),
        ("volumes: [/a:/run/./dlsched]", "the target '/run/./dlsched' is in dlsched's own"),
        (f"volumes: [{'v' * 256}:/a]", "is neither an absolute path nor a name"),
        (f"labels: [{'k' * 256}=v]", "is not KEY=VALUE"),
        ("ports: [22:22]", "ports[0]: '22:22' is a base-60 number in YAML"),
        ('ports: ["1-3:1-3"]', "one port an entry, no ranges"),
        ('ports: ["70000:1"]', "the port 70000 is out of bounds: 1 to 65535"),
        ("wire: []", "wire: 0 ports whose response times are measured: must be 1 to 16, or `true`"),
        ("ulimits: {files: 1}", "ulimits.files: 'files' is not one of core, cpu"),
        ("ulimits: {nofile: {soft: 9, hard: 5}}", "ulimits.nofile: soft 9 is above hard 5"),
        ("healthcheck: {test: [curl]}", "test begins with 'curl', must begin with CMD"),
        ("healthcheck: {disable: true, retries: 1}", "retries has no effect"),
        ("command: \"a 'b\"", "cannot be split as a shell would"),
        (f"command: {'a ' * 10_000}", "has 19999 characters, at most 16384"),
        ("command: []", "command: is empty"),
        ("image: x", "image: the key was already given in line 2"),
        ("pull_policy: sometimes", "'sometimes' is not one of missing, always, never"),
        ("cmd: x", "job.yaml:3:1: cmd: unknown key; did you mean command?"),
        (f"{SHARED}\nfailover: restart\nrestart: always", "failover: restart on another node"),
        ("nodes: gpu-1", "nodes: "),
        (f"{SHARED}\nfailover: never", "failover: 'never' is not one of wait, restart"),
        (
            f"{SHARED.replace(', shared: true', '')}\nfailover: restart",
            "job.yaml:5:11: failover: restart on another node needs `checkpoint.shared: true`",
        ),
        ("threads: 4", "threads: 4 is not one of fit, own"),
        (
            "background: true\ntarget: {latency: 50ms}",
            "background: a background job cannot have a target: leave out either `background` or",
        ),
        (
            "background: true\ngpus: {count: 1, share: 0.5}",
            "background: a background job cannot have a share of a GPU's time",
        ),
        ("zzz: x", "zzz: unknown key; known here: background, cap_drop, checkpoint"),
        ("cpus: {floor: 1}", "cpus.floor: unknown key; known here: max, min"),
        ("env_file: x.env", "env_file: 'x.env' cannot be found"),
    ],
)  # fmt: skip
def test_one_problem_one_line(more: str, problem: str) -> None:
    assert problem in only_problem(more + "\n").replace("env_file[0]", "env_file")


def test_all_keys_are_listed_once_in_a_file() -> None:
    text = "name: job\nimage: x\nzzz: 1\nyyy: 1\nimgae: x\nzz: 1\ncpus: {xx: 1}\n"
    with pytest.raises(SpecError) as caught:
        parse_spec(text, "job.yaml")
    said = [problem.what for problem in caught.value.problems]
    assert said[0].startswith("unknown key; known here: background, cap_drop, ")
    assert said[1:] == [
        "unknown key", "unknown key; did you mean image?", "unknown key",
        "unknown key; known here: max, min",
    ]  # fmt: skip


def test_advice_on_a_word_fits_what_is_meant_there() -> None:
    text = "name: job\nimage: x\nenvironment: {A: yes}\nread_only: yes\n"
    with pytest.raises(SpecError) as caught:
        parse_spec(text, "job.yaml")
    assert [problem.what.rpartition(": ")[2] for problem in caught.value.problems] == [
        "write *** in quotes for the word", "write true"
    ]  # fmt: skip


def test_every_boolean_of_a_job_file_is_known_as_one() -> None:
    schema = json_schema()

    def flags(inner: Any, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        if isinstance(inner, dict):
            if "$ref" in inner:
                yield from flags(schema["$defs"][inner["$ref"].rpartition("/")[2]], above)
            if inner.get("type") == "boolean":
                yield above
            for key, value in inner.get("properties", {}).items():
                yield from flags(value, (*above, key))
            for key in ("anyOf", "allOf", "oneOf"):
                for one in inner.get(key, ()):
                    yield from flags(one, above)

    assert set(flags(schema, ())) == FLAGS


@pytest.mark.parametrize(
    "image", ["", "a/UPPER", "a b", "-x", "a:", "a@sha256:xyz", "a//b", "a" * 600]
)
def test_what_is_no_image_is_refused(image: str) -> None:
    (problem,) = problems(f"name: ab\nimage: {json.dumps(image)}\n")
    assert "is not an image such as" in problem


@pytest.mark.parametrize("image", [
    "a", "python:3.11-slim", "localhost:5000/a/b:Tag_1", "r.io/x__y@sha256:" + "0" * 64,
])  # fmt: skip
def test_images(image: str) -> None:
    assert parse_spec(f"name: ab\nimage: {image}\n", "f").container.image == image


@pytest.mark.parametrize("name", ["a", "A1", "-ab", "a" * 64, "a/b", "ä1"])
def test_names_are_bounded(name: str) -> None:
    (problem,) = problems(f"name: {name}\nimage: a\n")
    assert problem.startswith("job.yaml:1:7: name: ")
    assert "[a-z0-9][a-z0-9_.-]{1,62}" in problem


def test_all_problems_at_once_in_the_order_of_the_file() -> None:
    text = (
        "name: X\nimag: a\ncpus:\n  min: 3\n  max: 2\nmemory: 1\n"
        "ports:\n  - 22:22\n  - '0'\nrestart: off\nlabels: {dlsched.a: b}\n"
    )
    said = problems(text)
    assert [line.split(": ")[0] for line in said] == [
        f"job.yaml:{place}"
        for place in ("1:1", "1:7", "2:1", "4:3", "6:9", "8:5", "9:5", "10:10", "11:10")
    ]


def test_a_file_of_another_kind_does_not_flood() -> None:
    said = problems(LEAST + "".join(f"key-{number}: 1\n" for number in range(2000)))
    assert len(said) == 51
    assert said[-1] == "job.yaml:1:1: there are more problems than are listed"


def test_what_is_no_mapping_is_said_once() -> None:
    assert problems("- a\n") == ["job.yaml:1:1: a list is given where a mapping is expected"]
    assert problems("null\n") == ["job.yaml:1:1: has no value: give one, or leave the key out"]
    assert len(problems("a: [\n")) == 1


# ---------------------------------------------------------------------------------- env files


def test_env_files_are_read_and_environment_wins(tmp_path: Path) -> None:
    (tmp_path / "a.env").write_text("# note\n\nA=1\nB = 'two words'\n".replace(" = ", "="))
    (tmp_path / "b.env").write_text("A=2\nC=3=4\n")
    text = LEAST + "env_file: [a.env, b.env]\nenvironment: {C: last}\n"
    spec = parse_spec(text, "f", env_file_reader(tmp_path))
    assert spec.container.environment == (("A", "2"), ("B", "two words"), ("C", "last"))


def test_what_is_wrong_with_an_env_file_is_said_at_its_name(tmp_path: Path) -> None:
    (tmp_path / "bad.env").write_text("A\nDLSCHED_JOB=x\n")
    (tmp_path / "big.env").write_bytes(b"x" * 70_000)
    (tmp_path / "binary.env").write_bytes(b"\xff")
    os.mkfifo(tmp_path / "fifo.env")
    text = LEAST + "env_file: [bad.env, none.env, big.env, fifo.env, binary.env]\n"
    with pytest.raises(SpecError) as caught:
        parse_spec(text, "f", env_file_reader(tmp_path))
    said = str(caught.value).split("\n")
    assert len(said) == 6
    for line, what in zip(
        said,
        ["line 1 is not KEY=VALUE", "line 2: DLSCHED_JOB is set by dlsched",
         "No such file", "more than 64 KiB", "not a regular file", "codec can't decode"],
        strict=True,
    ):  # fmt: skip
        assert what in line


# ------------------------------------------------------------------------------------ digests


@pytest.mark.parametrize(
    ("before", "after", "new_job", "new_container"),
    [
        ("target: {latency: 50ms}", "target: {latency: 60ms}", True, False),
        ("cpus: {max: 2}", "cpus: {max: 1}", True, False),
        ("stop: {grace: 30s}", "stop: {grace: 31s}", True, False),
        ("", "background: true", True, False),
        (SHARED, f"{SHARED}\nfailover: restart", True, False),
        (SHARED.replace(", shared: true", ""), SHARED, True, False),
        ("gpus: {count: 1, share: 0.5}", "gpus: {count: 1, share: {max: 0.9}}", True, False),
        ("command: a", "command: b", True, True),
        ("", "threads: own", True, True),
        ("gpus: 1", "gpus: 2", True, True),
        ("gpus: 1", "gpus: {count: 1, memory: 8GiB}", True, True),
        ("gpus: 1", "gpus: {count: 1, model: A100}", True, True),
        ("", "nodes: {host: gpu-1}", False, False),
        ("", "background: false", False, False),
        ("", "failover: wait", False, False),
        ("", "threads: fit", False, False),
        ("gpus: 1", "gpus: {count: 1, share: 1}", False, False),
        ("memory: 1GiB", "# a note\nmemory: 1024MiB", False, False),
        ("memory: 1GiB", "memory: {min: 1GiB}", False, False),
        ("memory: 1GiB", "memory: {min: 1GiB, max: 2GiB}", True, False),
        ("memory: {min: 1GiB, max: 3GiB}", "memory: {min: 1GiB, max: 2GiB}", True, False),
        ("memory: {min: 1GiB, max: 3GiB}", "memory: {min: 2GiB, max: 3GiB}", True, True),
        ("environment: {A: b}", "environment: [A=b]", False, False),
    ],
)
def test_a_digest_changes_with_what_makes_another_job_or_container(
    before: str, after: str, new_job: bool, new_container: bool
) -> None:
    one, other = parsed(before), parsed(after)
    assert (one.digest != other.digest) is new_job
    assert (one.container_digest != other.container_digest) is new_container


def test_memory_is_a_limit_that_stays_or_one_that_may_be_raised() -> None:
    one, other = parsed("memory: 1GiB"), parsed("memory: {min: 1GiB, max: 4GiB}")
    assert (one.container.memory_bytes, one.memory_max_bytes) == (1 << 30, None)
    assert (other.container.memory_bytes, other.memory_max_bytes) == (1 << 30, 4 << 30)


def test_a_floor_that_is_asked_for_is_a_promise_however_small() -> None:
    none, most, least, more = (
        parsed(cpus) for cpus in ("", "cpus: {max: 2}", "cpus: {min: 0.01}", "cpus: {min: 0.5}")
    )
    assert [one.bounds.promised for one in (none, most, least, more)] == [False, False, True, True]
    assert none.digest == least.digest  # digests of version 1 stay: a job that ended stays ended


def test_digests_stay_the_same_over_releases() -> None:
    """A changed digest recreates every running container at an upgrade."""
    spec = parse_spec(LEAST, "f")
    assert spec.container_digest == (
        "49f846842cdc430cbd3bfcea523ed9fd9884820469563ea15b6afa1a90e80163"
    )
    spec = parse_spec(DESIGNED, "f")
    assert (spec.container_digest, spec.digest) == (
        "7729443e5bf3c8e41157d7b71d90019645f2dd386129ec3263eaa965332a1a5a",
        "8032bed1c111b5482e3b312cd703dd9a5d262b590dcc474f6421681250ce6347",
    )


# ------------------------------------------------------------------------------------- schema


def test_the_schema_describes_every_key_to_editors() -> None:
    schema = json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["name", "image"]
    for key, what in schema["properties"].items():
        assert what.get("description"), key
    text = json.dumps(schema)
    nullable = [key for key, one in schema["properties"].items() if '"null"' in json.dumps(one)]
    assert nullable == ["command", "entrypoint"]
    assert '"null"' not in json.dumps(schema["$defs"])
    assert all(f"#/$defs/{name}" in text for name in schema["$defs"])


def test_the_schema_allows_both_forms_where_the_checks_do() -> None:
    schema = json_schema()
    inner = {**schema["properties"], "share": schema["$defs"]["GpusKeys"]["properties"]["share"]}
    inner["ulimits"] = inner["ulimits"]["additionalProperties"]
    for key, one in (("ulimits", "integer"), ("gpus", "integer"), ("share", "number")):
        short, full = inner[key]["anyOf"]
        assert short["type"] == one
        assert schema["$defs"][full["$ref"].rpartition("/")[2]]["type"] == "object"
    command = schema["properties"]["command"]["anyOf"]
    assert [form["type"] for form in command] == ["string", "array", "null"]
    pairs = schema["properties"]["environment"]
    assert {form["type"] for form in pairs.get("oneOf", pairs.get("anyOf"))} == {"object", "array"}


# --------------------------------------------------------------------------------------- fuzz

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
    | st.sampled_from(["no", "1e3", "50ms", "p95", "a:/b", "/x", "KEY=1", "SIGTERM", "1GiB"])
)  # fmt: skip
KEYS = st.sampled_from(
    [*json_schema()["properties"], "latency", "quantile", "metric", "deliver", "finish", "min",
     "max", "signal", "grace", "path", "test", "soft", "hard", "nofile", "driver", "options",
     "count", "share", "model"]
) | st.text(max_size=6)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)


def parse_or_refuse(text: str) -> None:
    try:
        spec = parse_spec(text, "f")
    except SpecError as error:
        assert error.problems
        assert all("\n" not in str(problem) for problem in error.problems)
    else:
        assert spec.digest


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    parse_or_refuse(text)
    parse_or_refuse(LEAST + text)


def test_a_reader_that_fails_is_a_problem_of_its_file() -> None:
    def reader(_: str) -> str:
        raise RuntimeError("a fault\nof ours")

    with pytest.raises(SpecError) as wrong:
        parse_spec(LEAST + "env_file: a.env\n", "f", reader)
    (problem,) = wrong.value.problems
    assert (
        str(problem)
        == "f: cannot be read, by a fault of dlsched (RuntimeError: a fault): please report this"
    )


@given(st.dictionaries(KEYS, VALUES, max_size=6))
def test_any_mapping_is_parsed_or_refused(tree: dict[str, Any]) -> None:
    parse_or_refuse(yaml.safe_dump({"name": "ab", "image": "a", **tree}, allow_unicode=True))


def test_of_thousands_of_wrong_lines_only_so_many_are_told(tmp_path: Path) -> None:
    (tmp_path / "bad.env").write_text("x\n" * 30_000)
    with pytest.raises(SpecError) as wrong:
        parse_spec(LEAST + "env_file: bad.env\n", "f", env_file_reader(tmp_path))
    assert len(wrong.value.problems) == PROBLEMS_MAX + 1


def test_an_env_file_that_one_would_wait_for_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    os.mkfifo(tmp_path / "like-proc-kmsg")  # which says that it is a regular file
    monkeypatch.setattr("dlsched.config.text.stat.S_ISREG", lambda mode: True)
    writer = os.open(tmp_path / "like-proc-kmsg", os.O_RDWR)
    try:
        assert env_file_reader(tmp_path)("like-proc-kmsg") == ""
    finally:
        os.close(writer)
