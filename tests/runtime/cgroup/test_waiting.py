"""How long threads wait for a CPU, on files as the kernel writes them and on the kernel itself."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dlsched.runtime.cgroup.read import RunQueueWait
from tests.waiting import until

S = 1_000_000_000
"""In nanoseconds."""


def threads(proc: Path, **waited_ns: int | str) -> None:
    """A group whose threads have waited so long since they began."""
    names = [name.removeprefix("t") for name in waited_ns]
    (proc / "tasks").write_text("".join(f"{name}\n" for name in names))
    for name, ns in zip(names, waited_ns.values(), strict=True):
        (proc / name).mkdir(exist_ok=True)
        (proc / name / "schedstat").write_text(f"5 {ns} 7\n")


def test_the_waits_of_all_threads_between_two_looks(tmp_path: Path) -> None:
    waiting = RunQueueWait(tmp_path, tmp_path)
    threads(tmp_path, t1=3 * S, t2=S)
    waiting.sample(10.0)
    assert waiting.ratio is None
    threads(tmp_path, t1=3 * S + S // 10, t2=S + S // 10)
    waiting.sample(12.0)
    assert waiting.ratio == pytest.approx(0.1)
    threads(tmp_path, t1=60 * S, t2=S)
    waiting.sample(112.0)
    assert waiting.ratio == pytest.approx(0.569, abs=1e-3)
    threads(tmp_path, t1=90 * S, t2=90 * S)
    waiting.sample(1112.0)
    assert waiting.ratio == pytest.approx(0.119, abs=1e-3)


def test_more_threads_than_time_count_as_always(tmp_path: Path) -> None:
    waiting = RunQueueWait(tmp_path, tmp_path)
    threads(tmp_path, t1=0, t2=0)
    waiting.sample(0.0)
    threads(tmp_path, t1=10 * S, t2=10 * S)
    waiting.sample(10.0)
    assert waiting.ratio == 1.0


def test_a_thread_that_is_new_or_another_of_that_number(tmp_path: Path) -> None:
    waiting = RunQueueWait(tmp_path, tmp_path)
    threads(tmp_path, t1=50 * S, t2=0)
    waiting.sample(0.0)
    threads(tmp_path, t1=S, t2=0, t3=S)
    waiting.sample(10.0)
    assert waiting.ratio == pytest.approx(0.1)


@pytest.mark.parametrize("told", ["", "5", "5 x 7", "5 -3 7"])
def test_what_cannot_be_read_is_not_known(tmp_path: Path, told: str) -> None:
    waiting = RunQueueWait(tmp_path, tmp_path)
    threads(tmp_path, t1=0)
    (tmp_path / "1" / "schedstat").write_text(told)
    waiting.sample(0.0)
    waiting.sample(1.0)
    assert waiting.ratio is None
    (tmp_path / "tasks").unlink()
    waiting.sample(2.0)
    assert waiting.ratio is None


def test_of_very_many_threads_the_first_tell(tmp_path: Path) -> None:
    (tmp_path / "tasks").write_text("".join(f"{n}\n" for n in range(10_000, 12_000)))
    for n in range(10_000, 12_000):
        (tmp_path / str(n)).mkdir()
        (tmp_path / str(n) / "schedstat").write_text("0 0 0\n")
    waiting = RunQueueWait(tmp_path, tmp_path)
    waiting.sample(0.0)
    waiting.sample(1.0)
    assert waiting.ratio == 0.0


@pytest.mark.process
def test_two_that_share_a_core_wait_for_half_of_the_time(tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    loop = f"import os; os.sched_setaffinity(0, [{core}])\nwhile True: pass"
    busy = [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(2)]
    try:
        (tmp_path / "tasks").write_text(f"{busy[0].pid}\n")
        waiting = RunQueueWait(tmp_path)

        def waits() -> bool:
            waiting.sample(time.monotonic())
            return (waiting.ratio or 0.0) >= 0.3

        until(waits, "a share of 0.3", every_s=0.1, shown=lambda: waiting.ratio)
    finally:
        for one in busy:
            one.kill()
            one.wait()
