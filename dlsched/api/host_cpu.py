"""Who uses the host's CPU, for `why`, `ps` and the page. Reads values of the schema alone, so that
the daemon and its clients say the same."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace

from dlsched.api.schema import CpuUserStatus, HostCpuStatus, JobStatus, Status
from dlsched.estimate.tuning import ROOM_RATIO
from dlsched.model.facts import NAMED_CORES, CpuUser, CpuUserKind, HostCpu
from dlsched.model.forecast import ForecastKind
from dlsched.model.state import JobState
from dlsched.model.units import render_cores

USERS_SHOWN = 3

_LOW_WEIGHT = 10
"""A tenth of systemd's default."""

_UNREACHED = (ForecastKind.CROWDED, ForecastKind.UNLIKELY)
"""Forecasts of an accuracy target that more CPU could change."""


def host_cpu_status(host: HostCpu | None, cores: float) -> HostCpuStatus | None:
    """The users that are no job; None: they are not known."""
    if host is None:
        return None
    short = host.busy_cores > ROOM_RATIO * cores
    users = (
        CpuUserStatus(one.kind.value, one.name, one.cores, _command(one) if short else None)
        for one in host.users
    )
    return _status(host.busy_cores, cores, users)


def is_missed(job: JobStatus) -> bool:
    """Whether a running job misses its latency target, or is not expected to reach its accuracy
    while others use the CPU."""
    if job.state != JobState.RUNNING:
        return False
    if job.target is not None and job.target.kind == "accuracy":
        ahead = next((one for one in job.outlook if one.kind != ForecastKind.MET), None)
        return ahead is not None and ahead.kind in _UNREACHED
    return job.satisfied_slo is False


def beside(
    others: HostCpuStatus | None,
    jobs: Iterable[tuple[str, float | None]],
    missed: Sequence[str],
) -> HostCpuStatus | None:
    """The largest users of the CPU while the jobs `missed` miss their targets; None: there are
    none, or the users are not known. `jobs`: of all jobs, with the cores that they use. A job that
    alone misses its target is not listed."""
    if others is None or not missed:
        return None
    users = [
        CpuUserStatus("job", name, cores, None)
        for name, cores in jobs
        if cores is not None and cores >= NAMED_CORES and [name] != list(missed)
    ]
    return _status(others.busy_cores, others.cores, [*others.users, *users])


def missed_beside(status: Status) -> HostCpuStatus | None:
    """The same for all jobs that miss their targets."""
    missed = [job.name for job in status.jobs if is_missed(job)]
    jobs = ((job.name, job.cpu.usage_cores) for job in status.jobs)
    return beside(status.node.host_cpu, jobs, missed)


def _status(busy_cores: float, cores: float, users: Iterable[CpuUserStatus]) -> HostCpuStatus:
    largest = sorted(users, key=lambda one: (-one.cores, one.name))[:USERS_SHOWN]
    found = HostCpuStatus(busy_cores, cores, tuple(largest), "")
    text = state_text(found)
    if largest:
        text += f", most by {'; '.join(map(user_text, largest))}"
    return replace(found, text=text)


def state_text(cpu: HostCpuStatus) -> str:
    """Whether CPU is short, without its users."""
    state = "short" if cpu.busy_cores > ROOM_RATIO * cpu.cores else "not short"
    return f"{state}, {cpu.busy_cores:.2f} of {render_cores(cpu.cores)} used"


def user_text(one: CpuUserStatus) -> str:
    """A user, and what would help."""
    helps = "" if one.command is None else f" (would help: {one.command})"
    return f"{one.kind} {one.name}, {one.cores:.2f} cores{helps}"


def _command(user: CpuUser) -> str | None:
    if user.yields_by is None:
        return None
    name = shlex.quote(user.yields_by)
    if user.kind is CpuUserKind.CONTAINER:
        return f"dlsched adopt {name} --background"
    return f"systemctl set-property --runtime {name} CPUWeight={_LOW_WEIGHT}"
