"""What the outline of a journal keeps is as in the whole report; the rest has its default."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dlsched.estimate.effect import CycleLatency
from dlsched.estimate.sketch import from_latencies
from dlsched.model.cycle import CycleReport
from dlsched.model.facts import Sample, Usage
from dlsched.model.state import JobView, NodeView, Progress
from dlsched.simulation.trace import record
from dlsched.store.journal.reader import JournalReader
from tests.review.worlds import busy_node, written
from tests.store.journal.hours import write
from tests.store.journal.reports import execute, job, report

pytestmark = pytest.mark.timed


def outlined(job: JobView) -> JobView:
    """That job with what an outline keeps."""
    progress, usage = job.progress, job.usage
    return JobView(
        spec=job.spec,
        state=job.state,
        adopted=job.adopted,
        blind=job.blind,
        container_id=job.container_id,
        gpus=job.gpus,
        actual=job.actual,
        cpu_shares=job.cpu_shares,
        cpu_idle=job.cpu_idle,
        usage=Usage(cpu_cores=usage.cpu_cores, throttled_ratio=usage.throttled_ratio),
        progress=Progress(
            fresh=progress.fresh, oldest_s=progress.oldest_s, samples=progress.samples
        ),
        attained_core_s=job.attained_core_s,
        started_at_s=job.started_at_s,
        changed_at_s=job.changed_at_s,
        starts=job.starts,
        tiers=job.tiers,
    )


def expected(one: CycleReport) -> CycleReport:
    snapshot, node = one.snapshot, one.snapshot.node
    outline = replace(
        snapshot,
        node=NodeView(
            node.capacity_cores, node.cores, node.memory_bytes, foreign_cores=node.foreign_cores
        ),
        jobs=tuple(outlined(job) for job in snapshot.jobs),
        wakes=(),
    )
    return CycleReport(
        outline,
        one.policy,
        outcomes=one.outcomes,
        alarms=one.alarms,
        engine_ok=one.engine_ok,
        wall_time=one.wall_time,
        outlooks=one.outlooks,
    )


@pytest.fixture
def busy(path: Path) -> Path:
    return written(path, busy_node(150.0))


@pytest.mark.long
def test_an_outline_is_the_report_without_the_rest(busy: Path) -> None:
    with JournalReader(busy) as reader:
        whole, outlines = list(reader.reports()), list(reader.outlines())
        assert reader.problem is None
        assert list(reader.outlines(40, 60)) == outlines[39:60]
    assert len(whole) > 140
    assert outlines == [expected(one) for one in whole]
    assert record(outlines) == record(whole)


def test_jobs_that_come_go_and_change_are_as_in_the_report(path: Path) -> None:
    sample = Sample(1.0, 5, (("loss", 0.5),))
    reports = []
    for number in range(1, 41):
        names = ["alpha", *(["beta"] if number % 7 else []), *(["gamma"] if number > 20 else [])]
        one = report(number, *(job(name) for name in names))
        jobs = tuple(
            replace(
                view,
                spec=replace(view.spec, weight=float(1 + number // 10)),
                blind="silent" if number % 5 == 0 else None,
                progress=Progress(
                    fresh=from_latencies([0.01 * number] * (number % 3)),
                    samples=(sample,) * (number // 8),
                ),
            )
            for view in one.snapshot.jobs
        )
        reports.append(replace(one, snapshot=replace(one.snapshot, jobs=jobs)))
    write(path, reports, 13.0)
    with JournalReader(path) as reader:
        assert list(reader.outlines()) == [expected(one) for one in reader.reports()]
        assert list(reader.latencies("gamma", 9, 40)) == [
            CycleLatency(one.snapshot.now_s, one.snapshot.jobs[-1].progress.fresh)
            for one in reports[20:]
        ]


def test_a_damaged_row_ends_its_group_only(busy: Path) -> None:
    execute(busy, "UPDATE frames SET body = x'00' WHERE cycle = 30")
    with JournalReader(busy) as reader:
        cycles = [one.snapshot.cycle for one in reader.outlines()]
        assert reader.problem is not None and "cycle 30 cannot be read" in reader.problem
    assert cycles[:29] == list(range(1, 30))
    assert 30 not in cycles and cycles[-1] > 140
