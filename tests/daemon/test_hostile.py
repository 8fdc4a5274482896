"""The daemon among hostile tenants and accidents: it keeps its loop, its jobs and its manners."""

from __future__ import annotations

import os
import resource
import signal
import time
from typing import Any

import pytest

from tests.daemon.test_daemon import (
    alarms,
    goes_on,
    inspect,
    quota,
    reaches,
    row,
    runs,
    shows,
    spec,
)
from tests.inside import run_inside
from tools.session import Session, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.engine]

METRICS = "/run/dlsched/out/metrics.jsonl"


UNEXPECTED = ('name: "\\U00110000"\n', 'name: "\\UFFFFFFFF"\n', f"%YAML 1.{'1' * 5000}\n--- a\n")
"""What PyYAML raises other errors for than its own."""
FLOOD = f"""
import json, time
claim = {{"count": 1, "sum": 0.05, "in_flight": 1_000_000, "oldest_s": 1e9}}
for turn in range(40):
    with open("{METRICS}", "w") as file:
        for number in range(250):
            file.write(json.dumps({{"w": str(250 * turn + number), "latency": claim}}) + "\\n")
        file.write('{{"loss": NaN}}\\n{{"loss": 1e999}}\\n\\x1b[2J\\n' + "[" * 4000 + "\\n")
    time.sleep(0.1)
"""


def inside(node: Session, job: str, program: str, *arguments: str) -> str:
    """What a program prints in the job's container, as its root."""
    container = f"dlsched-{node.instance}-{job}"
    code, said = run_inside(node.engine.api, container, ["python", "-c", program, *arguments])
    assert code == 0, said
    return said.decode()


def test_a_flood_of_writers_claims_and_nonsense_costs_nobody_anything(node: Session):
    node.start("dqoes")
    node.drop("alpha", spec("alpha", target="{latency: 50ms}"))
    node.drop("beta", spec("beta"))
    reaches(node, "alpha", "running")
    reaches(node, "beta", "running")
    first, spent_s = node.cycle(), sum(node.process.cpu_times()[:2])
    began_s = time.monotonic()
    inside(node, "alpha", FLOOD)
    wait_for(lambda: node.cycle() >= first + 3, 30, "cycles to go on")
    assert sum(node.process.cpu_times()[:2]) - spent_s < 2.0 + (time.monotonic() - began_s) / 10

    def told(one: dict[str, Any]) -> bool:
        return one["sidecar"]["bad_lines"] > 0 and 0 < one["in_flight"] <= 1024 * 1_000_000

    shows(node, "alpha", told, "its bad lines, and no more in flight than can be", 60)
    assert row(node, "beta")["state"] == "running"


def test_what_others_do_to_a_container_is_followed_and_a_copy_of_it_left_alone(node: Session):
    node.start("fair")
    first = runs(node, "alpha")["container"]
    container = node.engine.containers.get(f"dlsched-{node.instance}-alpha")

    container.restart(timeout=1)
    wait_for(lambda: inspect(node, "alpha")["State"]["Running"], 30, "it to run again")
    goes_on(node)
    # A restart by hand is no end.
    assert reaches(node, "alpha", "running")["container"] == first

    container.rename(f"renamed-{node.instance}")
    copy = node.engine.containers.run(  # as from a committed image, which inherits the labels
        "dlsched-examples/base:3.11",
        ["python", "-c", "import signal; signal.pause()"],
        labels=container.labels,
        network_mode="none",
        detach=True,
    )
    wait_for(lambda: node.client.jobs()["alarms"], 30, "the alarm")
    goes_on(node)
    copy.reload()
    assert copy.status == "running"
    assert row(node, "alpha")["container"] == first
    copy.remove(force=True)

    container.remove(force=True)
    shows(
        node,
        "alpha",
        lambda one: one["state"] == "running" and one["container"] != first,
        "to run in a new container",
    )


def test_paused_and_rejected_jobs_keep_their_limits_at_the_end(node: Session):
    node.start("fair")
    for name in ("alpha", "beta"):
        runs(node, name)
    node.engine.containers.get(f"dlsched-{node.instance}-beta").pause()
    reaches(node, "beta", "paused")
    node.drop("alpha", "name: alpha\nimage: [\n")
    node.kill()
    node.start("fair")
    reaches(node, "alpha", "unmanaged")
    reaches(node, "beta", "paused")
    before = quota(node, "alpha")
    node.stop()
    assert quota(node, "alpha") == before > 0
    assert quota(node, "beta") == 100_000
    node.engine.containers.get(f"dlsched-{node.instance}-beta").unpause()


