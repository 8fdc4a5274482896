"""What a daemon is going to touch, logged before it touches anything for the first time."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched.control.ledger.desired import Desired
from dlsched.control.ledger.updated import State
from dlsched.daemon.first_start import FirstStart
from dlsched.model.actions import Remove
from dlsched.model.spec import Limits, Stop
from dlsched.model.state import JobState, JobView, NodeView, Snapshot
from tests.doubles import job_spec

WATCH = Path("/etc/dlsched/jobs.d")
NODE = NodeView(capacity_cores=2.0, cores=2.0, memory_bytes=1 << 30)
ACTION = Remove("web", "c", Stop(), None, "any action will do")

adopted = JobView(
    job_spec("web"),
    JobState.RUNNING,
    adopted=True,
    container_id="3f2a9c1b0d2e77",
    actual=Limits(0.5),
)
own = JobView(job_spec("lanes"), JobState.WAITING)


def state(*jobs: JobView, settled: bool = True, engine_ok: bool = True) -> State:
    desired = Desired(settled=settled, sources={"lanes": f"{WATCH}/lanes-1.yaml"})
    return State(Snapshot(1, 10.0, NODE, jobs), desired, engine_ok)


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """The lines logged so far; the same list grows."""
    caplog.set_level(logging.INFO, logger="dlsched.daemon.first_start")
    lines: list[str] = []
    logger = logging.getLogger("dlsched.daemon.first_start")

    def keep(record: logging.LogRecord) -> bool:
        lines.append(record.getMessage())
        return True

    logger.addFilter(keep)
    yield lines
    logger.removeFilter(keep)


def announcer(*, first: bool = True, dry_run: bool = False) -> FirstStart:
    return FirstStart(WATCH, first=first, dry_run=dry_run)


def test_what_is_touched_is_logged_once_with_the_way_back(logged: list[str]) -> None:
    tell = announcer()
    for _ in range(5):
        tell(state(adopted, own), [ACTION])
    assert logged == [
        (
            "first start: nothing has been changed yet; dlsched manages 1 adopted container and 1 "
            "job of its own"
        ),
        (
            "  web (adopted, container 3f2a9c1b0d2e, 0.5 cores): may change CPU limit, weight and "
            "burst; never starts, stops or removes it"
        ),
        (
            "  lanes (job file lanes-1.yaml, image model:1): starts its container, changes "
            "its limits, and ends it when the file is removed"
        ),
        (
            "no other container is touched; `dlsched release` gives all their limits back, "
            "`dlsched drop CONTAINER` gives back the limits of an adopted one and lets it go"
        ),
    ]


def test_later_starts_log_nothing(logged: list[str]) -> None:
    announcer(first=False)(state(adopted), [ACTION])
    assert logged == []


def test_a_dry_run_says_each_time_what_would_be_managed(logged: list[str]) -> None:
    announcer(first=False, dry_run=True)(state(adopted), [])
    assert logged[0].startswith("dry run: nothing is changed; without --dry-run dlsched would")


def test_an_engine_that_does_not_answer_is_waited_for(logged: list[str]) -> None:
    tell = announcer()
    for _ in range(10):
        tell(state(engine_ok=False), [])
    assert logged == []
    tell(state(adopted), [])
    assert logged[1].startswith("  web (adopted")


def test_files_that_are_still_being_read_are_waited_for_but_changes_do_not_wait(
    logged: list[str],
) -> None:
    tell = announcer()
    tell(state(settled=False), [])
    assert logged == []
    tell(state(settled=False), [ACTION])
    assert "no container was adopted" in logged[1]
    assert f"{WATCH} has no job file" in logged[1]


def test_a_folder_that_is_missing_is_waited_for_a_few_cycles_only(logged: list[str]) -> None:
    tell = announcer()
    for _ in range(9):
        tell(state(adopted, settled=False), [])
    assert sum(line.startswith("first start") for line in logged) == 1


def test_a_node_with_hundreds_of_containers_does_not_fill_the_log(logged: list[str]) -> None:
    many = [JobView(job_spec(f"job-{number:03}"), JobState.WAITING) for number in range(300)]
    announcer()(state(*many), [])
    assert len(logged) == 23
    assert logged[-2] == "  and 280 more jobs: `dlsched ps` lists all"


def test_what_is_left_alone_is_said_to_be(logged: list[str]) -> None:
    alone = JobView(job_spec("odd"), JobState.UNMANAGED, reason="its job file is rejected")
    announcer()(state(alone), [])
    assert logged[1] == "  odd: left alone: its job file is rejected"


def test_a_job_whose_file_is_not_known_is_listed(logged: list[str]) -> None:
    announcer()(state(JobView(job_spec("cars"), JobState.WAITING)), [])
    assert logged[1].startswith("  cars (its job file is not known, image model:1): starts its")
