"""A container's memory, as its control group counts it in both dialects."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from dlsched.model.facts import MemoryFact
from dlsched.runtime.cgroup.read import CgroupReader
from tests.runtime.cgroup.test_read import PID, tree

MIB = 1 << 20
NO_LIMIT = "9223372036854771712"
"""What version 1 shows without a limit."""

V1_STAT = """\
cache 1
inactive_file 7
active_file 8
hierarchical_memory_limit {limit}
hierarchical_memsw_limit 9223372036854771712
total_cache 4194304
total_inactive_file 2097152
total_active_file 1048576
total_unevictable 0
"""
V2_STAT = """\
anon 4194304
file 3145728
slab_reclaimable 524288
inactive_anon 5
inactive_file 2097152
active_file 1048576
unevictable 0
"""


def folder(proc: Path) -> Path:
    """The folder of the group's memory files."""
    return next(proc.parent.glob("sys/**/memory.current"), None) or next(
        proc.parent.glob("sys/**/memory.usage_in_bytes")
    )


def read(proc: Path, **files: str) -> MemoryFact:
    """The container's memory with these files in its group."""
    place = folder(proc).parent
    for name, text in files.items():
        (place / f"memory.{name}").write_text(text)
    with closing(CgroupReader(PID, proc)) as reader:
        return reader.read().memory


def v1(tmp_path: Path, limit: str = str(64 * MIB), **files: str) -> MemoryFact:
    given = {
        "usage_in_bytes": f"{10 * MIB}\n",
        "stat": V1_STAT.format(limit=limit),
        "max_usage_in_bytes": f"{20 * MIB}\n",
        "oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
    }
    return read(tree("v1", tmp_path), **{**given, **files})


def v2(tmp_path: Path, **files: str) -> MemoryFact:
    given = {
        "current": f"{10 * MIB}\n",
        "stat": V2_STAT,
        "max": f"{64 * MIB}\n",
        "peak": f"{20 * MIB}\n",
        "events": "low 0\nhigh 0\nmax 9\noom 0\noom_kill 3\noom_group_kill 0\n",
    }
    return read(tree("v2", tmp_path), **{**given, **files})


def test_what_both_dialects_say(tmp_path: Path) -> None:
    known = MemoryFact(8 * MIB, 7 * MIB, 64 * MIB, 20 * MIB, 3)
    assert v1(tmp_path / "1") == known
    slab_bytes = 524_288
    assert v2(tmp_path / "2") == MemoryFact(
        8 * MIB, 7 * MIB - slab_bytes, 64 * MIB, 20 * MIB, 3, own_bytes=64 * MIB
    )


def test_no_limit(tmp_path: Path) -> None:
    assert v1(tmp_path / "1", NO_LIMIT).limit_bytes is None
    assert v2(tmp_path / "2", max="max\n").limit_bytes is None


@pytest.mark.parametrize(("own", "around", "found"), [
    ("max", 32, 32), (64, "max", 64), (64, 32, 32), (16, 32, 16), ("max", "max", None),
])  # fmt: skip
def test_the_smallest_limit_around_a_container_on_version_2(
    tmp_path: Path, own: int | str, around: int | str, found: int | None
) -> None:
    def text(size: int | str) -> str:
        return f"{size * MIB if isinstance(size, int) else size}\n"

    proc = tree("v2", tmp_path)
    (folder(proc).parent.parent / "memory.max").write_text(text(around))
    limit_bytes = read(proc, max=text(own)).limit_bytes
    assert limit_bytes == (None if found is None else found * MIB)


def test_a_limit_that_was_reached(tmp_path: Path) -> None:
    assert not v2(tmp_path / "a").limit_reached, "its kills were for want of memory of the host"
    assert v2(tmp_path / "b", events="max 9\noom 1\noom_kill 1\n").limit_reached
    full = v1(tmp_path / "c", max_usage_in_bytes=f"{64 * MIB}\n")
    assert full.peak_bytes == full.limit_bytes
    assert not full.limit_reached, "page cache alone fills a limit"


