"""Rows of GPUs and of a job's part in them: what is enforced, and what is only told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.api.gpu_status import gpu_of, gpu_rows
from dlsched.api.schema import BoundStatus, GpuUserStatus
from dlsched.api.status import job_status, node_status
from dlsched.model.facts import GpuAccess
from dlsched.model.state import JobState
from tests.status_source import NOW_S, example_report, gpu_job, gpu_report, job


def test_every_gpu_is_told_with_who_is_on_it() -> None:
    whole, part, lost, kept = gpu_rows(gpu_report().snapshot)
    assert whole.jobs == (GpuUserStatus("shared-one", 0.6), GpuUserStatus("shared-two", 0.4))
    assert (whole.promised_share, whole.busy_ratio) == (0.75, 0.83)
    assert (whole.foreign_processes, whole.foreign_memory_bytes) == (2, 3 << 30)
    assert (part.part_of, part.busy_ratio) == ("GPU-22222222-cccc", None)
    assert part.jobs == lost.jobs == (GpuUserStatus("solitary", 1.0),)
    assert "fell off the bus" in lost.trouble
    assert (kept.reserved, kept.compute_mode, kept.jobs) == (True, "exclusive-process", ())


def test_a_job_that_has_ended_is_on_no_gpu_any_more() -> None:
    report = gpu_report()
    ended = tuple(replace(one, state=JobState.STOPPED) for one in report.snapshot.jobs)
    assert all(row.jobs == () for row in gpu_rows(replace(report.snapshot, jobs=ended)))


def test_one_for_which_a_gpu_is_kept_is_told() -> None:
    snapshot = gpu_report().snapshot
    moves = replace(snapshot.jobs[0], gpus_kept=("GPU-44444444-eeee",))
    told = gpu_rows(replace(snapshot, jobs=(moves,)))
    assert [row.kept_for for row in told] == [(), (), (), ("shared-one",)]


def test_one_that_may_return_to_a_gpu_is_shown_with_it() -> None:
    snapshot = gpu_report().snapshot
    gpus = [replace(one, kept_for=("away",)) for one in snapshot.node.gpus[:1]]
    there = replace(snapshot, node=replace(snapshot.node, gpus=tuple(gpus)))
    assert [row.kept_for for row in gpu_rows(there)] == [("away",)]


CDI = (("devices", "CDI"), ("cpu", "engine"))


def test_what_is_enforced_is_told_with_what_enforces_it_and_the_rest_as_advisory() -> None:
    told = gpu_of(gpu_job("a", 0.5, ("GPU-a",), GpuAccess.CDI, CDI, told=0.6))
    assert told is not None
    assert (told.access, told.uuids, told.actual_share) == ("cdi", ("GPU-a",), 0.6)
    assert (told.floor_share, told.ceiling_share) == (0.5, 1.0)
    bounds = told.bounds
    assert bounds["devices"] == BoundStatus(enforced=True, by="CDI")
    assert bounds["cpu"] == BoundStatus(enforced=True, by="engine")
    assert {what for what, one in bounds.items() if not one.enforced} == {"time", "memory"}
    assert "does not say that it keeps to it" in bounds["time"].by
    assert "fit_to_allotment()" in bounds["memory"].by


def test_with_mps_all_four_are_enforced() -> None:
    mps = (*CDI, ("time", "MPS, 50 % of threads at start"), ("memory", "MPS, 8 GiB on each"))
    told = gpu_of(gpu_job("a", 0.5, ("GPU-a",), GpuAccess.CDI, mps))
    assert told is not None
    assert [(what, one.by) for what, one in told.bounds.items()] == [
        ("devices", "CDI"),
        ("time", "MPS, 50 % of threads at start"),
        ("memory", "MPS, 8 GiB on each"),
        ("cpu", "engine"),
    ]
    assert all(one.enforced for one in told.bounds.values())


@pytest.mark.parametrize(
    ("floor", "paces", "words"),
    [(0.5, 0.4, "which paces itself"), (0.5, None, "does not say"), (1.0, 0.9, "its alone")],
)
def test_how_far_a_share_can_be_relied_on(floor: float, paces: float | None, words: str) -> None:
    told = gpu_of(gpu_job("a", floor, ("GPU-a",), GpuAccess.CDI, CDI, paces=paces))
    assert told is not None
    assert words in told.bounds["time"].by


def test_one_that_still_shares_is_not_called_alone() -> None:
    """Its file asks for whole GPUs by now; the container that it has came to share them."""
    told = gpu_of(gpu_job("a", 1.0, ("GPU-a",), GpuAccess.CDI, CDI, told=0.6))
    assert told is not None
    assert not any("alone" in told.bounds[what].by for what in ("time", "memory"))


def test_before_it_has_a_container_nothing_bounds_it() -> None:
    told = gpu_of(gpu_job("a", 0.5, (), None, ()))
    assert told is not None
    assert (told.count, told.uuids, told.bounds) == (1, (), {})


def test_without_gpus_there_is_nothing_to_tell() -> None:
    assert job_status(job("a"), NOW_S).gpu is None
    node = node_status(example_report()).node
    assert (node.gpus, node.gpu_trouble) == ((), None)
