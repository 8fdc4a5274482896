"""What users' job files may ask for: each rule broken once, with place, value and bound."""

from __future__ import annotations

import os
import pwd
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.config.job import parse_spec
from dlsched.config.users import NO_TENANTS, Owner, Rules, Tenants, owner_of, refusals, resolve
from dlsched.model.errors import SpecError
from dlsched.model.spec import ContainerSpec, JobSpec, OwnerCeilings

ALICE = Owner(1001, 1002, "alice")
RULES = Rules(
    images=("lab/*", "team-{user}/**", "python:3.11"),
    mounts=("/srv/data", "/home/{user}", "/scratch/{uid}"),
    volumes=("{user}-*",),
    networks=("bridge", "none", "net-{user}"),
    ports=((8000, 8999), (80, 80)),
    labels=("team.*",),
    cpu_cores=4.0,
    memory_bytes=8 << 30,
    gpus=1,
)
OWN = 'user: "1001:1002"\nmemory: 1GiB\n'

BEYOND = "for one job is more than uid 1001 may have for all jobs together:"


def problems(more: str, rules: Rules = RULES, owner: Owner = ALICE, own: str = OWN) -> list[str]:
    image = "" if "image:" in more else "image: lab/infer:1\n"
    try:
        parse_spec(
            f"name: job\n{image}{own}{more}",
            "a.yaml",
            None,
            lambda spec: refusals(spec, rules, owner),
        )
    except SpecError as error:
        return [str(problem) for problem in error.problems]
    return []


@pytest.mark.parametrize("more", [
    "", "image: team-alice/deep/er:2", "image: python:3.11", "image: lab/x@sha256:" + "a" * 64,
    "volumes: [/srv/data:/d:ro]", "volumes: [/srv/data/sets/a:/d]", "volumes: [/home/alice:/h:rw]",
    "volumes: [/scratch/1001/x:/s]", "volumes: [alice-models:/m]", "network: net-alice",
    "network: none", 'ports: ["8000:80", "127.0.0.1:8999:80/udp", "80:80", "[::1]:8080:80"]',
    "labels: {team.name: vision}", "ulimits: {nofile: 1024, nproc: 64}", "logging: {driver: none}",
    "logging: {driver: json-file}", "weight: 1", "gpus: 1", "gpus: {count: 1, share: 0.5}",
    "cpus: {min: 4, max: 64}", "environment: {NVIDIA_TF32_OVERRIDE: 0, CUDA_VISIBLE_DEVICES: 0}",
    "healthcheck: {test: [CMD, a], interval: 5s}", "cap_drop: [ALL]", "read_only: true",
])  # fmt: skip
def test_what_is_allowed_passes(more: str) -> None:
    assert problems(more) == []


