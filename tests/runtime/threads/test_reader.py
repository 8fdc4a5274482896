"""A sample of threads, from files as the kernel writes them and places as it notes them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from dlsched.model.facts import ThreadsFact
from dlsched.runtime.threads.places import NotAllowed, Thread, known_machine, spun
from dlsched.runtime.threads.reader import Group, ThreadReader
from tools.waiting import until

CONTAINER = "c" * 64


class Places:
    """Of one thread, as the kernel would have noted them."""

    def __init__(self, found: list[int]) -> None:
        self.found, self.closed = found, False

    def places(self) -> list[int]:
        return self.found

    def close(self) -> None:
        self.closed = True


class Host:
    """Threads of one process, each with the part of the time that it computes and waits."""

    def __init__(self, root: Path, threads: Mapping[int, tuple[float, float]]) -> None:
        self.proc, self.folder, self.now_s = root / "proc", root / "group", 50.0
        self.folder.mkdir()
        self.threads, self.placed = threads, dict[int, Places]()
        self.allowed = True
        listed = "".join(f"{one}\n" for one in threads)
        (self.folder / "tasks").write_text(listed)
        (self.folder / "cgroup.threads").write_text(listed)
        for one in threads:
            (self.proc / str(one)).mkdir(parents=True)
            self.is_in(one, CONTAINER)
        self.write()

    def write(self) -> None:
        for one, (ran, waited) in self.threads.items():
            folder, ran_s = self.proc / str(one), self.now_s * ran
            (folder / "schedstat").write_text(
                f"{ran_s * 1e9:.0f} {self.now_s * waited * 1e9:.0f} 9\n"
            )
            (folder / "status").write_text(f"Name:\tx\nTgid:\t{os.getpid()}\n")

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.write()

    def is_in(self, thread: int, container: str) -> None:
        (self.proc / str(thread) / "cgroup").write_text(f"0::/docker/{container}\n")

    def place(self, thread: int) -> Places:
        if not self.allowed:
            raise NotAllowed("no right")
        return self.placed.setdefault(thread, Places([]))

    def read(self, *, v2: bool = False) -> ThreadsFact:
        reader = ThreadReader(lambda: self.now_s, self.sleep, self.proc, self.place)  # type: ignore[arg-type]
        return reader.read([Group(CONTAINER, 1, self.folder, v2, 0.0, 0, 0)])[CONTAINER]


@pytest.mark.parametrize("v2", [False, True])
def test_a_sample_says_what_threads_computed_and_waited(tmp_path: Path, v2: bool) -> None:
    host = Host(tmp_path, {11: (0.5, 0.5), 12: (0.4, 0.6), 13: (0.05, 0.0), 14: (0.0, 0.0)})
    fact = host.read(v2=v2)
    assert fact.busy == 2
    assert fact.used_cores == pytest.approx(0.95)
    assert fact.waited_cores == pytest.approx(1.1)
    assert fact.at_s == host.now_s
    assert set(host.placed) == {11, 12}
    assert all(one.closed for one in host.placed.values())


@pytest.mark.parametrize("threads", [
    {11: (1.0, 0.0), 12: (1.0, 0.0)},  # each has a core of its own
    {11: (0.5, 0.5)},  # one thread waits for no other
])  # fmt: skip
def test_places_are_noted_only_where_several_threads_want_more_cpu(
    tmp_path: Path, threads: dict[int, tuple[float, float]]
) -> None:
    host = Host(tmp_path, threads)
    fact = host.read()
    assert (fact.spun_ratio, fact.spins_in, host.placed) == (None, "", {})


def test_a_number_that_another_container_has_by_now_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the places were noted (12), or while they were (13)."""
    host = Host(tmp_path, dict.fromkeys((11, 12, 13), (0.3, 0.7)))
    asked = {}
    monkeypatch.setattr(
        "dlsched.runtime.threads.reader.ThreadReader._spun",
        lambda _, places: asked.update(places) or (None, ""),
    )
    host.is_in(12, "d" * 64)
    slept = host.sleep

    def sleep(seconds: float) -> None:
        slept(seconds)
        if host.placed:
            host.is_in(13, "d" * 64)

    host.sleep = sleep  # type: ignore[method-assign]
    host.read()
    assert set(asked) == {11}
    assert all(one.closed for one in host.placed.values())


