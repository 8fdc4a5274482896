"""Who uses the host's CPU while a target is missed, and what would help."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.api.host_cpu import host_cpu_status, is_missed, missed_beside
from dlsched.api.status import cpu_beside, node_status
from dlsched.model.cycle import CycleReport
from dlsched.model.facts import CpuUser, CpuUserKind, HostCpu, Usage
from dlsched.model.forecast import Forecast, ForecastKind
from dlsched.model.spec import AccuracyTarget
from dlsched.model.state import JobState, JobView
from tests.status_source import job, report_of

BURNER = CpuUser(CpuUserKind.CONTAINER, "burner", 1.2, "burner")
BACKUP = CpuUser(CpuUserKind.UNIT, "backup.service", 0.4, "backup.service")
STRESS = CpuUser(CpuUserKind.PROCESS, "stress (pid 40)", 0.3)
LATE, IN_TIME = job("late", latency_s=0.08), job("in-time", latency_s=0.04)


def on_host(
    *jobs: JobView, busy_cores: float = 3.9, outlook: Forecast | None = None
) -> CycleReport:
    report = report_of(*jobs)
    node = replace(report.snapshot.node, host_cpu=HostCpu(busy_cores, (BURNER, BACKUP, STRESS)))
    outlooks = {} if outlook is None else {one.name: (outlook,) for one in jobs}
    return replace(report, snapshot=replace(report.snapshot, node=node), outlooks=outlooks)


def beside(name: str, report: CycleReport) -> str | None:
    (row,) = (one for one in node_status(report).jobs if one.name == name)
    found = cpu_beside(row, report)
    return None if found is None else found.text


def test_a_late_job_names_users_and_what_would_help() -> None:
    assert beside("late", on_host(LATE)) == (
        "short, 3.90 of 4 cores used, most by container burner, 1.20 cores (would help: dlsched "
        "adopt burner --background); unit backup.service, 0.40 cores (would help: systemctl "
        "set-property --runtime backup.service CPUWeight=10); process stress (pid 40), 0.30 cores"
    )


def test_other_jobs_are_named_too_never_the_job_itself() -> None:
    report = on_host(LATE, IN_TIME)
    row = next(one for one in node_status(report).jobs if one.name == "late")
    found = cpu_beside(row, report)
    assert found is not None
    assert [(one.kind, one.name) for one in found.users] == [
        ("container", "burner"),
        ("job", "in-time"),
        ("unit", "backup.service"),
    ]


def test_a_job_that_meets_its_target_names_nobody() -> None:
    report = on_host(LATE, IN_TIME)
    assert beside("in-time", report) is None
    assert missed_beside(node_status(on_host(IN_TIME))) is None


def test_without_a_sample_nothing_is_said() -> None:
    assert beside("late", report_of(LATE)) is None
    assert host_cpu_status(None, 4.0) is None


def test_where_cpu_is_left_no_command_is_proposed() -> None:
    text = beside("late", on_host(LATE, busy_cores=3.3))
    assert text is not None
    assert text.startswith("not short, 3.30 of 4 cores used, most by container burner, 1.20 cores;")
    assert "would help" not in text


def test_a_job_that_uses_little_is_not_named() -> None:
    quiet = replace(IN_TIME, usage=Usage(cpu_cores=0.04))
    unread = replace(job("unread", latency_s=0.04), usage=Usage())
    for other in (quiet, unread):
        text = beside("late", on_host(LATE, other))
        assert text is not None
        assert f"job {other.name}" not in text


def test_two_late_jobs_may_take_cpu_from_each_other() -> None:
    found = missed_beside(node_status(on_host(LATE, job("too", latency_s=0.09))))
    assert found is not None
    assert [one.name for one in found.users] == ["burner", "late", "too"]
    found = missed_beside(node_status(on_host(LATE, IN_TIME)))
    assert found is not None
    assert [one.name for one in found.users] == ["burner", "in-time", "backup.service"]


@pytest.mark.parametrize(
    ("kind", "missed"),
    [
        (ForecastKind.CROWDED, True),
        (ForecastKind.UNLIKELY, True),
        (ForecastKind.EXPECTED, False),
        (ForecastKind.IMPOSSIBLE, False),
        (ForecastKind.MET, False),
    ],
)
def test_a_training_misses_what_others_keep_from_it(kind: ForecastKind, *, missed: bool) -> None:
    training = job("train", target=AccuracyTarget("accuracy", 0.9, 0.97))
    report = on_host(training, outlook=Forecast(kind, "deliver"))
    assert is_missed(node_status(report).jobs[0]) is missed


def test_a_job_that_does_not_run_misses_nothing() -> None:
    waiting = replace(LATE, state=JobState.WAITING)
    assert not is_missed(node_status(on_host(waiting)).jobs[0])


def test_a_name_cannot_add_a_command() -> None:
    forged = replace(BACKUP, yields_by="a\\x2d; reboot.service")
    found = host_cpu_status(HostCpu(4.0, (forged,)), 4.0)
    assert found is not None
    assert found.users[0].command == (
        r"systemctl set-property --runtime 'a\x2d; reboot.service' CPUWeight=10"
    )