@pytest.mark.parametrize(("more", "problem"), [
    ("image: evil/x", "a.yaml:4:8: image: uid 1001 may not use 'evil/x': allowed is lab/*, team-{"),
    ("image: lab/deep/er", "image: uid 1001 may not use 'lab/deep/er'"),
    ("image: evil/lab/x", "image: uid 1001 may not use 'evil/lab/x'"),
    ("image: lab.example/x", "image: uid 1001 may not use 'lab.example/x'"),
    ("image: team-bob/x", "image: uid 1001 may not use 'team-bob/x'"),
    ("image: python:3.110", "image: uid 1001 may not use 'python:3.110'"),
    ("volumes: [/etc:/e:ro]", ": allowed is /srv/data, /home/alice, /scratch/1001"),
    ("volumes: [/srv/database:/d:ro]", "volumes[0]: uid 1001 may not bind '/srv/database'"),
    ("volumes: [/srv/data/./x:/d:ro]", "volumes[0]: uid 1001 may not bind '/srv/data/./x'"),
    ("volumes: [/srv//data:/d:ro]", "volumes[0]: uid 1001 may not bind '/srv//data'"),
    ("volumes: [/home/bob:/h:ro]", "volumes[0]: uid 1001 may not bind '/home/bob'"),
    ("volumes: [/var/run/docker.sock:/s]", (
        "volumes[0]: uid 1001 may not bind "
        "'/var/run/docker.sock'"
    )),
    ("volumes: [bobs:/m]", "volumes[0]: uid 1001 may not use the volume 'bobs': allowed"),
    ("volumes: [/srv/data:/d:rshared]", "volumes[0]: uid 1001 may not use the mode 'rshared'"),
    ("volumes: [\"/srv/data:/d:ro,z\"]", "volumes[0]: uid 1001 may not use the mode 'ro,z'"),
    ("network: host", "network: uid 1001 may not use 'host', the host's own network"),
    ("network: net-bob", "network: uid 1001 may not use 'net-bob': allowed is bridge, none, net-"),
    ('ports: ["7999:80"]', "ports[0]: uid 1001 may not publish the host port 7999: allowed"),
    ('ports: ["0.0.0.0:22:80"]', "ports[0]: uid 1001 may not publish the host port 22"),
    ('ports: ["80"]', "ports[0]: uid 1001 may not publish a host port of the engine's choice"),
    ('ports: ["127.0.0.1::80"]', (
        "ports[0]: uid 1001 may not publish a host port of the engine's "
        "choice"
    )),
    ("labels: {com.docker.compose.project: x}", "a label of Docker's tools"),
    ("labels: {traefik.enable: x}", "uid 1001 may not set 'traefik.enable': allowed is team.*"),
    ("ulimits: {rtprio: 99}", "ulimits.rtprio: uid 1001 may not set rtprio, only core, cpu, data"),
    ("ulimits: {memlock: -1}", "ulimits.memlock: uid 1001 may not set memlock"),
    ("environment: {NVIDIA_VISIBLE_DEVICES: all}", "uid 1001 may not set NVIDIA_VISIBLE_DEVICES"),
    ("environment: {NVIDIA_MOFED: enabled}", (
        "NVIDIA_MOFED: uid 1001 may not set NVIDIA_MOFED, "
        "which"
    )),
    ("logging: {driver: syslog}", "logging: uid 1001 may not choose a log driver: leave `logging`"),
    ("logging: {driver: json-file, options: {}}", "logging: uid 1001 may not choose a log driver"),
    ("weight: 2", "weight: uid 1001 may not set weight 2: at most 1"),
    ("gpus: 2", f"a.yaml:5:7: gpus.count: 2 GPUs {BEYOND} 1"),
    ("gpus: {share: 0.1, count: 2}", f"a.yaml:5:27: gpus.count: 2 GPUs {BEYOND} 1"),
    ("cpus: {min: 5, max: 9}", f"cpus.min: 5 cores {BEYOND} 4 cores"),
    ("healthcheck: {test: [CMD, a], interval: 1s}", (
        "healthcheck.interval: uid 1001 must set at least 5 s, "
        "not 1 s"
    )),
])  # fmt: skip
def test_what_is_not_is_one_line_with_place_value_and_bound(more: str, problem: str) -> None:
    (said,) = problems(more)
    assert problem in said
    assert said.startswith("a.yaml:")


@pytest.mark.parametrize("key", [
    "privileged: true", "cap_add: [SYS_ADMIN]", "devices: [/dev/sda]", "pid: host", "ipc: host",
    "security_opt: [seccomp=unconfined]", "userns_mode: host", "uts: host", "cgroup: host",
    "cgroup_parent: /x", "volumes_from: [x]", "network_mode: host", "device_cgroup_rules: [a]",
    "sysctls: {a: 1}", "runtime: runc", "pids_limit: 5", "group_add: [docker]", "init: true",
    "oom_score_adj: -1000", "cpu_rt_runtime: 1", "links: [x]", "external_links: [x]",
    "isolation: x", "storage_opt: {}", "blkio_config: {}", "secrets: [x]", "extends: x",
])  # fmt: skip
def test_what_would_leave_the_container_is_no_key_for_anybody(key: str) -> None:
    with pytest.raises(SpecError) as refused:
        parse_spec(f"name: job\nimage: a\n{key}\n", "a.yaml")
    (problem,) = refused.value.problems
    name = key.partition(":")[0]
    assert str(problem).startswith(f"a.yaml:3:1: {name}: unknown key; ")


def test_anothers_page_is_not_read_for_a_user() -> None:
    assert problems("metrics: {port: 8000, name: m}", RULES) == []
    (problem,) = problems("metrics: {port: 8000, name: m, via: edge}", RULES)
    assert "metrics.via: uid 1001 may not have another container's page" in problem


def test_a_network_that_is_left_out_is_the_engines_own_bridge() -> None:
    rules = replace(RULES, networks=("none",))
    (problem,) = problems("", rules)
    assert problem.endswith("network: uid 1001 may not use 'bridge': allowed is none")
    assert problems("network: none", rules) == []


