"""The daemon on a real engine, driven as users drive it: files, commands, signals."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dlsched.model.actions import Resize
from dlsched.model.spec import Limits
from tests.daemon.forked import command
from tools.session import Session, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.engine]

SLEEP = "[python, -c, 'import signal; signal.pause()']"
SERVE = """
  - python
  - -c
  - |
    import time
    from dlsched.report import latency
    while True:
        with latency.measure():
            end = time.thread_time() + 0.02
            while time.thread_time() < end:
                pass
"""


def spec(name: str, command: str = SLEEP, **keys: str) -> str:
    lines = [f"name: {name}", "image: dlsched-examples/base:3.11", f"command: {command}"]
    keys = {"network": "none", "cpus": "{min: 0.05, max: 1}", "stop": "{grace: 1s}", **keys}
    return "\n".join([*lines, *(f"{key}: {value}" for key, value in keys.items())]) + "\n"


def row(node: Session, name: str) -> dict[str, Any]:
    rows = {row["name"]: row for row in node.client.jobs()["jobs"]}
    return rows.get(name, {"state": "absent", "container": None, "reason": None})


def shows(
    node: Session,
    name: str,
    true: Callable[[dict[str, Any]], object],
    what: str,
    deadline_s: float = 60.0,
) -> dict[str, Any]:
    """The job's row, once all of that is so of one and the same."""
    last: dict[str, Any] = {}

    def holds() -> object:
        last.clear()
        last.update(row(node, name))
        return true(last)

    try:
        wait_for(holds, deadline_s, f"{name}: {what}")
    except AssertionError as error:
        raise AssertionError(f"{error}: {last}") from error
    return last


def reaches(node: Session, name: str, state: str, deadline_s: float = 60.0) -> dict[str, Any]:
    return shows(node, name, lambda one: one["state"] == state, f"to be {state}", deadline_s)


def runs(node: Session, name: str, command: str = SLEEP, **keys: str) -> dict[str, Any]:
    """Its row, once it runs as its new file says."""
    node.drop(name, spec(name, command, **keys))
    return reaches(node, name, "running")


def waits(node: Session, name: str, reason: str, deadline_s: float = 60.0) -> dict[str, Any]:
    """Its row, once it waits for that reason: at first a job may wait for another one."""

    def so(one: dict[str, Any]) -> bool:
        return one["state"] == "waiting" and reason in (one["reason"] or "")

    return shows(node, name, so, f"to wait, since {reason}", deadline_s)


def alarms(node: Session, text: str, deadline_s: float = 30.0) -> str:
    """The alarm with that text, once it is there; a busy engine may cause another one meanwhile."""
    found: list[str] = []

    def told() -> bool:
        found[:] = [alarm for alarm in node.client.jobs()["alarms"] if text in alarm]
        return bool(found)

    wait_for(told, deadline_s, f"the alarm of {text!r}")
    return found[0]


def goes_on(node: Session, cycles: int = 2) -> None:
    """So many cycles more."""
    first = node.cycle()
    wait_for(lambda: node.cycle() >= first + cycles, 30, f"{cycles} more cycles")


def inspect(node: Session, name: str) -> dict[str, Any]:
    container = node.engine.containers.get(f"dlsched-{node.instance}-{name}")
    return dict(container.attrs)


def quota(node: Session, name: str) -> int:
    """The quota that the engine has for the job's container."""
    return int(inspect(node, name)["HostConfig"]["CpuQuota"])


def containers(node: Session) -> list[Any]:
    """Those of the instance, also those that do not run."""
    label = {"label": f"dlsched.instance={node.instance}"}
    return list(node.engine.containers.list(all=True, filters=label, ignore_removed=True))


@pytest.mark.gate
def test_a_files_life_start_change_recreate_remove(node: Session):
    node.start("fair")
    first = runs(node, "alpha")["container"]

    node.drop("alpha", spec("alpha", cpus="{min: 0.05, max: 0.5}"))
    wait_for(lambda: quota(node, "alpha") == 50_000, 30, "the new ceiling")
    assert row(node, "alpha")["container"] == first

    node.drop("alpha", spec("alpha", environment="{ROUND: '2'}"))
    wait_for(lambda: row(node, "alpha")["container"] not in (None, first), 30, "a new container")
    reaches(node, "alpha", "running")
    assert "ROUND=2" in inspect(node, "alpha")["Config"]["Env"]

    (node.watch / "alpha.yaml").unlink()
    reaches(node, "alpha", "absent")
    assert containers(node) == []