def test_of_many_places_some_stand_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container chooses how long it takes to judge one; threads keep their parts."""
    host = Host(tmp_path, {11: (0.3, 0.7), 12: (0.3, 0.7)})
    host.placed = {11: Places([1] * 1500), 12: Places([2] * 500)}
    judged: list[int] = []
    monkeypatch.setattr(
        "dlsched.runtime.threads.reader.spun",
        lambda _, places, __: (judged.extend(places) or judged.count(1), "x"),
    )
    assert host.read().spun_ratio == 0.75
    assert len(judged) == 500


def test_nothing_stays_open_while_memory_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That may hang."""
    host = Host(tmp_path, {11: (0.3, 0.7), 12: (0.3, 0.7)})
    open_ones = []

    def spun(*_: object) -> tuple[None, str]:
        open_ones.extend(one for one in host.placed.values() if not one.closed)
        return None, ""

    monkeypatch.setattr("dlsched.runtime.threads.reader.ThreadReader._spun", spun)
    host.read()
    assert host.placed and not open_ones


def test_what_was_opened_is_closed_where_a_sample_fails(tmp_path: Path) -> None:
    host = Host(tmp_path, {11: (0.3, 0.7), 12: (0.3, 0.7)})
    place = host.place

    def fails(thread: int) -> Places:
        if host.placed:
            raise MemoryError
        return place(thread)

    host.place = fails  # type: ignore[method-assign]
    with pytest.raises(MemoryError):
        host.read()
    assert [one.closed for one in host.placed.values()] == [True]


def test_without_the_right_the_counts_are_known_alone(tmp_path: Path) -> None:
    host = Host(tmp_path, {11: (0.5, 0.5), 12: (0.5, 0.5)})
    host.allowed = False
    fact = host.read()
    assert (fact.busy, fact.spun_ratio) == (2, None)


def test_a_group_that_is_gone_has_a_sample_of_nothing(tmp_path: Path) -> None:
    host = Host(tmp_path, {11: (0.5, 0.5)})
    (host.folder / "tasks").unlink()
    assert host.read().busy == 0


def test_files_that_are_not_understood_count_nothing(tmp_path: Path) -> None:
    host = Host(tmp_path, {11: (0.5, 0.5)})
    host.write = lambda: None  # type: ignore[method-assign]
    for name, text in (
        ("schedstat", "x y z"),
        ("stat", "1"),
        ("status", "voluntary_ctxt_switches:"),
    ):
        (host.proc / "11" / name).write_text(text)
    (host.folder / "tasks").write_text("11\nx\n0\n-4\n99999999999\n12")
    assert host.read().busy == 0


@pytest.mark.skipif(not known_machine(), reason="code of other machines than x86-64 is not read")
@pytest.mark.process
def test_a_real_process_that_waits_in_a_loop_is_told_from_one_that_computes(tmp_path: Path) -> None:
    source, program = tmp_path / "spinner.c", tmp_path / "spinner"
    source.write_text(
        "volatile int go; volatile double x = 1; int main(int n, char **words) {"
        " while (!go) if (n > 1) __builtin_ia32_pause(); else x = x * 1.0000001 + 1e-9; }"
    )
    subprocess.run(["gcc", "-O2", str(source), "-o", str(program)], check=True)
    assert _seen(program) == (0.0, "")
    ratio, name = _seen(program, "pause")
    assert ratio > 0.9
    assert name == "spinner"


def _seen(program: Path, *words: str) -> tuple[float, str]:
    """The part of its places in which it waits, and where."""
    child = subprocess.Popen([program, *words])
    try:
        thread = Thread(child.pid)
        until(lambda: len(thread.places()) >= 20, "twenty places", 60)
        places = thread.places()
        assert len(places) <= 256
        count, name = spun(child.pid, places)
        thread.close()
        return count / len(places), name
    except NotAllowed as error:
        pytest.skip(str(error))
    finally:
        child.kill()
        child.wait()
