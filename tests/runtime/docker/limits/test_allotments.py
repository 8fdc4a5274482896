"""What jobs are told of their ceilings follows what the kernel holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dlsched.model.alarms import AlarmKey
from dlsched.model.facts import ContainerFact, ContainerState
from dlsched.model.spec import Limits
from dlsched.runtime.allotment import (
    Allotment,
    Allotments,
    job_dir,
    read_allotment,
    write_allotment,
)
from tests.doubles import doing, job_spec

FACT = ContainerFact(
    job="alpha",
    container_id="c1",
    state=ContainerState.RUNNING,
    container_digest="d",
    digest="d",
    actual=Limits(0.5),
)


def told(state_dir: Path) -> Allotment:
    return read_allotment(job_dir(state_dir, "alpha"))


def test_what_an_agent_that_was_killed_did_not_tell_is_told(tmp_path: Path):
    write_allotment(job_dir(tmp_path, "alpha"), Allotment(cpu_cores=0.7, deliverable=True))
    assert Allotments(tmp_path).follow([FACT]) == ()
    assert told(tmp_path) == Allotment(cpu_cores=0.5, deliverable=True)


def test_what_is_true_but_for_rounding_is_not_written_again(tmp_path: Path):
    write_allotment(job_dir(tmp_path, "alpha"), Allotment(cpu_cores=0.500000001))
    Allotments(tmp_path).follow([FACT])
    assert told(tmp_path).cpu_cores == 0.500000001


def test_a_file_is_read_once_as_long_as_nothing_changes(tmp_path: Path):
    allotments = Allotments(tmp_path)
    allotments.follow([FACT])
    write_allotment(job_dir(tmp_path, "alpha"), Allotment(cpu_cores=0.7))
    allotments.follow([FACT])
    assert told(tmp_path).cpu_cores == 0.7
    allotments.follow([replace(FACT, actual=Limits(0.3))])
    assert told(tmp_path).cpu_cores == 0.3
    allotments.follow([])
    write_allotment(job_dir(tmp_path, "alpha"), Allotment(cpu_cores=0.7))
    allotments.follow([replace(FACT, actual=Limits(0.3))])
    assert told(tmp_path).cpu_cores == 0.3, "it was away in between"


@pytest.mark.parametrize(
    "fact",
    [
        replace(FACT, operation=doing("updating")),
        replace(FACT, state=ContainerState.EXITED),
        replace(FACT, adopted=job_spec("alpha")),
        replace(FACT, cpu_idle=True),
    ],
    ids=["changing", "ended", "adopted", "idle"],
)
def test_allotment_of_these_containers_is_left(tmp_path: Path, fact: ContainerFact):
    write_allotment(job_dir(tmp_path, "alpha"), Allotment(cpu_cores=0.7))
    Allotments(tmp_path).follow([fact])
    assert told(tmp_path).cpu_cores == 0.7


def test_a_job_that_cannot_be_told_is_said_and_told_later(tmp_path: Path):
    allotments = Allotments(tmp_path)
    (tmp_path / "in").write_text("no folder")
    (alarm,) = allotments.follow([FACT])
    assert (alarm.source, alarm.key) == ("alpha", AlarmKey.JOB_NOT_NOTIFIED)
    assert alarm.text.startswith("alpha: the file in which the job reads its limits cannot")
    (tmp_path / "in").unlink()
    assert allotments.follow([FACT]) == ()
    assert told(tmp_path).cpu_cores == 0.5


def test_unfinished_files_of_one_that_was_killed_are_cleared(tmp_path: Path):
    left = job_dir(tmp_path, "alpha") / ".allotment.json.x1.tmp"
    left.write_text("{")
    Allotments(tmp_path)
    assert not left.exists()


def test_what_was_laid_down_for_a_job_that_is_gone_is_removed_and_the_rest_stays(tmp_path: Path):
    allotments = Allotments(tmp_path)
    allotments.sweep(frozenset())
    for job in ("alpha", "beta"):
        write_allotment(job_dir(tmp_path, job), Allotment(cpu_cores=0.7))
    allotments.sweep({"alpha", "gamma"})
    assert [folder.name for folder in (tmp_path / "in").iterdir()] == ["alpha"]
    assert told(tmp_path).cpu_cores == 0.7


def test_a_job_is_told_the_gpus_that_its_container_has_and_keeps_its_share(tmp_path: Path):
    inside = job_dir(tmp_path, "alpha")
    before = Allotment(cpu_cores=0.5, gpus=("GPU-old",), gpu_share=0.25, gpu_memory_bytes=2**30)
    write_allotment(inside, before)
    assert Allotments(tmp_path).follow([replace(FACT, gpus=("GPU-1", "GPU-2"))]) == ()
    assert told(tmp_path) == replace(before, gpus=("GPU-1", "GPU-2"))
    assert (inside / "turn-GPU-2").exists()
