"""The operator's command, as real processes: who it is, what it finds, and how it ends."""

from __future__ import annotations

import errno
import logging
import os
import pwd
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dlsched.config.settings import DeliverHook
from dlsched.daemon import hook as hook_module
from dlsched.daemon.hook import OUTPUT_BYTES, PATH, QUEUE_MOST, Hook, environment
from dlsched.model.cycle import HookRun
from dlsched.model.errors import SettingsError
from dlsched.model.facts import CheckpointAck
from dlsched.model.state import Delivered, Reached, Tiers
from tests.torture.kernel import lives
from tests.waiting import until

WORD = Delivered(
    name="lenet",
    container_id="c0ffee" * 10,
    metric="accuracy",
    deliver=0.9,
    finish=0.97,
    tiers=Tiers(Reached(5.0, 0.93, 500)),
    checkpoint=CheckpointAck(480, "/ckpt/480"),
)
ENVIRONMENT = {
    "PATH": PATH,
    "DLSCHED_JOB": "lenet",
    "DLSCHED_METRIC": "accuracy",
    "DLSCHED_VALUE": "0.93",
    "DLSCHED_STEP": "500",
    "DLSCHED_DELIVER": "0.9",
    "DLSCHED_CONTAINER": "c0ffee" * 10,
    "DLSCHED_CHECKPOINT_PATH": "/ckpt/480",
    "DLSCHED_CHECKPOINT_STEP": "480",
}
Make = Callable[..., Hook]

pytestmark = pytest.mark.process
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def hooks() -> Iterator[Make]:
    made: list[Hook] = []

    def make(*command: str, timeout_s: float = 20.0, user: str = "nobody") -> Hook:
        made.append(Hook(DeliverHook(command, user, timeout_s)))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that nobody can write to a file in; its parents are pytest's own."""
    folder = tmp_path_factory.mktemp("hook")
    for each in (folder, *folder.parents):
        if each.owner() == "root" and each != Path("/"):
            each.chmod(each.stat().st_mode | 0o011)
    folder.chmod(0o777)
    return folder


def runs(hook: Hook, count: int = 1) -> list[HookRun]:
    ended: list[HookRun] = []

    def all_ended() -> bool:
        ended.extend(hook.ended())
        return len(ended) >= count

    until(all_ended, f"{count} runs", shown=lambda: ended)
    return ended


def run_of(hook: Hook) -> HookRun:
    """What becomes of one delivery."""
    hook.offer(WORD)
    (run,) = runs(hook)
    return run


def appears(file: Path) -> str:
    until(lambda: file.exists() and file.read_text().endswith("\n"), f"a line in {file}")
    return file.read_text()


def ends(pid: int) -> None:
    until(lambda: not lives(pid), f"the end of {pid}")


# ---------------------------------------------------------------------- who and what


