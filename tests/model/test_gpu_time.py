"""A shared GPU as a node: what of a job is its time, and how it is put into words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.model.facts import GpuProcess, Usage
from dlsched.model.gpu_time import (
    as_node,
    foreign_share,
    gpu_name,
    in_steps,
    of_gpu,
    shared_gpus,
    shares_gpus,
    starts_on,
)
from dlsched.model.resource import CPU, GpuTime
from dlsched.model.spec import Bounds, Limits
from dlsched.model.state import GpuView, JobState, JobView, NodeView, Snapshot
from tests.doubles import gpu_fact, job_spec, view

FACT = gpu_fact(3)
UUID = FACT.uuid


def sharer(name: str, share: float | None = 0.4, gpus: tuple[str, ...] = (UUID,)) -> JobView:
    """A running job with a fifth of its GPUs promised."""
    job = view(name)
    return replace(
        job,
        spec=replace(job.spec, bounds=Bounds(0.1, 2.0, 0.2, 0.8)),
        gpus=gpus,
        desired=Limits(1.0, share),
        actual=Limits(1.0, share),
        cpu_shares=1024,
        burst_cores=0.5,
        usage=Usage(2.0, 2.1, 1 << 30, 0.7, 0.2, 0.33, 0.35, 5 << 30),
    )


def node(*jobs: JobView, **changes: object) -> Snapshot:
    gpu = GpuView(replace(FACT, **changes))  # type: ignore[arg-type]
    return Snapshot(1, 100.0, NodeView(4.0, 4.0, 2**33, gpus=(gpu,)), jobs)


def test_its_time_takes_the_place_of_cores() -> None:
    seen = as_node(node(sharer("a"), view("b")), UUID, 0.9, 0.1)
    (job,) = seen.jobs
    assert (seen.node.capacity_cores, seen.node.cores) == (0.9, 1.0)
    assert (seen.node.grain_cores, seen.node.foreign_cores) == (0.01, 0.1)
    assert seen.node.memory_bytes == FACT.memory_bytes
    assert (node().resource, seen.resource) == (CPU, GpuTime(UUID, "GPU 3"))
    assert job.spec.bounds == Bounds(0.2, 0.8)
    assert job.desired == job.actual == Limits(0.4)
    assert job.usage == Usage(cpu_cores=0.33, window_cores=0.35, memory_bytes=5 << 30)
    assert (job.cpu_shares, job.burst_cores) == (None, None)


def test_whole_gpus_and_adopted_containers_are_not_divided() -> None:
    whole = replace(sharer("w", share=None), spec=job_spec("w"))
    adopted = replace(sharer("x"), adopted=True)
    assert not shares_gpus(whole)
    assert not shares_gpus(adopted)
    assert not shares_gpus(view("none"))
    seen = node(whole, adopted, sharer("a", gpus=(UUID, "GPU-2")))
    assert shared_gpus(seen) == ("GPU-2", UUID)
    assert [job.name for job in as_node(seen, UUID).jobs] == ["a"]


def test_one_that_came_to_share_shares_whatever_its_file_asks_for_by_now() -> None:
    """Also where the file is gone, or cannot be read after a restart."""
    whole = replace(sharer("w", 0.4), spec=job_spec("w"))
    (there,) = as_node(node(whole), UUID).jobs
    assert (there.spec.bounds, there.actual) == (Bounds(1.0, 1.0), Limits(0.4))


def test_promises_above_all_of_it_are_cut_to_their_parts() -> None:
    raised = replace(sharer("a"), spec=job_spec("a", bounds=Bounds(0.1, None, 0.9, 1.0)))
    whole = replace(sharer("w"), spec=job_spec("w"))
    seen = as_node(node(raised, sharer("b"), whole), UUID)
    floors = [job.spec.bounds.floor_cores for job in seen.jobs]
    assert floors == pytest.approx([0.9 / 2.1, 0.2 / 2.1, 1.0 / 2.1])


def test_who_does_not_run_yet_holds_what_it_is_promised_not_all() -> None:
    starts = replace(sharer("s", share=None), state=JobState.STARTING)
    paused = replace(sharer("p", share=0.5), state=JobState.PAUSED)
    seen = as_node(node(paused, starts, sharer("z", share=None)), UUID)
    assert [job.actual.cpu_cores for job in seen.jobs] == [0.5, 0.2, None]


def test_a_gpu_that_is_kept_for_a_move_holds_what_the_job_has_now() -> None:
    mover = replace(sharer("m", 0.5, ("GPU-2",)), gpus_kept=(UUID,))
    (there,) = as_node(node(mover), UUID).jobs
    assert (there.state, there.actual) == (JobState.MOVING, Limits(0.5))
    (here,) = as_node(node(mover), "GPU-2").jobs
    assert here.runs


def test_others_on_the_gpu_leave_less_and_are_not_guessed() -> None:
    own = GpuProcess(1, "id-a", busy_ratio=0.5)
    stranger = GpuProcess(2, None, busy_ratio=0.3)
    jobs = (sharer("a"),)
    seen = node(*jobs, busy_ratio=0.8, processes=(own, stranger))
    assert foreign_share(seen.node.gpus[0], jobs) == pytest.approx(0.3)
    adopted = (replace(jobs[0], adopted=True),)  # nobody tells it a share
    assert foreign_share(seen.node.gpus[0], adopted) == pytest.approx(0.8)
    unread = node(*jobs, busy_ratio=0.8, processes=(own, replace(stranger, busy_ratio=None)))
    assert foreign_share(unread.node.gpus[0], jobs) is None
    divided = node(*jobs, busy_ratio=None, processes=(own,))
    assert foreign_share(divided.node.gpus[0], jobs) is None
    greedy = node(*jobs, busy_ratio=1.0, processes=(replace(stranger, busy_ratio=1.0),))
    assert foreign_share(greedy.node.gpus[0], jobs) == pytest.approx(0.95)


def test_starts_are_there_with_what_they_are_promised() -> None:
    spec = job_spec("new", bounds=Bounds(0.1, 2.0, 0.3, 1.0))
    whole = job_spec("whole")
    placements = {"new": (UUID,), "whole": (UUID,)}
    (found,) = starts_on(UUID, [spec, whole], placements)
    assert found.bounds == Bounds(0.3, 1.0)
    assert starts_on("GPU-other", [spec], placements) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("0.600 of GPU 3's time", "0.600 of GPU 3's time"),
        ("G: 0.600 cores", "GPU 3 (1 core is all of its time): G: 0.600 cores"),
        ("after 1 core-s", "GPU 3 (1 core is all of its time): after 1 core-s"),
        ("loss scores", "GPU 3: loss scores"),
        ("watching: unchanged", "GPU 3: watching: unchanged"),
        ("", ""),
    ],
)
def test_a_reason_names_the_gpu_that_it_is_about(words: str, said: str) -> None:
    assert of_gpu(words, gpu_name(node(), UUID)) == said


def test_an_instance_is_named_with_its_gpu_and_a_lost_one_by_its_uuid() -> None:
    assert gpu_name(node(part_of="GPU-whole"), UUID) == f"{UUID} of GPU 3"
    assert gpu_name(node(), "GPU-lost") == "GPU-lost"


def test_shares_are_kept_in_hundredths_never_above_what_was_given_nor_below_the_promise() -> None:
    assert in_steps(0.339, 0.05) == 0.33
    assert in_steps(0.57, 0.05) == 0.57
    assert in_steps(1 / 3, 1 / 3) == 1 / 3
