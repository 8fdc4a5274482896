"""Users of one host, on a real engine: rules, ceilings, names, logs, each other's jobs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.forked import command, session
from tests.daemon.test_daemon import goes_on, inspect, quota, reaches, row, runs, spec, waits
from tools.session import Session, wait_for

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.engine,
    pytest.mark.skipif(
        os.geteuid() != 0, reason="only root can act as other users, as these tests do"
    ),
]
ALICE, BOB = 60001, 60002
SPIN = "[python, -c, 'while True: pass']"


@pytest.fixture
def node(docker_host: str, base_image: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """A daemon's home where two users have a subfolder; all of it is gone afterwards."""
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    with session() as one:
        one.root.chmod(0o755)
        for name, uid in (("alice", ALICE), ("bob", BOB)):
            (one.watch / name).mkdir()
            os.chown(one.watch / name, uid, uid)
        (one.root / "data").mkdir()
        rules = {
            "images": ["dlsched-examples/*"],
            "mounts": [str(one.root / "data")],
            "run_as": "anybody",
            "pids": 64,
            "cpus": 0.5,
            "jobs": 2,
        }
        one.start("none", more={"tenants": {"everyone": rules}, "control_group": None})
        yield one


def drop(node: Session, owner: str, name: str, text: str) -> Path:
    path = node.watch / owner / f"{name}.yaml"
    path.write_text(text)
    uid = {"alice": ALICE, "bob": BOB}[owner]
    os.chown(path, uid, uid)
    return path


AS_USER = """
import os, sys
import encodings.idna, dlsched.api.client, dlsched.config.settings
import dlsched.cli.commands.asking, dlsched.cli.commands.jobs
import dlsched.cli.pages.ps, dlsched.cli.pages.why
from dlsched.cli import main
uid = int(sys.argv.pop(1))
os.setgroups([]); os.setgid(uid); os.setuid(uid)
main()
"""
"""The program, loaded before its user is another: whose files it is made of does not matter."""


