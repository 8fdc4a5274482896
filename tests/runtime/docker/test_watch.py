"""Whose process a PID is."""

from __future__ import annotations

from pathlib import Path

from dlsched.runtime.docker.watch import belongs


def test_a_process_belongs_to_the_container_whose_group_it_is_in(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(f"0::/system.slice/docker-{'a' * 64}.scope\n")
    assert belongs(7, "a" * 64, tmp_path)
    assert not belongs(7, "b" * 64, tmp_path)
    assert not belongs(8, "a" * 64, tmp_path)
