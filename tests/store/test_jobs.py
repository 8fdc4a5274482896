"""Durable records of ended and delivered jobs, and the lock on the state directory."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.model.errors import AlreadyRunning
from dlsched.model.spec import NAME
from dlsched.model.state import Ended
from dlsched.store.jobs import ended_records, lock_state_dir
from dlsched.store.records import Records
from tests.doubles import texts

DONE = Ended("face-unlock", "d1", "finished", "exit 0", 0, "2026-01-01T00:00:00Z", 12.5)


@pytest.fixture
def records(tmp_path: Path) -> Records[Ended]:
    return ended_records(tmp_path)


def test_a_record_outlasts_the_agent_until_it_is_replaced_or_lifted(
    records: Records[Ended], tmp_path: Path
) -> None:
    records.record(DONE)
    again = ended_records(tmp_path)
    assert again.of("face-unlock") == DONE
    assert again.all() == {"face-unlock": DONE}
    assert (again.of("other"), again.alarms) == (None, ())
    path = tmp_path / "ended" / "face-unlock.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640, "not for everybody"
    stopped = Ended("face-unlock", "d2", "stopped")
    records.record(stopped)
    assert ended_records(tmp_path).of("face-unlock") == stopped
    records.lift("face-unlock")
    records.lift("face-unlock")
    assert ended_records(tmp_path).all() == {}


def test_a_record_that_is_lifted_while_others_are_read_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended_records(tmp_path).record(DONE)
    listed = [*(tmp_path / "ended").iterdir(), tmp_path / "ended" / "gone.json"]
    monkeypatch.setattr(Path, "iterdir", lambda _: iter(listed))
    again = ended_records(tmp_path)
    assert (dict(again.all()), again.alarms) == ({"face-unlock": DONE}, ())


@given(st.builds(
    Ended,
    name=st.from_regex(NAME, fullmatch=True),
    digest=st.text(),
    kind=st.sampled_from(["finished", "failed", "stopped"]),
    detail=st.text(),
    exit_code=st.none() | st.integers(0, 255),
    wall_time=st.text(),
    attained_core_s=st.floats(0, 1e12),
))  # fmt: skip
def test_any_record_reads_back_the_same(
    tmp_path_factory: pytest.TempPathFactory, ended: Ended
) -> None:
    folder = tmp_path_factory.mktemp("state")
    ended_records(folder).record(ended)
    assert ended_records(folder).all() == {ended.name: ended}


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff", b'{"name": "other", "digest": "", "kind": "finished"}',
     b'{"name": "ab", "digest": "", "kind": "gone"}', b'{"name": "ab", "digest": 3}'],
)  # fmt: skip
def test_a_broken_record_is_moved_aside_and_told(tmp_path: Path, content: bytes) -> None:
    ended_records(tmp_path).record(DONE)
    (tmp_path / "ended" / "ab.json").write_bytes(content)
    records = ended_records(tmp_path)
    assert records.all() == {"face-unlock": DONE}
    (trouble,) = texts(records.alarms)
    assert trouble.endswith("moved to ab.json.broken; a job that had ended may run once more")
    assert (tmp_path / "ended" / "ab.json.broken").read_bytes() == content
    assert ended_records(tmp_path).alarms == ()


def test_what_a_power_cut_left_half_written_is_cleared(tmp_path: Path) -> None:
    ended_records(tmp_path).record(DONE)
    half = tmp_path / "ended" / ".face-unlock.json.x.tmp"
    half.write_text("{")
    assert ended_records(tmp_path).of("face-unlock") == DONE
    assert not half.exists()


@pytest.fixture
def refusing(records: Records[Ended], tmp_path: Path) -> Path:
    """The records' folder, gone as the disk that refuses them; make it for one that takes them."""
    folder = tmp_path / "ended"
    folder.rmdir()
    with pytest.raises(OSError, match="No such file"):
        records.record(DONE)
    return folder


def test_what_a_disk_refuses_counts_and_is_written_later(
    records: Records[Ended], tmp_path: Path, refusing: Path
) -> None:
    assert records.of("face-unlock") == DONE
    with pytest.raises(OSError, match="No such file"):
        records.write_again()
    with pytest.raises(OSError, match="No such file"):
        records.secure(Ended("other", "d1", "stopped"))
    assert records.of("other") is None, "on the disk or not at all"
    refusing.mkdir()
    records.write_again()
    assert ended_records(tmp_path).of("face-unlock") == DONE


def test_a_refused_word_that_was_lifted_is_not_written_again(
    records: Records[Ended], tmp_path: Path, refusing: Path
) -> None:
    refusing.mkdir()
    records.lift("face-unlock")
    records.write_again()
    assert ended_records(tmp_path).all() == {}


def test_a_name_that_is_none_never_becomes_a_path(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot name a record"):
        ended_records(tmp_path).record(Ended("../../etc/x", "", "failed"))


@pytest.mark.timed
def test_records_may_be_used_from_many_threads(tmp_path: Path) -> None:
    records = ended_records(tmp_path)

    def work(number: int) -> None:
        for _ in range(5):
            records.record(Ended(f"job-{number}", "d", "finished"))
            records.lift(f"job-{number}")
        records.record(Ended(f"job-{number}", "d", "finished"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert ended_records(tmp_path).all() == records.all()
    assert len(records.all()) == 8


# ---------------------------------------------------------------------------------- the lock


def test_a_second_agent_is_told_of_the_first(tmp_path: Path) -> None:
    state_dir = tmp_path / "dlsched" / "controller"
    with lock_state_dir(state_dir, "default"):
        with pytest.raises(AlreadyRunning) as caught:
            lock_state_dir(state_dir, "default")
        assert str(caught.value) == (
            f"the agent of instance default (process {os.getpid()}) already uses the state "
            f"directory {state_dir}"
        )
    lock_state_dir(state_dir, "default").release()
    made = (state_dir / "lock", state_dir, state_dir.parent)
    assert [one.stat().st_mode & 0o027 for one in made] == [0] * 3, "not for other users"


def test_an_agent_that_has_not_said_who_it_is_still_holds(tmp_path: Path) -> None:
    with lock_state_dir(tmp_path, "default"):
        (tmp_path / "lock").write_text("")
        with pytest.raises(AlreadyRunning, match="an agent that is just starting"):
            lock_state_dir(tmp_path, "default")


def test_releasing_twice_harms_nobody(tmp_path: Path) -> None:
    lock = lock_state_dir(tmp_path, "a")
    lock.release()
    with lock_state_dir(tmp_path, "b"):
        lock.release()
        with pytest.raises(AlreadyRunning, match="instance b"):
            lock_state_dir(tmp_path, "c")


@pytest.mark.process
def test_a_killed_agent_leaves_no_lock(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from dlsched.store.jobs import lock_state_dir\n"
        "lock = lock_state_dir(pathlib.Path(sys.argv[1]), 'x'); print('held', flush=True)\n"
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"held\n"
        with pytest.raises(AlreadyRunning, match=f"process {first.pid}"):
            lock_state_dir(tmp_path, "x")
        first.send_signal(signal.SIGKILL)
        first.wait()
        lock_state_dir(tmp_path, "x").release()
