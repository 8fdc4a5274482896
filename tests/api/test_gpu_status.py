"""Rows of GPUs and of a job's part in them: what is enforced, and what is only told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.api.status import gpu_of, gpu_rows
from dlsched.model.facts import GpuAccess
from dlsched.model.state import JobState
from tests.status_source import gpu_job, gpu_report


def test_a_job_that_has_ended_is_on_no_gpu_any_more() -> None:
    report = gpu_report()
    ended = tuple(replace(one, state=JobState.STOPPED) for one in report.snapshot.jobs)
    assert all(row.jobs == () for row in gpu_rows(replace(report.snapshot, jobs=ended)))


def test_one_that_may_return_to_a_gpu_is_shown_with_it() -> None:
    snapshot = gpu_report().snapshot
    gpus = [replace(one, kept_for=("away",)) for one in snapshot.node.gpus[:1]]
    there = replace(snapshot, node=replace(snapshot.node, gpus=tuple(gpus)))
    assert [row.kept_for for row in gpu_rows(there)] == [("away",)]


CDI = (("devices", "CDI"), ("cpu", "engine"))


def test_with_mps_all_four_are_enforced() -> None:
    mps = (*CDI, ("time", "MPS: 50 % of a GPU's threads"), ("memory", "MPS: 8 GiB on each GPU"))
    told = gpu_of(gpu_job("a", 0.5, ("GPU-a",), GpuAccess.CDI, mps))
    assert told is not None
    assert [(what, one.by) for what, one in told.bounds.items()] == [
        ("devices", "CDI"),
        ("time", "MPS: 50 % of a GPU's threads"),
        ("memory", "MPS: 8 GiB on each GPU"),
        ("cpu", "engine"),
    ]
    assert all(one.enforced for one in told.bounds.values())


@pytest.mark.parametrize(
    ("floor", "paces", "words"),
    [
        (0.5, 0.4, "which paces itself"),
        (0.5, None, "does not report whether"),
        (1.0, 0.9, "no other job"),
    ],
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


def test_a_holder_is_shown_with_its_idle_time_in_seconds() -> None:
    own, adopted, notebook, process = gpu_rows(gpu_report().snapshot)[0].holders
    assert (own.computes, own.idle_s, own.uid, own.job) == (True, None, 1000, "shared-one")
    assert (adopted.idle_s, adopted.idle_too_long) == (95.0, False)
    assert (notebook.text, notebook.container) == ("container notebook-ada", "f" * 12)
    assert (notebook.idle_s, notebook.idle_too_long) == (7300.0, True)
    assert (process.text, process.pid, process.user) == ("process 4242 of ada", 4242, "ada")
