"""The wish to give everything back: from whoever asks to the loop, and over restarts."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from dlsched.daemon import source as give_back
from dlsched.daemon.source import NotReleased, Release
from dlsched.runtime.machine.outcomes import GivenBack
from dlsched.simulation.clock import VirtualClock

pytestmark = pytest.mark.timed

Asked = Future[Sequence[GivenBack]]
BACK = GivenBack("job", "a" * 64, adopted=False, now="1 cores")


class Bench:
    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self.woken = threading.Event()
        self.reopen()

    def reopen(self) -> None:
        """Another agent on the same state directory."""
        self.release = Release(self.state_dir, VirtualClock(0.0), lambda _: self.woken.set())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def asked(bench: Bench) -> Iterator[Asked]:
    """The answer to somebody who waits for it."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(bench.release.ask)
        assert bench.woken.wait(60)
        yield answer


def test_who_asks_waits_for_the_loop_and_it_holds_until_it_is_resumed(
    bench: Bench, asked: Asked
) -> None:
    assert bench.release.why is None
    bench.release.answer(lambda: [BACK])
    assert asked.result(60) == [BACK]
    held = (
        "all limits were given back by `dlsched release`: nothing is changed until `dlsched "
        "release --resume` or SIGHUP"
    )
    assert bench.release.why == held
    bench.reopen()
    assert bench.release.why == held
    bench.release.resume()
    assert bench.release.why is None
    bench.reopen()
    assert bench.release.why is None


def test_with_a_full_disk_it_holds_until_a_restart_and_says_so(
    bench: Bench, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(give_back, "write_whole", full)
    bench.release.answer(lambda: [BACK])
    assert asked.result(60) == [BACK]
    assert (bench.release.why or "").endswith(
        "or a restart, as the release cannot be recorded: No space left on device"
    )


def test_without_a_wish_nothing_is_given_back(bench: Bench) -> None:
    bench.release.answer(lambda: pytest.fail("nobody asked"))
    assert bench.release.why is None
    assert list(bench.state_dir.iterdir()) == []


def test_who_waits_at_the_end_is_told(bench: Bench, asked: Asked) -> None:
    bench.release.close()
    with pytest.raises(NotReleased, match="as the daemon is ending, and gives all limits back"):
        asked.result(60)


def test_a_loop_that_does_not_come_is_told_after_a_while(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(give_back, "WITHIN_S", 0.01)
    with pytest.raises(NotReleased, match=r"not all limits were given back within 0\.01 s"):
        bench.release.ask()