@pytest.mark.gate
def test_a_folder_of_oddities_a_deleted_journal_and_broken_settings_stop_nothing(node: Session):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard), hard))
    try:
        node.start("fair")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert node.process.rlimit(resource.RLIMIT_NOFILE) == (hard, hard)

    os.mkfifo(node.watch / "fifo.yaml")
    (node.watch / "folder.yaml").mkdir()
    (node.watch / "link.yaml").symlink_to("/etc/passwd")
    node.watch.joinpath(os.fsdecode(b"caf\xe9\x1b[31m.yaml")).write_text("name: 3\n")
    for number, text in enumerate(UNEXPECTED):
        node.watch.joinpath(f"unexpected-{number}.yaml").write_text(text)
    runs(node, "alpha")
    count = 4 + len(UNEXPECTED)
    wait_for(lambda: len(node.client.jobs()["rejected"]) >= count, 30, "the others to be rejected")
    assert len(node.client.jobs()["rejected"]) == count

    # The database last: once that is missing, the daemon removes what is left and makes another.
    for part in sorted(node.state_dir.glob("journal.db*"), reverse=True):
        part.unlink()
    alarms(node, "journal was deleted")
    wait_for((node.state_dir / "journal.db").exists, 30, "another journal")

    for broken in ("{", "policy: no_such_module:Policy", "period: never", "\x00"):
        (node.root / "dlsched.yaml").write_text(broken)
        node.process.send_signal(signal.SIGHUP)
        goes_on(node, 1)
    assert node.client.jobs()["policy"] == "fair"
    assert row(node, "alpha")["state"] == "running"


SWAPS = f"""
import errno, os, time
path, end = "{METRICS}", time.monotonic() + 6
folder = os.path.dirname(path)
line = b'{{"latency_s": [0.05]}}\\n'
def clear():
    try:
        os.rmdir(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
    except OSError:
        pass
def swap(kind):
    clear()
    if kind == 0:
        os.symlink("/etc/shadow", path)
    elif kind == 1:
        os.mkfifo(path)
    elif kind == 2:
        os.mkdir(path)
    elif kind == 3:
        with open(path, "wb") as file:  # a hole of a terabyte, with a line behind it
            file.truncate(1 << 40)
            try:
                file.seek(0, 2), file.write(line)
            except OSError:
                pass
    elif kind == 4:
        with open(folder + "/next", "wb") as file:
            file.write(line * 9000)
        os.rename(folder + "/next", path)
    elif kind == 5:
        with open(path, "wb") as file:
            for _ in range(200):
                file.truncate(0), file.write(line * 50), file.flush()
    elif kind == 6:
        with open(path, "wb") as file:
            file.write(b"x" * 500_000)
    else:
        os.symlink(path, folder + "/self"), os.rename(folder + "/self", path)
while time.monotonic() < end:
    for kind in range(8):
        try:
            swap(kind)
        except OSError as error:
            if error.errno != errno.ENOSPC:  # the agent may still read the one before
                raise
"""


def state_bytes(node: Session) -> int:
    return sum(file.stat().st_size for file in node.state_dir.rglob("*") if file.is_file())


def test_a_file_that_is_swapped_without_end_neither_hangs_nor_grows_nor_spins_the_agent(
    node: Session,
):
    node.start("dqoes")
    node.drop("alpha", spec("alpha", target="{latency: 50ms}"))
    node.drop("beta", spec("beta"))
    reaches(node, "alpha", "running")
    reaches(node, "beta", "running")
    goes_on(node)
    inside(node, "alpha", SWAPS.replace("+ 6", "+ 2"))  # what it opens at most, it has opened then
    goes_on(node)
    process = node.process
    first, spent_s = node.cycle(), sum(process.cpu_times()[:2])
    before = process.num_fds(), process.num_threads(), process.memory_info().rss, state_bytes(node)
    began_s = time.monotonic()
    inside(node, "alpha", SWAPS)
    wait_for(lambda: node.cycle() >= first + 3, 30, "cycles to go on")
    goes_on(node)
    assert sum(process.cpu_times()[:2]) - spent_s < 2.0 + (time.monotonic() - began_s) / 10
    assert process.memory_info().rss - before[2] < 8 << 20
    # What stays open stays open; a question to the engine that is under way does not.
    wait_for(lambda: process.num_fds() <= before[0] + 4, 60, "no descriptor to be kept")
    wait_for(lambda: process.num_threads() <= before[1] + 4, 60, "no thread to be kept")
    assert state_bytes(node) - before[3] < 4 << 20
    assert row(node, "beta")["state"] == "running"


LOOK = """
import os, sys
seen = []
for folder, folders, files in os.walk("/run/dlsched"):
    seen += [os.path.join(folder, name) for name in files]
def denied(act):
    try:
        act()
    except OSError:
        return True
    return False
assert open("/run/dlsched/in/allotment.json").read()
assert denied(lambda: open("/run/dlsched/in/allotment.json", "w"))
assert denied(lambda: open("/run/dlsched/in/new", "w"))
assert denied(lambda: os.unlink("/run/dlsched/in/allotment.json"))
assert denied(lambda: os.listdir("/run/dlsched/in/../../../var/lib/dlsched"))
mine = sys.argv[1]
with open("/run/dlsched/out/mark-" + mine, "w") as file:
    file.write(mine)
print(*seen)
"""


@pytest.mark.gate
def test_no_job_sees_or_writes_anothers_sidecar(node: Session):
    node.start("fair")
    for name in ("alpha", "beta"):
        runs(node, name)
    for _ in range(2):
        for name, other in (("alpha", "beta"), ("beta", "alpha")):
            said = inside(node, name, LOOK, name)
            assert f"mark-{other}" not in said
            sources = {mount["Source"] for mount in inspect(node, name)["Mounts"]}
            assert not any(f"/{other}" in source for source in sources)
    assert "mark-alpha" in inside(node, "alpha", LOOK, "alpha")