def output(hook: Hook, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What one run of it says."""
    caplog.set_level(logging.INFO)
    run = run_of(hook)
    assert run.status == "done", run.detail
    (line,) = [one for one in caplog.messages if "deliver_hook" in one]
    return line.partition(" s: ")[2].splitlines()


@needs_root
def test_its_environment_is_that_and_nothing_of_the_agents(
    hooks: Make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    said = output(hooks("/usr/bin/env"), caplog)
    assert sorted(said) == sorted(f"{key}={value}" for key, value in ENVIRONMENT.items())


@needs_root
def test_it_runs_as_that_user_alone_and_no_shell_reads_its_words(
    hooks: Make, caplog: pytest.LogCaptureFixture
) -> None:
    with Path("/dev/null").open() as null:
        kept = os.dup2(null.fileno(), 100, inheritable=True)
    script = (
        'id -u; id -g; id -G; umask; pwd; readlink /proc/$$/fd/0; echo /proc/$$/fd/*; echo "$@"'
    )
    said = output(hooks("/bin/sh", "-c", script, "sh", "; exit 7", "$(id)"), caplog)
    os.close(kept)
    user = pwd.getpwnam("nobody")
    who, umask, where = said[:3], said[3], said[4:6]
    assert who == [str(user.pw_uid), str(user.pw_gid), str(user.pw_gid)]
    assert (umask, where) == ("0077", ["/", "/dev/null"])
    # The shell has the folder open while it lists it.
    assert [fd.rpartition("/")[2] for fd in said[6].split()] in (["0", "1", "2"], [*"0123"])
    assert said[7] == "; exit 7 $(id)"


def test_what_is_not_known_is_not_there() -> None:
    bare = replace(WORD, tiers=Tiers(Reached(5.0, 0.93)), checkpoint=None)
    left_out = ("DLSCHED_STEP", "DLSCHED_CHECKPOINT_PATH", "DLSCHED_CHECKPOINT_STEP")
    assert environment(bare) == {k: v for k, v in ENVIRONMENT.items() if k not in left_out}


@pytest.mark.parametrize(
    "path",
    ["/a\nDLSCHED_JOB=b", "/a\x1b[2J", "/a\0b", "/a\u202eb", "/\udc80", "", "/" + "a" * 2000],
)
def test_a_hostile_checkpoint_path_is_left_out(path: str) -> None:
    told = environment(replace(WORD, checkpoint=CheckpointAck(480, path)))
    assert not any(key.startswith("DLSCHED_CHECKPOINT") for key in told)


def test_only_root_may_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SettingsError) as caught:
        Hook(DeliverHook(("/bin/true",)))
    assert (
        str(caught.value)
        == "deliver_hook: only root can run the command as user nobody: dlsched runs as uid 1000"
    )
    assert not Hook(DeliverHook()).wanted


# ---------------------------------------------------------------------- how it ends


@needs_root
@pytest.mark.parametrize(
    ("command", "status", "detail"),
    [
        (("/bin/true",), "done", "exit code 0 after "),
        (("/bin/sh", "-c", "exit 3"), "failed", "exit code 3 after "),
        (("/bin/sh", "-c", "kill -9 $$"), "failed", "killed by signal 9 after "),
        (
            ("/no/such/program",),
            "unstarted",
            "the command cannot start as user nobody: No such file",
        ),
        (
            ("/etc/passwd",),
            "unstarted",
            "the command cannot start as user nobody: Permission denied",
        ),
    ],
)
def test_what_became_of_it_is_told(
    hooks: Make, command: tuple[str, ...], status: str, detail: str
) -> None:
    run = run_of(hooks(*command))
    assert (run.delivered, run.status) == (WORD, status)
    assert run.detail.startswith(detail)


@needs_root
@pytest.mark.parametrize(
    ("user", "why"),
    [("no-such-user", "there is no user of that name"), ("root", "the user is root")],
)
def test_a_user_that_is_gone_or_became_root_runs_nothing(hooks: Make, user: str, why: str) -> None:
    run = run_of(hooks("/bin/true", user=user))
    assert (run.status, run.detail) == (
        "unstarted",
        f"the command cannot start as user {user}: {why}",
    )


@needs_root
def test_a_host_that_lets_no_one_change_groups_is_said(
    hooks: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(hook_module.subprocess, "Popen", refuse)
    run = run_of(hooks("/bin/true"))
    assert run.status == "unstarted"
    assert run.detail.endswith("dlsched may not change its user and groups on this host")


@pytest.mark.long
@needs_root
def test_the_time_limit_kills_it_with_all_that_it_started(hooks: Make, place: Path) -> None:
    script = f"(trap '' TERM HUP; sleep 1000) & echo $! > {place}/child; wait"
    hook = hooks("/bin/sh", "-c", script, timeout_s=5.0)
    hook.offer(WORD)
    child = int(appears(place / "child"))
    (run,) = runs(hook)
    assert (run.status, run.detail) == ("failed", "killed after 5 s")
    ends(child)


@needs_root
def test_what_it_leaves_behind_ends_with_it_and_is_not_waited_for(hooks: Make, place: Path) -> None:
    run = run_of(hooks("/bin/sh", "-c", f"sleep 1000 & echo $! > {place}/child"))
    assert run.status == "done"
    ends(int(appears(place / "child")))


@needs_root
def test_the_agents_end_kills_it(hooks: Make, place: Path) -> None:
    hook = hooks("/bin/sh", "-c", f"sleep 1000 & echo $! > {place}/child; wait")
    hook.offer(WORD)
    hook.offer(replace(WORD, name="later"))
    child = int(appears(place / "child"))
    hook.close()
    ends(child)
    (run,) = hook.ended()
    assert (run.delivered.name, run.status) == ("lenet", "aborted")


@pytest.mark.long
@needs_root
@pytest.mark.parametrize("writer", ["yes", "yes & exec true"])
def test_a_flood_of_output_neither_holds_it_up_nor_fills_the_log(
    hooks: Make, caplog: pytest.LogCaptureFixture, writer: str
) -> None:
    caplog.set_level(logging.INFO)
    run = run_of(hooks("/bin/sh", "-c", writer, timeout_s=5.0 if writer == "yes" else 20.0))
    assert run.status == ("failed" if writer == "yes" else "done")
    (line,) = [one for one in caplog.messages if "deliver_hook" in one]
    assert len(line) < OUTPUT_BYTES + 200
    if writer == "yes":
        assert line.count("y") > OUTPUT_BYTES // 2 - 10


@needs_root
def test_its_output_is_logged_at_the_level_of_its_end(
    hooks: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    run_of(hooks("/bin/sh", "-c", "echo out; echo err >&2; exit 1"))
    (record,) = [one for one in caplog.records if "deliver_hook" in one.getMessage()]
    assert record.levelno == logging.WARNING
    assert record.getMessage().endswith(": out\nerr")


# ---------------------------------------------------------------------- the queue


@needs_root
def test_one_runs_at_a_time_in_the_order_offered(hooks: Make, place: Path) -> None:
    script = f"echo begin $DLSCHED_JOB >> {place}/log; echo end $DLSCHED_JOB >> {place}/log"
    hook = hooks("/bin/sh", "-c", script)
    names = [f"job-{n}" for n in range(5)]
    for name in names:
        hook.offer(replace(WORD, name=name))
    assert [run.delivered.name for run in runs(hook, 5)] == names
    assert (place / "log").read_text().split("\n")[:-1] == [
        f"{what} {name}" for name in names for what in ("begin", "end")
    ]


@needs_root
def test_a_full_queue_says_so(hooks: Make) -> None:
    hook = hooks("/bin/sleep", "1000")
    taken = [hook.offer(replace(WORD, name=f"job-{n}")) for n in range(QUEUE_MOST + 2)]
    assert taken[:QUEUE_MOST] == [True] * QUEUE_MOST
    assert taken[-1] is False


@needs_root
def test_another_command_holds_from_the_next_run_on(hooks: Make) -> None:
    hook = hooks("/bin/false")
    run_of(hook)
    hook.use(DeliverHook(("/bin/true",)))
    assert run_of(hook).status == "done"


@needs_root
def test_what_still_waits_when_no_command_is_wanted_any_more_is_done(
    hooks: Make, place: Path
) -> None:
    hook = hooks(
        "/bin/sh", "-c", f"echo began > {place}/first; until [ -e {place}/go ]; do :; done"
    )
    hook.offer(WORD)
    hook.offer(replace(WORD, name="later"))
    appears(place / "first")
    hook.use(DeliverHook())
    (place / "go").touch()
    assert [(run.delivered.name, run.status, run.detail) for run in runs(hook, 2)][1] == (
        "later",
        "done",
        "no command was run: the setting deliver_hook has none any more",
    )


@needs_root
def test_a_run_that_ends_wakes_the_loop() -> None:
    woken: list[str] = []
    hook = Hook(DeliverHook(("/bin/true",)), woken.append)
    run_of(hook)
    hook.close()
    assert woken == ["hook of lenet: done"]


@needs_root
def test_a_host_without_a_thread_to_spare_is_asked_again(
    hooks: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    hook = hooks("/bin/true")
    with monkeypatch.context() as patched:
        patched.setattr(hook_module.threading.Thread, "start", refuse)
        assert not hook.offer(WORD)
    assert run_of(hook).status == "done"


@needs_root
def test_what_the_agent_itself_lacks_is_no_end_of_the_command(
    hooks: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []

    def refuse(pid: int) -> int:
        begun.append(pid)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(hook_module.os, "pidfd_open", refuse)
    run = run_of(hooks("/bin/sleep", "1000"))
    assert (run.status, run.detail) == ("unstarted", "OSError: [Errno 24] Too many open files")
    assert not Path(f"/proc/{begun[0]}").exists()