@pytest.mark.gate
def test_a_rejected_change_leaves_the_job_alone_also_over_a_restart(node: Session):
    node.start("fair")
    first = runs(node, "alpha")["container"]
    node.drop("alpha", "name: alpha\nimage: [\ncommand: 3\n")
    wait_for(lambda: node.client.jobs()["rejected"], 30, "the rejection to show")
    (rejected,) = node.client.jobs()["rejected"]
    assert "alpha.yaml:" in rejected["problems"][0]
    assert row(node, "alpha")["container"] == first
    node.stop()
    node.start("fair")
    reaches(node, "alpha", "unmanaged")
    goes_on(node, 3)
    left = row(node, "alpha")
    assert (left["state"], left["container"]) == ("unmanaged", first)
    assert runs(node, "alpha")["container"] == first


@pytest.mark.gate
def test_a_finished_job_never_runs_again_by_itself(node: Session):
    node.start("fair")
    node.drop("once", spec("once", "[python, -c, 'print(42)']"))
    reaches(node, "once", "finished")
    wait_for(lambda: b"42" in b"".join(node.client.logs("once", 10, False)), 30, "what it printed")
    node.engine.containers.get(f"dlsched-{node.instance}-once").remove()
    node.stop()
    node.start("fair")
    reaches(node, "once", "finished")
    goes_on(node, 3)
    left = row(node, "once")
    assert (left["state"], left["container"]) == ("finished", None)


def delays_nobody(node: Session) -> None:
    """Another job starts, and cycles go on."""
    runs(node, "beta")
    goes_on(node, 5)


def test_a_stop_with_minutes_of_grace_delays_nobody(node: Session):
    stubborn = """
  - python
  - -c
  - |
    import signal, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(1)
"""
    node.start("fair")
    runs(node, "stubborn", stubborn, stop="{grace: 10m}")
    (node.watch / "stubborn.yaml").unlink()
    reaches(node, "stubborn", "stopping")
    delays_nobody(node)
    stopping = row(node, "stubborn")
    assert stopping["state"] == "stopping"
    assert "grace" in stopping["reason"]


def test_a_slow_pull_delays_nobody(node: Session):
    with socket.create_server(("127.0.0.1", 0)) as registry:  # takes calls, never answers
        image = f"127.0.0.1:{registry.getsockname()[1]}/slow:1"
        node.start("fair")
        node.drop("slow", spec("slow").replace("dlsched-examples/base:3.11", image))
        reaches(node, "slow", "pulling")
        delays_nobody(node)
        assert row(node, "slow")["state"] == "pulling"
        wait_for(lambda: quota(node, "beta") == 100_000, 30, "its whole ceiling")


@pytest.mark.gate
def test_sighup_takes_new_settings_and_keeps_the_old_where_they_are_wrong(node: Session):
    node.start("fair")
    settings = json.loads((node.root / "dlsched.yaml").read_text())

    def reloads(policy: str) -> None:
        (node.root / "dlsched.yaml").write_text(json.dumps({**settings, "policy": policy}))
        node.process.send_signal(signal.SIGHUP)

    reloads("none")
    wait_for(lambda: node.client.jobs()["policy"] == "none", 30, "the new policy")
    reloads("no-such-policy")
    refused = "no policy 'no-such-policy'; known are"
    wait_for(lambda: refused in (node.root / "daemon.log").read_text(), 30, "the refusal")
    goes_on(node)
    assert node.client.jobs()["policy"] == "none"
    reloads("dqoes")
    wait_for(lambda: node.client.jobs()["policy"] == "dqoes", 30, "the next one")


@pytest.mark.gate
def test_a_second_agent_of_the_instance_ends_with_3_and_names_the_first(node: Session):
    node.start("fair")
    second = command(node, "run")
    assert second.returncode == 3
    assert str(node.process.pid) in second.stderr
    assert second.stderr.count("\n") == 1


