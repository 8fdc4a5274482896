"""Putting a job file in: whole or not at all, under a name that is nobody else's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dlsched.config.inbox import submit as submitting
from dlsched.config.inbox.submit import doubts, lacks, own_folder, submit
from dlsched.config.job import parse_spec
from dlsched.config.users import Owner
from dlsched.model.errors import SpecError
from tests.config.inbox.test_scan import Desk, desk, names

__all__ = ["desk"]


def test_submit_puts_the_file_in_whole(desk: Desk) -> None:
    spec = submit("name: job-a\nimage: a\n", "a.yaml", desk.folder)
    assert spec.name == "job-a"
    assert [path.name for path in desk.folder.iterdir()] == ["a.yaml"]
    assert names(desk.settle()) == {"job-a": "a.yaml"}
    submit("name: job-a\nimage: b\n", "a.yaml", desk.folder)
    assert desk.settle().specs[0].container.image == "b"


@pytest.mark.parametrize(
    ("text", "name", "problem"),
    [
        ("name: X\nimage: a\n", "a.yaml", "a.yaml:1:7: name: 'X' is not a name"),
        ("name: job-a\nimage: a\n", "a.txt", "a.txt: is not the name of a job file"),
        ("name: job-a\nimage: a\n", "../a.yaml", "is not the name of a job file"),
        ("name: job-a\nimage: a\n", ".a.yaml", "is not the name of a job file"),
        ("name: job-a\nimage: a\n", "b.yaml", "b.yaml: is the file of the job job-b: submit job-a"),
    ],
)
def test_submit_refuses_and_leaves_the_folder_as_it_was(
    desk: Desk, text: str, name: str, problem: str
) -> None:
    desk.write("b.yaml", "job-b")
    with pytest.raises(SpecError) as caught:
        submit(text, name, desk.folder)
    assert problem in str(caught.value)
    assert [path.name for path in desk.folder.iterdir()] == ["b.yaml"]


HOST = {"capacity_cores": 4.0, "memory_bytes": 8 << 30, "gpus": [], "gpu_trouble": None}
A100 = {"model": "NVIDIA A100-SXM4-80GB", "memory_bytes": 80 << 30, "reserved": False}
T4 = {"model": "Tesla T4", "memory_bytes": 15 << 30, "reserved": False}
THERE = "1 NVIDIA A100-SXM4-80GB 80 GiB, 2 Tesla T4 15 GiB"


@pytest.mark.parametrize(
    ("gpus", "problem"),
    [
        ("4", f"3:7: gpus.count: 4, the node has 3: {THERE}"),
        ("{count: 5}", f"3:15: gpus.count: 5, the node has 3: {THERE}"),
        ("{count: 1, model: H100}", f"3:25: gpus.model: 'H100', the node has none: {THERE}"),
        (
            "{count: 1, memory: 96GiB}",
            f"3:26: gpus.memory: 96 GiB, the node's largest has 80 GiB: {THERE}",
        ),
        (
            "{count: 1, model: t4, memory: 16GiB}",
            f"3:37: gpus.memory: 16 GiB, the node's largest such has 15 GiB: {THERE}",
        ),
        ("{count: 2, memory: 16GiB}", f"3:15: gpus.count: 2 such, the node has 1: {THERE}"),
        ("{count: 3, model: T4}", f"3:15: gpus.count: 3 such, the node has 2: {THERE}"),
    ],
)
def test_more_gpus_than_there_are_are_refused_with_what_there_is(
    desk: Desk, gpus: str, problem: str
) -> None:
    node = {**HOST, "gpus": [A100, T4, T4, {**A100, "reserved": True}]}
    text = f"name: job-a\nimage: a\ngpus: {gpus}\n"
    with pytest.raises(SpecError) as caught:
        submit(text, "a.yaml", desk.folder, lambda spec: lacks(spec, node))
    assert str(caught.value) == f"a.yaml:{problem}"
    assert list(desk.folder.iterdir()) == []


@pytest.mark.parametrize("gpus", ["1", "3", "{count: 2, model: T4, memory: 15GiB}"])
def test_what_the_node_has_is_not_refused(desk: Desk, gpus: str) -> None:
    node = {**HOST, "gpus": [A100, T4, T4]}
    text = f"name: job-a\nimage: a\ngpus: {gpus}\n"
    assert submit(text, "a.yaml", desk.folder, lambda spec: lacks(spec, node)).container.gpus


def test_a_node_without_gpus_refuses_and_one_that_cannot_see_them_does_not(desk: Desk) -> None:
    text = "name: job-a\nimage: a\ngpus: 1\n"
    spec = parse_spec(text, "a.yaml")
    (said,) = lacks(spec, HOST)
    assert said == (("gpus", "count"), "1, the node has none")
    assert not [*lacks(spec, {**HOST, "gpu_trouble": "the driver does not answer"})]
    assert not [*lacks(spec, {})]
    assert not [*lacks(parse_spec("name: job-a\nimage: a\n", "a.yaml"), HOST)]


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ("cpus: {min: 4.5}", "3:13: cpus.min: 4.5 cores, the node has 4 cores to give"),
        ("memory: 9GiB", "3:9: memory: 9 GiB, the node has 8 GiB to give"),
        ("cpus: {min: 4, max: 64}\nmemory: 8GiB", None),
    ],
)
def test_a_floor_above_what_the_node_has_is_refused(keys: str, problem: str | None) -> None:
    text = f"name: job-a\nimage: a\n{keys}\n"
    if problem is None:
        assert parse_spec(text, "a.yaml", None, lambda spec: lacks(spec, HOST)).bounds
        return
    with pytest.raises(SpecError) as caught:
        parse_spec(text, "a.yaml", None, lambda spec: lacks(spec, HOST))
    assert str(caught.value) == f"a.yaml:{problem}"


P95_50MS = {"kind": "latency", "seconds": 0.05, "quantile": 0.95}
UNTIL_97 = {"kind": "accuracy", "metric": "accuracy", "deliver": 0.9, "finish": 0.97}


def row(
    target: dict[str, object], tier: str, kind: str, best: float | None, needs_cores: float | None
) -> dict[str, object]:
    outlook = {"tier": tier, "kind": kind, "best": best, "needs_cores": needs_cores}
    return {"name": "job-a", "target": target, "outlook": [outlook]}


SLOW = row(P95_50MS, "latency", "impossible", 0.064, None)
GREEDY = row(P95_50MS, "latency", "crowded", None, 1.4)
FLAT = row(UNTIL_97, "finish", "impossible", 0.952, None)
ASKS = "target: {latency: 50ms, quantile: p95}"
LEARNS = "target: {metric: accuracy, deliver: 0.9, finish: %s}"


@pytest.mark.parametrize(
    ("keys", "there", "doubted"),
    [
        (ASKS, SLOW, ["target.latency: 50 ms, at best 64 ms as it runs now"]),
        ("target: {latency: 65ms, quantile: p95}", SLOW, []),
        ("target: {latency: 50ms}", SLOW, []),
        (
            f"{ASKS}\ncpus: {{max: 1}}",
            GREEDY,
            ["cpus.max: 1 core, its target needs 1.4 cores as it runs now"],
        ),
        (f"{ASKS}\ncpus: {{max: 1.5}}", GREEDY, []),
        (ASKS, GREEDY, []),
        ("target: {latency: 80ms, quantile: p95}\ncpus: {max: 1}", GREEDY, []),
        (LEARNS % 0.97, FLAT, ["target.finish: 0.97, at best 0.952 is expected as it runs now"]),
        (
            LEARNS % 0.97,
            row(UNTIL_97, "finish", "unlikely", 0.952, None),
            ["target.finish: 0.97, at best 0.952 is expected as it runs now"],
        ),
        (LEARNS % 0.95, FLAT, []),
        (LEARNS % 0.97, {**FLAT, "name": "job-b"}, []),
        (LEARNS % 0.97, {**FLAT, "target": None}, []),
        (LEARNS % 0.97, SLOW, []),
        (ASKS, FLAT, []),
        ("weight: 2", SLOW, []),
    ],
)
def test_what_is_expected_of_the_running_job_speaks_against_its_target(
    keys: str, there: dict[str, object], doubted: list[str]
) -> None:
    spec = parse_spec(f"name: job-a\nimage: a\n{keys}\n", "a.yaml")
    assert list(doubts(spec, [{**SLOW, "name": "job-z"}, there])) == doubted


def test_submit_into_no_folder_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        submit("name: job-a\nimage: a\n", "a.yaml", tmp_path / "none")


def test_a_users_file_goes_into_their_own_subfolder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "alice").mkdir()
    if os.geteuid() == 0:  # root's own folder is never a user's
        os.chown(tmp_path / "alice", 60001, 60001)
    mine = (tmp_path / "alice").stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert own_folder(tmp_path) == tmp_path, "root's files are the operator's"
    monkeypatch.setattr(submitting, "owner_of", lambda uid: Owner(uid, uid, "alice"))
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    assert own_folder(tmp_path) == tmp_path, "a folder of that name that is not theirs"
    monkeypatch.setattr(submitting, "owner_of", lambda uid: Owner(uid, uid, "bob"))
    assert own_folder(tmp_path) == tmp_path, "no folder of that name"
    monkeypatch.setattr(submitting, "owner_of", lambda uid: Owner(uid, uid, "alice"))
    monkeypatch.setattr(os, "geteuid", lambda: mine)
    assert own_folder(tmp_path) == tmp_path / "alice"
