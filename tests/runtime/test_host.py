"""What the host has and how busy it is, on files as the kernel writes them."""

from __future__ import annotations

import os
from pathlib import Path

from dlsched.runtime.host import booted_at, busy_core_s, node, physical_cores


def test_busy_is_all_but_idle_and_stolen_time(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text(
        "cpu  1000 200 300 99999 8888 40 60 7777 500 100\ncpu0 1 1 1 1 1 1 1 1 0 0\n"
    )
    assert busy_core_s(tmp_path) == 1600 / os.sysconf("SC_CLK_TCK")


def test_what_cannot_be_read_is_none(tmp_path: Path) -> None:
    assert busy_core_s(tmp_path) is None
    assert node(0.01, tmp_path) is None
    assert booted_at(tmp_path) == "1970-01-01T00:00:00"


def test_the_kernel_says_when_the_host_started(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  1 2 3\nbtime 1764412440\nprocesses 9\n")
    assert booted_at(tmp_path) == "2025-11-29T10:34:00"


def test_the_node_has_the_cpus_that_we_may_use(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:       24629080 kB\nMemFree: 1 kB\n")
    found = node(0.01, tmp_path)
    assert found.cores == len(os.sched_getaffinity(0))
    assert found.memory_bytes == 24_629_080 * 1024


def test_two_threads_are_one_core_and_an_unknown_one_counts(tmp_path: Path) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    assert physical_cores(tmp_path) == len(cpus)
    for cpu in cpus:
        topology = tmp_path / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text("0\n")
        (topology / "core_id").write_text(f"{cpu // 2}\n")
    assert physical_cores(tmp_path) == len({cpu // 2 for cpu in cpus})
