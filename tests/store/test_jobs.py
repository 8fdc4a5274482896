"""Durable records of ended and delivered jobs, and the lock on the state directory."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.model.errors import AlreadyRunning
from dlsched.model.facts import CheckpointAck
from dlsched.model.spec import NAME
from dlsched.model.state import Delivered, Ended, Reached, Tiers
from dlsched.store.jobs import delivered_records, ended_records, lock_state_dir
from tests.doubles import texts

DONE = Ended("face-unlock", "d1", "finished", "exit 0", 0, "2026-01-01T00:00:00Z", 12.5)


def test_a_new_state_directory_is_not_for_other_users(tmp_path: Path) -> None:
    state_dir = tmp_path / "dlsched" / "controller"
    lock_state_dir(state_dir, "default").release()
    assert [one.stat().st_mode & 0o027 for one in (state_dir, state_dir.parent)] == [0, 0]


def test_a_record_outlasts_the_agent(tmp_path: Path) -> None:
    ended_records(tmp_path).record(DONE)
    again = ended_records(tmp_path)
    assert again.of("face-unlock") == DONE
    assert again.all() == {"face-unlock": DONE}
    assert again.of("other") is None
    assert again.alarms == ()


def test_a_later_record_replaces_and_lift_forgets(tmp_path: Path) -> None:
    records = ended_records(tmp_path)
    records.record(DONE)
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


@given(st.builds(
    Delivered,
    name=st.from_regex(NAME, fullmatch=True),
    container_id=st.text(),
    metric=st.text(),
    deliver=st.floats(allow_nan=False, allow_infinity=False),
    finish=st.floats(allow_nan=False, allow_infinity=False),
    tiers=st.builds(
        Tiers,
        st.builds(Reached, st.floats(0, 1e12), st.floats(-1e100, 1e100), st.none() | st.integers()),
    ),
    checkpoint=st.none() | st.builds(CheckpointAck, st.integers(0), st.text()),
    told=st.booleans(),
))  # fmt: skip
def test_any_delivery_reads_back_the_same(
    tmp_path_factory: pytest.TempPathFactory, word: Delivered
) -> None:
    folder = tmp_path_factory.mktemp("state")
    delivered_records(folder).record(word)
    assert delivered_records(folder).all() == {word.name: word}
    assert ended_records(folder).all() == {}


def test_a_broken_delivery_is_moved_aside_and_told_with_what_it_means(tmp_path: Path) -> None:
    (tmp_path / "delivered").mkdir()
    (tmp_path / "delivered" / "ab.json").write_text('{"name": "ab", "tiers": 3}')
    (trouble,) = texts(delivered_records(tmp_path).alarms)
    assert trouble.endswith("moved to ab.json.broken; the delivery may be reported once more")


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
    assert "ab.json" in trouble
    assert (tmp_path / "ended" / "ab.json.broken").read_bytes() == content
    assert ended_records(tmp_path).alarms == ()


def test_what_a_power_cut_left_half_written_is_cleared(tmp_path: Path) -> None:
    ended_records(tmp_path).record(DONE)
    half = tmp_path / "ended" / ".face-unlock.json.x.tmp"
    half.write_text("{")
    assert ended_records(tmp_path).of("face-unlock") == DONE
    assert not half.exists()


def test_a_disk_that_refuses_is_said_and_the_word_holds(tmp_path: Path) -> None:
    records = ended_records(tmp_path)
    (tmp_path / "ended").rmdir()
    with pytest.raises(OSError, match="No such file"):
        records.record(DONE)
    assert records.of("face-unlock") == DONE
    with pytest.raises(OSError, match="No such file"):
        records.write_again()
    (tmp_path / "ended").mkdir()
    records.write_again()
    assert ended_records(tmp_path).of("face-unlock") == DONE


def test_what_must_be_on_the_disk_or_not_at_all_is_not_kept_where_that_refuses(
    tmp_path: Path,
) -> None:
    records = ended_records(tmp_path)
    (tmp_path / "ended").rmdir()
    with pytest.raises(OSError, match="No such file"):
        records.secure(DONE)
    assert records.of("face-unlock") is None


def test_a_refused_word_that_was_lifted_is_not_written_again(tmp_path: Path) -> None:
    records = ended_records(tmp_path)
    (tmp_path / "ended").rmdir()
    with pytest.raises(OSError, match="No such file"):
        records.record(DONE)
    (tmp_path / "ended").mkdir()
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

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ended_records(tmp_path).all() == records.all()
    assert len(records.all()) == 8


def test_records_are_not_for_everybody(tmp_path: Path) -> None:
    ended_records(tmp_path).record(DONE)
    mode = (tmp_path / "ended" / "face-unlock.json").stat().st_mode
    assert stat.S_IMODE(mode) == 0o640


# ---------------------------------------------------------------------------------- the lock


def test_a_second_agent_is_told_of_the_first(tmp_path: Path) -> None:
    with lock_state_dir(tmp_path / "state", "default"):
        with pytest.raises(AlreadyRunning) as caught:
            lock_state_dir(tmp_path / "state", "default")
        assert str(caught.value) == (
            f"the agent of instance default (process {os.getpid()}) already uses the state "
            f"directory {tmp_path / 'state'}"
        )
    lock_state_dir(tmp_path / "state", "default").release()


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