@pytest.mark.gate
def test_stop_is_durable_and_submit_start_lifts_it(node: Session):
    node.start("fair")
    runs(node, "alpha")
    assert command(node, "stop", "alpha").returncode == 0
    reaches(node, "alpha", "stopped")
    node.stop()
    node.start("fair")
    reaches(node, "alpha", "stopped")
    goes_on(node, 3)
    assert row(node, "alpha")["state"] == "stopped"
    lifted = command(node, "submit", "--start", str(node.watch / "alpha.yaml"))
    assert lifted.returncode == 0, lifted.stderr
    reaches(node, "alpha", "running")


@pytest.mark.gate
def test_a_dry_run_touches_nothing(node: Session):
    node.start("fair")
    runs(node, "alpha")
    node.stop()
    before = inspect(node, "alpha")["HostConfig"]
    node.drop("beta", spec("beta"))
    node.start("tools.fixed_policy:FixedPolicy", {"cores": "alpha=0.2"}, dry_run=True)
    reaches(node, "alpha", "running")
    goes_on(node, 4)
    assert inspect(node, "alpha")["HostConfig"] == before
    assert row(node, "beta")["container"] is None
    node.stop()
    assert inspect(node, "alpha")["HostConfig"] == before


@pytest.mark.gate
def test_a_shadow_is_told_beside_and_never_acts(node: Session, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DLSCHED_SHADOW", "tools.fixed_policy:FixedPolicy?cores=alpha=0.3")
    node.start("tools.fixed_policy:FixedPolicy", {"cores": "alpha=0.2"})
    runs(node, "alpha")
    wait_for(lambda: quota(node, "alpha") == 20_000, 30, "the limit")
    goes_on(node, 4)
    told = " ".join(command(node, "why", "alpha").stdout.split())
    assert "shadow tools.fixed_policy:FixedPolicy?cores=alpha=0.3: would give 0.300 cores" in told
    assert quota(node, "alpha") == 20_000
    node.stop()

    reports = list(node.reports(1))
    assert {
        outcome.action.limits
        for report in reports
        for outcome in report.outcomes
        if isinstance(outcome.action, Resize)
    } == {Limits(0.2)}
    shadow = reports[-1].shadow
    assert shadow is not None
    assert (reports[-1].limits, shadow.limits) == ({"alpha": Limits(0.2)}, {"alpha": Limits(0.3)})
    again = command(node, "replay", str(node.state_dir), "--policy", "none")
    assert again.returncode == 0, again.stderr
    assert "plain Docker: dlsched sets no limit" in again.stdout


def test_progress_flows_and_dqoes_moves_the_quota_and_why_tells(node: Session):
    node.start("dqoes")
    runs(node, "alpha", SERVE, target="{latency: 100ms}")

    def moved(one: dict[str, Any]) -> bool:
        return one.get("ratio") is not None and quota(node, "alpha") > 0

    shows(node, "alpha", moved, "a latency, and a quota for it", 120)
    wait_for(lambda: node.client.why("alpha", 10)["effects"], 60, "what became of a change")
    told = command(node, "why", "alpha", "--output", "json")
    assert told.returncode == 0, told.stderr
    assert "target" in told.stdout
    assert "alpha" in command(node, "ps").stdout
    again = command(node, "replay", str(node.state_dir), "--policy", "dqoes", "-o", "json")
    assert again.returncode == 0, again.stderr
    summary = json.loads(again.stdout)["summary"]
    assert (summary["asks"], summary["all"]["agreed_ratio"]) == (summary["recorded"]["dqoes"], 1.0)


TRAIN = """
  - python
  - -c
  - |
    import json, os, time
    def tell(**line):
        with open(os.environ["DLSCHED_METRICS_FILE"], "a") as out:
            out.write(json.dumps(line) + "\\n")
    tell(checkpoint={"step": 40, "path": "/ckpt/40"})
    step, delivered = 0, None
    while True:
        step += 10
        tell(step=step, accuracy=0.5 if step < 50 else 0.92)
        with open(os.environ["DLSCHED_ALLOTMENT_FILE"]) as file:
            now = json.load(file)["deliverable"]
        if now != delivered:
            print("deliverable:", now, flush=True)
            delivered = now
        time.sleep(0.1)
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that the hook's user can write to."""
    folder = Path(tempfile.mkdtemp(prefix="dlsched-hook-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


def told_events(node: Session, name: str) -> list[str]:
    events = node.client.why(name, 100)["events"]
    return [event["kind"] for event in events if event["kind"] in ("deliverable", "hook")]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run the hook as another user")
@pytest.mark.gate
def test_a_job_at_its_first_tier_is_told_everywhere_and_once(node: Session, open_folder: Path):
    hook = [
        "/bin/sh",
        "-c",
        "env | grep ^DLSCHED_ | sort >> $0; id -un >> $0",
        open_folder / "told",
    ]
    more = {"deliver_hook": {"command": [str(word) for word in hook]}, "tier_evaluations": 3}
    target = "{metric: accuracy, deliver: 0.9, finish: 0.97}"
    node.start("fair", more=more)
    runs(node, "train", TRAIN, target=target)

    def delivered() -> tuple[float, int] | None:
        tiers = row(node, "train").get("tiers")
        reached = tiers and tiers["delivered"]
        return reached and (reached["value"], reached["step"])

    wait_for(lambda: delivered() == (0.92, 70), 60, "the first tier")
    wait_for(lambda: sorted(told_events(node, "train")) == ["deliverable", "hook"], 30, "events")
    container = node.engine.containers.get(f"dlsched-{node.instance}-train").id
    told = f"""\
DLSCHED_CHECKPOINT_PATH=/ckpt/40
DLSCHED_CHECKPOINT_STEP=40
DLSCHED_CONTAINER={container}
DLSCHED_DELIVER=0.9
DLSCHED_JOB=train
DLSCHED_METRIC=accuracy
DLSCHED_STEP=70
DLSCHED_VALUE=0.92
nobody
"""
    assert (open_folder / "told").read_text() == told

    def said() -> list[str]:
        return b"".join(node.client.logs("train", 10, False)).decode().split("\n")[:-1]

    wait_for(lambda: said() == ["deliverable: False", "deliverable: True"], 30, "the job to know")
    shown = command(node, "ps").stdout
    assert "DELIVERED" in shown
    assert "accuracy 0.92 at step 70" in " ".join(shown.split())
    assert "deliverable for" in command(node, "why", "train").stdout.splitlines()[0]

    def log() -> str:
        return (node.root / "daemon.log").read_text()

    wait_for(lambda: "deliver_hook for job train: exit code 0" in log(), 30, "the hook in the log")
    assert (
        log().count("job train reached its deliver value: accuracy 0.92 at step 70 (deliver 0.9)")
        == 1
    )

    node.kill()
    node.start("fair", more=more)
    reaches(node, "train", "running")
    goes_on(node, 5)
    assert delivered() == (0.92, 70)
    assert sorted(told_events(node, "train")) == ["deliverable", "hook"]
    assert (open_folder / "told").read_text() == told
    assert said() == ["deliverable: False", "deliverable: True"]

    node.drop("train", spec("train", TRAIN, target=target.replace("0.9,", "0.95,")))
    wait_for(lambda: delivered() is None, 30, "the delivery to be void")
    wait_for(lambda: said()[2:] == ["deliverable: False"], 30, "the job to know that, too")
    assert not (node.state_dir / "delivered" / "train.json").exists()


@pytest.mark.parametrize(
    ("text", "state", "reason"),
    [
        (
            spec("bad").replace("dlsched-examples/base:3.11", "dlsched-test/no-such-image"),
            "waiting",
            "no-such-image",
        ),
        (spec("bad", "[/no/such/program]"), "failed", "no such file"),
        (spec("bad", "[python, -c, 'raise SystemExit(7)']"), "failed", "exit code 7"),
        (
            spec("bad", "[python, -c, 'x = bytearray(10**9)']", memory="64MiB"),
            "failed",
            "out of memory",
        ),
    ],
    ids=["no image", "no program", "exit code", "memory"],
)
def test_what_goes_wrong_shows_in_ps_with_its_reason(
    node: Session, text: str, state: str, reason: str
):
    node.start("fair")
    runs(node, "good")
    node.drop("bad", text)

    def told(one: dict[str, Any]) -> bool:
        return one["state"] == state and reason in (one["reason"] or "").lower()

    shows(node, "bad", told, f"to be {state} for the reason {reason}", 60)
    assert row(node, "good")["state"] == "running"
