"""What the doctor finds on a machine without an engine, and beside a daemon."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from dlsched.cli.commands.doctor import CHANGED, READ
from dlsched.runtime.originals import Original, Originals
from dlsched.store.jobs import lock_state_dir
from tests.cli.conftest import Program
from tests.nvml.library import Stub
from tests.nvml.scenario import Failure, Gpu, Scenario
from tests.status_source import FakeSource

pytestmark = pytest.mark.timed


def findings(program: Program, *words: str) -> dict[str, tuple[str, str]]:
    told = json.loads(program("doctor", "-o", "json", *words).stdout)
    return {one["what"]: (one["state"], f"{one['line']} {one['remedy']}") for one in told}


@pytest.fixture(autouse=True)
def no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent.sock")


def test_an_engine_that_does_not_answer_fails_with_a_remedy(program: Program) -> None:
    result = program("doctor")
    assert result.exit_code == 1
    line = next(line for line in result.stdout.splitlines() if " engine " in line)
    assert line.startswith("fail")
    assert "absent.sock" in line
    assert "start Docker (systemctl start docker)" in line


def test_wrong_settings_are_a_finding(program: Program, tmp_path: Path) -> None:
    file = tmp_path / "dlsched.yaml"
    file.write_text("period: 0s\n")
    result = program("doctor", "-c", str(file))
    assert result.exit_code == 1
    assert f"{file}:1:" in result.stdout


def test_every_policy_of_the_settings_is_loaded_with_its_options(
    program: Program, tmp_path: Path
) -> None:
    file = tmp_path / "dlsched.yaml"
    file.write_text(
        "policy: nonsense\nshadow: nope\ncluster: {policy: spread, policy_options: {x: 1}}\n"
    )
    told = json.loads(program("doctor", "-o", "json", "-c", str(file)).stdout)
    lines = [(one["state"], one["line"]) for one in told if one["what"] == "policy"]
    for (state, line), start in zip(
        lines,
        (
            "no policy 'nonsense'; known are adaptive, dqoes",
            "shadow: no policy 'nope'; known are adaptive, dqoes",
            "cluster.policy: policy spread: no parameter 'x'",
        ),
        strict=True,
    ):
        assert state == "fail"
        assert line.startswith(start)


@pytest.mark.parametrize(
    ("policy", "state"), [("adaptive", "ok"), ("dqoes", "warn"), ("dqoes-published", "warn")]
)
def test_a_policy_that_open_loops_queue_up_under_says_so(
    program: Program, monkeypatch: pytest.MonkeyPatch, policy: str, state: str
) -> None:
    monkeypatch.setenv("DLSCHED_POLICY", policy)
    found, line = findings(program)["policy"]
    assert found == state
    assert ("queue up without bound" in line and "mode slo" in line) is (state == "warn")


def test_folders(program: Program, folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert findings(program)["watch"] == ("ok", f"{folders}/jobs.d: 0 entries ")
    monkeypatch.setenv("DLSCHED_WATCH", str(folders / "absent"))
    state, line = findings(program)["watch"]
    assert (state, f"mkdir -p {folders}/absent" in line) == ("warn", True)
    (folders / "file").write_text("")
    monkeypatch.setenv("DLSCHED_WATCH", str(folders / "file"))
    assert findings(program)["watch"][0] == "fail"


def test_a_daemon_that_answers(program: Program, daemon: FakeSource) -> None:
    found = findings(program)
    assert found["daemon"] == ("ok", "version 0.1.0, pid 4711, policy dqoes ")
    assert "lock" not in found


def test_who_may_read_what(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    assert findings(program)["listen"] == ("ok", "null: no TCP port is open ")
    monkeypatch.setenv("DLSCHED_LISTEN", "[::1]:9819")
    monkeypatch.setenv("DLSCHED_STATUS_GROUP", "null")
    monkeypatch.setenv("DLSCHED_CONTROL_GROUP", "null")
    told = [
        one["line"]
        for one in json.loads(program("doctor", "-o", "json").stdout)
        if one["what"] in ("sockets", "listen")
    ]
    assert told == [
        f"status.sock: not there now; while the daemon runs, it is for root only ({READ})",
        f"control.sock: not there now; while the daemon runs, it is for root only ({CHANGED})",
        "[::1]:9819: every user of this host may read status, reasons, history and metrics",
    ]


def test_no_daemon_and_a_free_lock(program: Program) -> None:
    found = findings(program)
    assert found["daemon"][0] == "warn"
    assert found["lock"] == ("ok", "free ")


def test_a_lock_without_an_answer_is_a_daemon_in_trouble(program: Program, folders: Path) -> None:
    with lock_state_dir(folders / "state", "default"):
        state, line = findings(program)["lock"]
    assert state == "fail"
    assert "instance default" in line


def test_limits_that_a_killed_daemon_left(program: Program, folders: Path) -> None:
    originals = Originals(folders / "state")
    assert "limits" not in findings(program)
    originals.secure(Original("a" * 64, "job", adopted=True))
    state, line = findings(program)["limits"]
    assert state == "warn"
    assert line.startswith("the limits of 1 container are still as dlsched set them `dlsched rel")


def test_what_this_user_may_not_read_hides_no_other_check(
    program: Program, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.exists

    def exists(path: Path) -> bool:
        if path.name == "journal.db":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path)

    every = findings(program).keys()
    monkeypatch.setattr(Path, "exists", exists)
    found = findings(program)
    assert found["journal"] == (
        "warn",
        f"{folders}/state/journal.db: Permission denied run `dlsched doctor` as the daemon's user",
    )
    assert found.keys() == every


def test_the_journal(program: Program, folders: Path) -> None:
    assert "does not exist yet" in findings(program)["journal"][1]
    (folders / "state" / "journal.db").write_bytes(b"no database at all" * 100)
    assert findings(program)["journal"][0] == "warn"


def test_colour_is_never_forced(program: Program) -> None:
    assert "\x1b" not in program("doctor", color=True, env={"NO_COLOR": "1"}).stdout
    assert "\x1b[31m" in program("doctor", color=True, env={"NO_COLOR": None}).stdout


def test_host_and_sockets_are_looked_at_and_the_probe_needs_an_engine(program: Program) -> None:
    found = findings(program)
    looked_at = {
        "burst",
        "idle",
        "pressure",
        "files",
        "state",
        "run",
        "sockets",
    }
    assert looked_at <= found.keys()
    assert found["probe"][1].startswith("skipped: there is no engine")


@pytest.mark.engine
def test_on_a_real_engine(
    program: Program, docker_host: str, base_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    found = findings(program)
    assert [found[what][0] for what in ("engine", "cgroup", "quota", "nano")] == ["ok"] * 4
    skipped = findings(program, "--no-probe")
    assert "quota" not in skipped
    assert skipped["probe"] == ("ok", "skipped, as --no-probe says ")


def test_a_host_without_gpus(program: Program) -> None:
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("this host has an NVIDIA driver")
    assert findings(program)["gpu"] == ("ok", "none: no NVIDIA driver on this host ")


def test_gpus_are_told_also_without_an_engine(program: Program, nvml: Stub) -> None:
    nvml.show(Scenario((Gpu("GPU-a"), Gpu("GPU-b", minor=1)), (Failure("*", 15, "GPU-b"),)))
    told = json.loads(program("doctor", "-o", "json").stdout)
    lines = [one["line"] for one in told if one["what"] == "gpu"]
    assert any(line.startswith("driver 550.54.15; reading its GPUs takes") for line in lines)
    assert any(line.startswith("GPU 1: fell off the bus") for line in lines)
    assert any("NVIDIA A100-SXM4-40GB, 40 GiB, GPU-a" in line for line in lines)
    assert any("MPS does not run" in line for line in lines)
