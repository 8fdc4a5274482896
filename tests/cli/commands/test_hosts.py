"""`dlsched ps --host`: asked with an `ssh` of the test's own, whose answers are hostile."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlsched.api.codec import as_json
from dlsched.api.status import node_status
from dlsched.cli.commands import hosts
from tests.cli.conftest import Program
from tests.status_source import everything_report, example_report, foretold, report_of
from tests.texts import same_text

pytestmark = pytest.mark.process

Answer = Callable[[str, str], None]
HOSTILE = "\x1b[2J\x1b]0;x\x07\n\u202egone"


def status() -> dict[str, Any]:
    found: dict[str, Any] = as_json(node_status(foretold(example_report())))
    return found


@pytest.fixture
def answer(folders: Path, monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Has the host answer with what that line of a shell does."""
    tools = folders / "bin"
    (tools / "hosts").mkdir(parents=True)
    ssh = tools / "ssh"
    # The host is what follows `--`.
    ssh.write_text(
        f"#!/bin/sh\nprintf '%s\\n' \"$*\" >> {tools}/asked\n"
        'while [ "$1" != -- ]; do shift; done\n'
        f'[ -e {tools}/hosts/"$2" ] || {{ echo "ssh: no $2" >&2; exit 255; }}\n'
        f'. {tools}/hosts/"$2"\n'
    )
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")

    def answers(host: str, line: str) -> None:
        (tools / "hosts" / host).write_text(line + "\n")

    return answers


def prints(folders: Path, content: object) -> str:
    """A line of a shell that prints it."""
    file = folders / f"answer-{len(list(folders.iterdir()))}"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return f"cat {shlex.quote(str(file))}"


def test_jobs_of_all_hosts_are_in_one_table(
    program: Program, folders: Path, answer: Answer
) -> None:
    few = report_of(*example_report().snapshot.jobs[:1])
    answer("gpu-1", prints(folders, status()))
    answer("ann@gpu-2", prints(folders, as_json(node_status(few))))
    done = program("ps", "--host", "gpu-1,ann@gpu-2", "--host", "gpu-1")
    assert (done.exit_code, done.stderr) == (0, "")
    narrow = program("ps", "--host", "gpu-1", env={"COLUMNS": "90"})
    same_text("ps-hosts", f"{done.stdout}\n{narrow.stdout}")
    asked = (folders / "bin" / "asked").read_text().splitlines()
    assert len(asked) == 3
    for line in asked:
        assert "-o BatchMode=yes -o ConnectTimeout=10 " in line
        assert line.endswith(("-- gpu-1 dlsched ps --json", "-- ann@gpu-2 dlsched ps --json"))


def test_json_has_the_status_of_each_host(program: Program, folders: Path, answer: Answer) -> None:
    found = as_json(node_status(everything_report()))
    answer("a", prints(folders, found))
    done = program("ps", "--host", "a,b", "--json")
    assert done.exit_code == 3
    assert json.loads(done.stdout) == {"hosts": {"a": found}, "failed": {"b": "ssh: no b"}}


def test_a_host_that_fails_is_one_line(
    program: Program, folders: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "ANSWER_BYTES", 1 << 20)
    deep = "[" * 100_000
    answers = {
        "ok": prints(folders, status()),
        "daemonless": "echo banner >&2; echo 'error: no daemon answers' >&2; exit 3",
        "mute": "exit 7",
        "loud": f"printf '%s\\n' {shlex.quote(HOSTILE.replace(chr(10), ' '))} >&2; exit 255",
        "endless": "yes",
        "no-json": "echo hello",
        "list": "echo []",
        "deep": prints(folders, deep),
        "version": prints(folders, {**status(), "schema_version": 99}),
        "keys": prints(folders, {**status(), "jobs": "none"}),
        "nan": prints(folders, {**status(), "given": float("nan")}),
        "large": prints(folders, {**status(), "given": 10**400}),
        "float": prints(folders, '{"schema_version": 1e999}'),
        "text": prints(folders, {**status(), "alarms": ["x" * 5000]}),
    }
    for host, line in answers.items():
        answer(host, line)
    done = program("ps", "--host", ",".join(answers))
    assert done.exit_code == 3
    lines = dict(line.split(": ", 1) for line in done.stderr.splitlines())
    assert list(lines) == [host for host in answers if host != "ok"]
    assert lines["daemonless"] == "no daemon answers"
    assert lines["mute"] == "ssh ended with exit code 7, without a message"
    assert lines["endless"] == "the host's answer is longer than 1 MiB"
    assert "another version" in lines["version"]
    assert "jobs has the value 'none'" in lines["keys"]
    for host in ("no-json", "list", "deep", "nan", "large", "float", "text"):
        assert lines[host].startswith("the host's answer is not a status: "), host
    assert not {"\x1b", "\x07", "\u202e"} & set(done.output)
    assert "ok: policy dqoes | " in done.stdout


@pytest.mark.long
def test_a_host_that_hangs_is_one_line(
    program: Program, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "ANSWER_S", 2.0)
    answer("hung", "exec sleep 600")
    done = program("ps", "--host", "hung")
    assert (done.exit_code, done.stderr) == (3, "hung: no answer within 2 s\n")


def test_hosts_are_asked_at_the_same_time(program: Program, folders: Path, answer: Answer) -> None:
    shown = prints(folders, status())
    for host, other in (("a", "b"), ("b", "a")):
        meets = f"touch {folders}/{host}; until [ -e {folders}/{other} ]; do sleep 0.1; done"
        answer(host, f"{meets}; {shown}")
    done = program("ps", "--host", "a,b")
    assert (done.exit_code, done.stderr) == (0, "")


def hostile(value: Any, number: float, text: str) -> Any:
    """The same with other numbers and texts."""
    if isinstance(value, dict):
        kept = {key: value[key] for key in ("kind", "schema_version") if key in value}
        return {**{key: hostile(one, number, text) for key, one in value.items()}, **kept}
    if isinstance(value, list):
        return [hostile(one, number, text) for one in value]
    if isinstance(value, str):
        return text
    return value if value is None or isinstance(value, bool) else type(value)(number)


@pytest.mark.parametrize("number", [-1e15, 0.0, 1e15])
def test_hostile_numbers_and_texts_are_shown_and_steer_no_terminal(
    program: Program, folders: Path, answer: Answer, number: float
) -> None:
    found = as_json(node_status(everything_report()))
    answer("a", prints(folders, hostile(found, number, HOSTILE)))
    done = program("ps", "--host", "a")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "gone" in done.stdout
    assert not {"\x1b", "\x07", "\u202e"} & set(done.stdout)


@pytest.mark.parametrize(
    "given", ["-oProxyCommand=x", "a,-l", "ann@-x", "", "a b", "a;b", "a\nb", "$(x)", "a,,b"]
)
def test_a_name_that_is_no_host_is_refused(
    program: Program, folders: Path, answer: Answer, given: str
) -> None:
    done = program("ps", f"--host={given}")
    assert done.exit_code == 2
    assert "is not a host's name" in done.stderr
    assert not (folders / "bin" / "asked").exists()


def test_too_many_hosts_are_refused(program: Program) -> None:
    many = ",".join(f"h{number}" for number in range(hosts.HOSTS_MAX + 1))
    assert "257 hosts, must be at most 256" in program("ps", "--host", many).stderr


def test_without_ssh_it_says_so(
    program: Program, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(folders))
    done = program("ps", "--host", "a")
    assert done.exit_code == 1
    assert done.stderr == "error: ssh cannot be started: No such file or directory\n"