@pytest.mark.parametrize("network", ["container:abc", "ns:/proc/1/ns/net", "service:x"])
def test_anothers_network_is_no_name(network: str) -> None:
    with pytest.raises(SpecError, match="is not a network's name"):
        parse_spec(f"name: job\nimage: a\nnetwork: '{network}'\n", "a.yaml")


@pytest.mark.parametrize(("user", "said"), [
    ("", "user: uid 1001 may not run as the image's own user: write user: \"1001:1002\""),
    ("user: root\n", "user: uid 1001 may not run as 'root'"),
    ('user: "0"\n', "user: uid 1001 may not run as '0'"),
    ('user: "1001"\n', "user: uid 1001 may not run as '1001'"),
    ('user: "1001:0"\n', "user: uid 1001 may not run as '1001:0'"),
    ("user: alice\n", "user: uid 1001 may not run as 'alice'"),
])  # fmt: skip
def test_a_container_runs_as_its_owner(user: str, said: str) -> None:
    own = f"{user}memory: 1GiB\n"
    (told,) = problems("", own=own)
    assert said in told
    anybody = Rules(images=("lab/*",), mounts=("/srv/data",), run_as="anybody")
    assert problems("", anybody, own=own) == []
    (told,) = problems("volumes: [/srv/data:/d]", anybody, own=own)
    assert "volumes[0]: only its owner may write to the source '/srv/data': add :ro" in told
    assert problems("volumes: [/srv/data:/d:ro]", anybody, own=own) == []


def test_memory_must_be_told_where_it_is_bounded() -> None:
    own = 'user: "1001:1002"\n'
    assert (
        "memory: uid 1001 must set a memory limit: its jobs may have 8 GiB in all"
        in problems("", own=own)[0]
    )
    assert f"memory: 9 GiB {BEYOND} 8 GiB" in problems("memory: 9GiB", own=own)[0]
    raised = problems("memory: {min: 2GiB, max: 9GiB}", own=own)[0]
    assert f"memory.max: 9 GiB {BEYOND} 8 GiB" in raised


def test_by_default_nothing_is_allowed() -> None:
    said = problems("volumes: [/a:/a]\nports: ['80:80']\ngpus: 1\n", Rules(), own="")
    assert len(said) == 5
    assert all(
        "none is allowed" in line for line in said if "gpus" not in line and "user" not in line
    )
    assert NO_TENANTS.rules_of(1001) is None
    assert not NO_TENANTS.any


def test_a_user_unknown_to_the_host_has_no_name_to_put_in_a_pattern() -> None:
    stranger = Owner(7, None, None)
    (said, *_) = problems("image: team-/x", RULES, stranger)
    assert "'team-/x'" in said or "is not an image" in said
    assert any("user" in line for line in problems("", RULES, stranger))


@settings(deadline=None)
@given(st.text(alphabet="*{user}./-a", max_size=12), st.text(alphabet="a/.-:", max_size=12))
def test_no_pattern_is_read_as_more_than_it_says(pattern: str, image: str) -> None:
    spec = JobSpec("job", ContainerSpec(image, user="1001:1002"))
    matched = not list(refusals(spec, Rules(images=(pattern,)), ALICE))
    if "*" not in pattern:
        assert matched == (image == pattern.replace("{user}", "alice"))
    if matched and "**" not in pattern:
        assert image.count("/") == pattern.count("/")


def test_a_name_goes_before_everyone_and_root_is_bound_by_nothing() -> None:
    me = pwd.getpwuid(65534)
    tenants = resolve({"everyone": Rules(jobs=1), me.pw_name: Rules(jobs=2), "1001": Rules(jobs=3),
                       "no-such-user-here": Rules(jobs=4)})  # fmt: skip
    assert [tenants.ceilings_of(uid) for uid in (5, 65534, 1001)] == [
        OwnerCeilings(1), OwnerCeilings(2), OwnerCeilings(3),
    ]  # fmt: skip
    assert [tenants.ceilings_of(uid) for uid in (0, os.geteuid(), None)] == [None] * 3
    assert Tenants(by_uid={5: Rules()}).rules_of(6) is None
    assert owner_of(0) == Owner(0, 0, "root")
    assert owner_of(4_000_000_000) == Owner(4_000_000_000, None, None)