def as_user(node: Session, uid: int, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of dlsched as somebody else runs it."""
    return subprocess.run(
        [sys.executable, "-c", AS_USER, str(uid), words[0], "--run-dir", node.root / "run",
         *words[1:]],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.mark.gate
def test_a_users_container_has_no_more_than_its_rules(node: Session) -> None:
    drop(node, "alice", "one", spec("one", SPIN, cpus="{max: 2}"))
    reaches(node, "one", "running")
    drop(node, "alice", "two", spec("two", SPIN, cpus="{max: 2}"))
    reaches(node, "two", "running")
    drop(node, "alice", "three", spec("three"))
    waits(node, "three", f"uid {ALICE} has 2 jobs, at most 2 are allowed")
    assert (row(node, "one")["owner"], row(node, "two")["owner"]) == (ALICE, ALICE)

    def cores() -> float:
        return sum(quota(node, name) for name in ("one", "two")) / 1e5

    wait_for(lambda: cores() <= 0.5, 30, "both to have half a core together")
    host = inspect(node, "one")["HostConfig"]
    assert (host["PidsLimit"], host["SecurityOpt"]) == (64, ["no-new-privileges:true"])
    runs(node, "theirs", SPIN, cpus="{max: 1}")
    host = inspect(node, "theirs")["HostConfig"]
    assert (host["PidsLimit"] or 0) <= 0
    assert not host["SecurityOpt"], "root's own jobs are bound by nothing"
    assert host["CpuQuota"] == 100_000


@pytest.mark.gate
def test_nobody_takes_replaces_or_stops_anothers_job(node: Session) -> None:
    drop(node, "bob", "b", spec("shared"))
    container = reaches(node, "shared", "running")["container"]
    drop(node, "alice", "a", spec("shared", SPIN))

    def refused() -> bool:
        problems = [line for one in node.client.jobs()["rejected"] for line in one["problems"]]
        return problems == ["alice/a.yaml: the file bob/b.yaml already has the job shared"]

    wait_for(refused, 30, "the second of that name to be rejected")
    node.kill()
    node.start("none", more={"tenants": {"everyone": {"images": ["**"], "run_as": "anybody"}}})
    wait_for(refused, 30, "the same after a restart")
    (node.watch / "alice" / "a.yaml").unlink()
    (node.watch / "alice").rmdir()
    goes_on(node, 3)
    assert row(node, "shared")["container"] == container
    (node.watch / "bob" / "b.yaml").unlink()
    reaches(node, "shared", "absent")


def test_a_mount_is_looked_at_when_the_container_starts(node: Session) -> None:
    data = node.root / "data"
    (data / "sets").mkdir()
    (data / "out").symlink_to("/etc")
    drop(node, "alice", "good", spec("good", volumes=f"['{data}/sets:/d:ro']"))
    drop(node, "alice", "bad", spec("bad", volumes=f"['{data}/out:/d:ro']"))
    reaches(node, "good", "running")
    failed = reaches(node, "bad", "failed")
    assert (
        f"the source '{data}/out' is not bound: {data}/out is a symbolic link" in failed["reason"]
    )
    drop(node, "bob", "sock", spec("sock", volumes="['/var/run/docker.sock:/s:ro']"))
    wait_for(lambda: node.client.jobs()["rejected"], 30, "the rejection")
    (rejected,) = node.client.jobs()["rejected"]
    assert "uid 60002 may not bind '/var/run/docker.sock'" in rejected["problems"][0]


def test_sockets_let_each_user_do_what_is_theirs(node: Session) -> None:
    talk = "[python, -uc, \"print('it is bobs'); import signal; signal.pause()\"]"
    drop(node, "bob", "b", spec("told", talk))
    reaches(node, "told", "running")
    wait_for(lambda: "it is bobs" in command(node, "logs", "told").stdout, 30, "the output")
    (node.root / "run" / "status.sock").chmod(0o666)  # as members of its group are let in

    assert as_user(node, ALICE, "ps").returncode == 0
    mine = as_user(node, BOB, "logs", "told")
    assert (mine.returncode, mine.stdout) == (0, "it is bobs\n")
    theirs = as_user(node, ALICE, "logs", "told")
    assert theirs.returncode == 1
    assert "it is bobs" not in theirs.stdout + theirs.stderr
    assert "the output of told, which may hold secrets, is not for" in theirs.stderr
    for uid in (ALICE, BOB):
        refused = as_user(node, uid, "stop", "told")
        assert refused.returncode == 3
        assert (
            "control.sock is not open to you: only the socket's owner may connect, so use sudo"
        ) in (refused.stderr)
    assert row(node, "told")["state"] == "running"
    assert command(node, "stop", "told").returncode == 0
    reaches(node, "told", "stopped")


def test_a_user_who_churns_files_slows_nobody(node: Session) -> None:
    runs(node, "theirs")
    churn = (
        "import os\n"
        f"os.setgid({ALICE}); os.setuid({ALICE}); os.chdir({str(node.watch / 'alice')!r})\n"
        "print('begins', flush=True)\n"
        "while True:\n"
        "    for number in range(90):\n"
        "        with open(f'{number}.yaml', 'w') as file:\n"
        "            file.write('name: ' + 'x' * 200_000)\n"
        "        os.rename(f'{number}.yaml', f'moved-{number}.yaml')\n"
        "        os.unlink(f'moved-{number}.yaml')\n"
        "    os.symlink('/etc/shadow', 'link.yaml'); os.unlink('link.yaml')\n"
        "    os.mkfifo('fifo.yaml'); os.unlink('fifo.yaml')\n"
    )
    with subprocess.Popen([sys.executable, "-c", churn], stdout=subprocess.PIPE) as churning:
        try:
            assert churning.stdout is not None and churning.stdout.readline() == b"begins\n"
            spent_s, first = sum(node.process.cpu_times()[:2]), node.cycle()
            began_s = time.monotonic()
            time.sleep(6.0)
            wait_for(lambda: node.cycle() >= first + 3, 30, "cycles: it is not held up")
            assert churning.poll() is None
            # A cycle a second would be made without it, too.
            beyond_s = time.monotonic() - began_s - 6.0
            assert node.cycle() - first <= 20 + 2 * beyond_s, "it is not driven"
            assert sum(node.process.cpu_times()[:2]) - spent_s < 2.0 + beyond_s / 10
        finally:
            churning.kill()
    runs(node, "late")
