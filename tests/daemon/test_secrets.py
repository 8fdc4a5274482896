"""A secret in a job's environment shows nowhere but in its container; nor does what steers."""

from __future__ import annotations

import json
import os
import re
import secrets
from pathlib import Path

import pytest

from dlsched.config.job import env_file_reader, parse_spec
from dlsched.model.errors import SpecError
from tests.api.conftest import answers, client_of
from tests.daemon.forked import command
from tests.daemon.test_daemon import goes_on, inspect, reaches, row, runs, spec
from tools.session import Session, wait_for

CANARY = "canary-7d1f3e"
STEERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.mark.parametrize("more", [
    f"environment: [{CANARY}]",
    f"environment: [' TOKEN={CANARY}']",
    f"environment: [TOKEN={CANARY}, TOKEN={CANARY}x, DLSCHED_X={CANARY}]",
    f"environment: {{TOKEN: {CANARY * 400}}}",
    f"environment: {{TOKEN: ['{CANARY}']}}",
    f'environment: {{TOKEN: "{CANARY}\\0"}}',
    f"environment: [\"TOKEN='{CANARY}' it's {CANARY * 400}\"]\nimage: 3",
    "environment: {PIN: 04711}",
    "environment: {PIN: 4_711}",
    "environment: {PIN: 47:11}",
    "environment: {PIN: 4711e3, X: 0x4711}",
    "env_file: broken.env",
    "env_file: binary.env",
    "env_file: reserved.env",
])  # fmt: skip
def test_no_problem_of_a_job_file_tells_a_value(tmp_path: Path, more: str) -> None:
    (tmp_path / "broken.env").write_text(f"{CANARY}\n= {CANARY}\n1x={CANARY}\n")
    (tmp_path / "binary.env").write_bytes(CANARY.encode() + b"\xff\n")
    (tmp_path / "reserved.env").write_text(f"DLSCHED_X={CANARY}\n")
    text = f"name: job\nimage: a\n{more}\ncommand: 3\nunknown: 1\n"
    with pytest.raises(SpecError) as refused:
        parse_spec(text, "a.yaml", env_file_reader(tmp_path))
    told = str(refused.value)
    assert "unknown: unknown key" in told or "duplicate" in told or "image" in told
    for secret in (CANARY, "4711", "4_711", "47:11"):
        assert secret not in told


@pytest.mark.e2e
@pytest.mark.engine
@pytest.mark.gate
def test_a_canary_in_the_environment_is_in_its_container_alone(node: Session) -> None:
    """Every output there is: commands, API, log, journal and every other file of the daemon."""
    canary = secrets.token_hex(12)
    (node.root / "a.env").write_text(f"FROM_FILE={canary}-file\n")
    environment = f"{{FROM_SPEC: {canary}-spec}}"
    more = {"environment": environment, "env_file": str(node.root / "a.env")}
    node.start("dqoes", more={"journal": {"frame": "1s"}, "log": {"level": "debug"}})
    node.drop("good", spec("good", **more, target="{latency: 50ms}"))
    absent = spec("image", **more, pull_policy="never")
    node.drop("image", absent.replace("base:3.11", "absent:1"))
    node.drop("command", spec("command", "[no-such-program]", **more))
    node.drop("volume", spec("volume", **more, volumes="[/no/such/folder:/x]"))
    node.drop("rejected", spec("rejected", **more, ports="[x]"))
    node.drop("listed", spec("listed", environment=f"['{canary}-bare']"))
    reaches(node, "good", "running")
    for name in ("command", "volume", "image"):
        reaches(node, name, "failed")
    node.drop("good", spec("good", **more, target="{latency: 60ms}"))
    runs(node, "changed", **{**more, "environment": f"{{NEW: {canary}-new}}"})
    goes_on(node, 3)  # frames of the journal
    assert f"FROM_SPEC={canary}-spec" in inspect(node, "good")["Config"]["Env"]
    assert f"FROM_FILE={canary}-file" in inspect(node, "good")["Config"]["Env"]

    told = [
        command(node, *words)
        for words in (
            ("ps",), ("ps", "-o", "json"), ("why", "good"), ("why", "image", "-o", "json"),
            ("why", "command"), ("logs", "good"), ("stop", "changed"),
            ("check", f"{node.watch}/listed.yaml"), ("check", f"{node.watch}/rejected.yaml"),
        )
    ]  # fmt: skip
    outputs = {str(one.args[1:]): one.stdout + one.stderr for one in told}
    with client_of(node.root / "run" / "control.sock") as client:
        found = answers(client, "good")
    assert {path for path, answer in found.items() if answer.status_code != 200} == {
        "/v1/containers/good/labels"  # of none that was adopted
    }
    outputs |= {path: answer.text for path, answer in found.items()}
    digest = re.compile(r'digest":"[^"]')
    assert [path for path, answer in found.items() if digest.search(answer.text)] == []
    reports = [str(report) for report in node.reports(1)]
    assert reports
    outputs["journal, read back"] = "".join(reports)
    outputs["labels"] = json.dumps(inspect(node, "good")["Config"]["Labels"])
    node.stop()
    for folder, _, files in os.walk(node.state_dir):
        for file in files:
            outputs[f"{folder}/{file}"] = Path(folder, file).read_bytes().decode("latin-1")
    outputs["daemon.log"] = (node.root / "daemon.log").read_text()
    assert any("journal.db" in name for name in outputs)
    assert len(outputs["daemon.log"]) > 1000
    assert [name for name, text in outputs.items() if canary in text] == []


@pytest.mark.e2e
@pytest.mark.engine
def test_nothing_that_a_container_or_a_file_says_steers_a_terminal(node: Session) -> None:
    """Names, texts and labels; only JSON, which escapes, and `logs --raw` carry the bytes."""
    node.start("dqoes")
    program = r"""
import sys, time
sys.stdout.write('red \x1b[31m \x1b]0;title\x07 \x9b2J \u202e\n')
with open('/run/dlsched/out/metrics.jsonl', 'wb') as file:
    file.write(b'\x1b[2J\x07 no json\n')
time.sleep(600)
"""
    talk = json.dumps(["python", "-uc", program])
    node.drop("talks", spec("talks", talk, target="{latency: 1s}"))
    node.drop("fails", spec("fails", json.dumps(["/no\x1b[31m\x07such"])))
    evil = node.watch.joinpath("e\x1b[31m\x07vil.yaml")
    evil.write_text('name: "\\e[31m\\a"\nimage: "\\e[2J"\n')
    reaches(node, "talks", "running")
    reaches(node, "fails", "failed")
    wait_for(lambda: row(node, "talks")["sidecar"]["bad_lines"] > 0, 30, "the bad line")
    wait_for(lambda: "red" in command(node, "logs", "talks").stdout, 30, "the output")
    asked = [("ps",), ("ps", "-o", "json"), ("why", "fails"), ("why", "talks"), ("logs", "talks"),
             ("why", "\x1b[31mnobody"), ("stop", "no\x07body")]  # fmt: skip
    for words in asked:
        done = command(node, *words)
        assert not STEERS.search(done.stdout + done.stderr), (words, done)
    raw = command(node, "logs", "--raw", "talks").stdout
    assert "\x1b[31m" in raw
    assert "\x1b]0;title\x07" in raw
    node.stop()
    assert not STEERS.search((node.root / "daemon.log").read_text())
