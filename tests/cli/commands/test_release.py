"""release: through a daemon, from the records without one, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dlsched.runtime.docker.instance import DockerOptions
from dlsched.runtime.docker.limits import writer
from dlsched.runtime.machine.outcomes import GivenBack
from dlsched.runtime.originals import Original, Originals
from dlsched.store.jobs import lock_state_dir
from tests.cli.conftest import Program
from tests.status_source import FakeSource

OWN = {
    "job": "digits",
    "container_id": "a" * 64,
    "adopted": False,
    "now": "1 cores (period 100000 us), shares 1024",
    "failure": None,
}
FAILED = {
    "job": "their\x1b[2Js",
    "container_id": "b" * 64,
    "adopted": True,
    "now": "",
    "failure": "the engine does not answer",
}
LINE = "digits (job aaaaaaaaaaaa): 1 cores (period 100000 us), shares 1024\n"


@pytest.mark.timed
def test_a_daemon_is_asked_where_one_holds_the_lock(
    program: Program, daemon: FakeSource, folders: Path
) -> None:
    daemon.given_back = [OWN]
    with lock_state_dir(folders / "state", "default"):
        done = program("release")
    assert (done.exit_code, done.stdout) == (0, LINE)
    assert daemon.asked == [("release",)]


@pytest.mark.timed
def test_what_fails_is_told_in_one_clean_line_and_makes_it_1(
    program: Program, daemon: FakeSource, folders: Path
) -> None:
    daemon.given_back = [OWN, FAILED]
    with lock_state_dir(folders / "state", "default"):
        done = program("release")
        told = program("release", "-o", "json")
    assert done.exit_code == told.exit_code == 1
    assert done.stdout == LINE + (
        "theirs (adopted bbbbbbbbbbbb): not read; FAILED: the engine does not answer\n"
    )
    assert json.loads(told.stdout) == {"containers": [OWN, FAILED]}


@pytest.mark.timed
def test_resume_asks_the_daemon(program: Program, daemon: FakeSource) -> None:
    done = program("release", "--resume")
    assert (done.exit_code, done.stdout, done.stderr) == (
        0,
        "",
        "resumed: the daemon sets limits again\n",
    )
    assert daemon.asked == [("resume",)]


@pytest.mark.timed
def test_a_daemon_that_does_not_answer_is_3(program: Program, folders: Path) -> None:
    with lock_state_dir(folders / "state", "default"):
        done = program("release")
    assert (done.exit_code, done.stdout) == (3, "")
    assert done.stderr.startswith("error: no daemon answers on ")


def test_without_a_daemon_it_is_done_here_under_the_lock(
    program: Program, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[DockerOptions] = []

    def release_all(options: DockerOptions) -> tuple[GivenBack, ...]:
        seen.append(options)
        with pytest.raises(Exception, match="already uses"):
            lock_state_dir(options.state_dir, "default")
        return (GivenBack(**OWN),)  # type: ignore[arg-type]

    monkeypatch.setattr(writer, "release_all", release_all)
    monkeypatch.setenv("DLSCHED_ENGINE_HOST", "unix:///nowhere.sock")
    done = program("release")
    assert (done.exit_code, done.stdout) == (0, LINE)
    (options,) = seen
    assert (options.state_dir, options.host) == (folders / "state", "unix:///nowhere.sock")
    lock_state_dir(folders / "state", "default").release()


@pytest.mark.timed
def test_unattended_an_engine_is_missed_only_where_a_container_lacks_something(
    program: Program, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLSCHED_ENGINE_HOST", f"unix://{folders}/nobody.sock")
    done = program("release", "--unattended")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "no container has limits set by dlsched\n"
    Originals(folders / "state").secure(Original("a" * 64, "asr", adopted=True))
    done = program("release", "--unattended")
    assert (done.exit_code, done.stdout) == (3, "")
    assert "no answer from the Docker Engine" in done.stderr


def test_where_dlsched_never_ran_there_is_nothing_to_do(program: Program, folders: Path) -> None:
    (folders / "state").rmdir()
    done = program("release")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "no container has limits set by dlsched\n"
    assert not (folders / "state").exists()


@pytest.mark.timed
def test_unattended_a_daemon_that_runs_is_left_alone(
    program: Program, daemon: FakeSource, folders: Path
) -> None:
    with lock_state_dir(folders / "state", "default"):
        done = program("release", "--unattended")
    assert (done.exit_code, done.stdout, daemon.asked) == (0, "", [])
    assert done.stderr.startswith("nothing was given back: the agent of instance default (process ")
    assert done.stderr.count("\n") == 1