BROKEN = ("", "\n", "x", "-5\n", "1e9\n", "9" * 5000, "\xff\n", "18446744073709551615\n", "1 2\n")


@pytest.mark.parametrize("text", BROKEN)
@pytest.mark.parametrize("name", ["usage_in_bytes", "stat", "max_usage_in_bytes", "oom_control"])
def test_nonsense_on_version_1_is_not_known(tmp_path: Path, name: str, text: str) -> None:
    found = v1(tmp_path, **{name: text})
    unknown = {
        "usage_in_bytes": (found.working_set_bytes, found.held_bytes),
        "stat": (found.working_set_bytes, found.held_bytes, found.limit_bytes),
        "max_usage_in_bytes": (found.peak_bytes,),
        "oom_control": (found.oom_kills,),
    }[name]
    assert set(unknown) == {None}
    assert found != MemoryFact(), "the other files are read all the same"


@pytest.mark.parametrize("text", BROKEN)
@pytest.mark.parametrize("name", ["current", "stat", "max", "peak", "events"])
def test_nonsense_on_version_2_is_not_known(tmp_path: Path, name: str, text: str) -> None:
    found = v2(tmp_path, **{name: text})
    unknown = {
        "current": (found.working_set_bytes, found.held_bytes),
        "stat": (found.working_set_bytes, found.held_bytes),
        "max": (found.limit_bytes,),
        "peak": (found.peak_bytes,),
        "events": (found.oom_kills,),
    }[name]
    assert set(unknown) == {None}
    assert found != MemoryFact(), "the other files are read all the same"


@pytest.mark.parametrize("stat", [
    "total_inactive_file 12",  # may be cut
    "total_inactive_file many\n",
    "total_inactive_file\n",
    "total_inactive_file -1\n",
    "xtotal_inactive_file 5\n",
])  # fmt: skip
def test_a_line_that_is_cut_or_wrong_is_not_known(tmp_path: Path, stat: str) -> None:
    found = v1(tmp_path, stat=f"hierarchical_memory_limit 4096\n{stat}")
    assert (found.working_set_bytes, found.limit_bytes) == (None, 4096)


def test_more_cache_than_use_is_no_negative_use(tmp_path: Path) -> None:
    found = v1(tmp_path, usage_in_bytes="4096\n")
    assert (found.working_set_bytes, found.held_bytes) == (0, 0)


def test_without_those_files_nothing_is_known(tmp_path: Path) -> None:
    for version in ("v1", "v2"):
        with closing(CgroupReader(PID, tree(version, tmp_path))) as reader:
            assert reader.read().memory == MemoryFact()


def test_memory_is_read_with_the_limits_and_kept_meanwhile(tmp_path: Path) -> None:
    proc = tree("v2", tmp_path)
    place = folder(proc).parent
    (place / "memory.stat").write_text(V2_STAT)
    with closing(CgroupReader(PID, proc)) as reader:
        first = reader.read()
        (place / "memory.current").write_text(f"{99 * MIB}\n")
        (place / "cpu.stat").write_text("usage_usec 2000000\n")
        between = reader.reread(first)
        assert (between.memory, between.usage.memory_bytes) == (first.memory, 99 * MIB)
        assert reader.read().memory.working_set_bytes == 97 * MIB


def test_its_own_limit_is_known_apart_from_those_around_it(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    fact = v1(tmp_path / "1", limit_in_bytes=f"{96 * MIB}\n")
    assert (fact.limit_bytes, fact.own_bytes) == (64 * MIB, 96 * MIB)
    proc = tree("v2", tmp_path)
    (folder(proc).parents[1] / "memory.max").write_text(f"{64 * MIB}\n")
    fact = read(proc, max=f"{96 * MIB}\n", stat=V2_STAT)
    assert (fact.limit_bytes, fact.own_bytes) == (64 * MIB, 96 * MIB)
    assert read(proc, max="max\n", stat=V2_STAT).own_bytes is None
