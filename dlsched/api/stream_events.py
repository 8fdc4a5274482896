"""What a cycle adds to the stream, from its report alone. Pure."""

from __future__ import annotations

from dlsched.api.schema import SCHEMA_VERSION
from dlsched.api.status import node_of, target_of
from dlsched.api.stream_schema import (
    AlarmEventStatus,
    CycleEvents,
    CyclePoint,
    JobPoint,
    ShadowPoint,
)
from dlsched.api.wire_status import measurements
from dlsched.estimate.measured import (
    Judged,
    bounds_of_latency,
    failing,
    judged,
    latency_of,
    metric_of,
)
from dlsched.model.cycle import CycleReport, Shadow
from dlsched.model.state import JobView
from dlsched.model.units import render_within
from dlsched.store.journal.changes import Reported, changes, events, last_reported
from dlsched.store.journal.rows import Event

_AlarmName = tuple[str, str]
"""Source and key."""


class EventHistory:
    """Remembers what was sent, so that only changes are."""

    def __init__(self, earlier: CycleReport | None = None) -> None:
        """`earlier`: the last cycle of the daemon's run before."""
        self._reported: dict[str, Reported] = {} if earlier is None else last_reported(earlier)
        self._tries: dict[tuple[str, str], tuple[object, ...]] = {}
        self._missed = set() if earlier is None else _missed(earlier, set())
        self._alarms: dict[_AlarmName, str] = {}
        self._earlier_texts = () if earlier is None else earlier.alarms
        """Of alarms when the run before ended, whose keys no journal keeps."""

    def next(self, report: CycleReport) -> CycleEvents | None:
        """What happened since the report before; None: nothing."""
        changed, self._tries = changes(report, self._tries)
        happened, self._reported = events(report, self._reported)
        found = CycleEvents(
            schema_version=SCHEMA_VERSION,
            cycle=report.snapshot.cycle,
            changes=tuple(changed),
            events=(*happened, *self._targets(report)),
            alarms=tuple(self._alarm_events(report)),
        )
        return found if found.changes or found.events or found.alarms else None

    def _targets(self, report: CycleReport) -> list[Event]:
        """Latency targets that were missed, or met again."""
        before, self._missed = self._missed, _missed(report, self._missed)
        return [
            Event(
                cycle=report.snapshot.cycle,
                now_s=report.snapshot.now_s,
                wall_time=report.wall_time,
                job=job.name,
                kind="missed" if job.name in self._missed else "met",
                before=None,
                after=None,
                reason=_measured(job),
            )
            for job in report.snapshot.jobs
            if (job.name in before) != (job.name in self._missed)
        ]

    def _alarm_events(self, report: CycleReport) -> list[AlarmEventStatus]:
        before, earlier = self._alarms, self._earlier_texts
        self._alarms = {(one.source, str(one.key)): one.text for one in report.raised}
        self._earlier_texts = ()
        raised = [(*name, text) for name, text in self._alarms.items() if name not in before]
        cleared = [(*name, text) for name, text in before.items() if name not in self._alarms]
        cleared += [("", "", text) for text in earlier if text not in report.alarms]
        found = [("raised", *one) for one in raised if one[-1] not in earlier]
        found += [("cleared", *one) for one in cleared]
        return [
            AlarmEventStatus(
                cycle=report.snapshot.cycle,
                now_s=report.snapshot.now_s,
                wall_time=report.wall_time,
                source=source,
                key=key,
                kind=kind,
                text=text,
            )
            for kind, source, key, text in found
        ]


def point(report: CycleReport) -> CyclePoint:
    """The cycle as a point of every curve."""
    snapshot, node = report.snapshot, node_of(report.snapshot)
    return CyclePoint.of(
        snapshot,
        node,
        schema_version=SCHEMA_VERSION,
        now=report.wall_time,
        jobs=tuple(map(_job_point, snapshot.jobs)),
        shadow=_shadow_point(report.shadow),
    )


def _shadow_point(shadow: Shadow | None) -> ShadowPoint | None:
    if shadow is None or shadow.trouble is not None:
        return None
    return ShadowPoint(
        policy=shadow.policy,
        limit_cores={name: limits.cpu_cores for name, limits in shadow.limits.items()},
    )


def _job_point(job: JobView) -> JobPoint:
    latency_s, ratio = latency_of(job)
    return JobPoint(
        name=job.name,
        state=job.state.value,
        measured_s=latency_s,
        requests=job.progress.recent.count,
        ratio=ratio,
        metric=metric_of(job),
        limit_cores=job.actual.cpu_cores if job.runs else None,
        usage_cores=job.usage.cpu_cores,
    )


def _missed(report: CycleReport, before: set[str]) -> set[str]:
    """Jobs whose latency target is missed. Within the band above the target nothing changes, so
    that a latency about the target does not flap; nor does it while the latency is unknown."""
    return {
        job.name for job in report.snapshot.jobs if _is_missed(job, was_missed=job.name in before)
    }


def _is_missed(job: JobView, *, was_missed: bool) -> bool:
    if failing(job) is not None:
        return True
    _, ratio = latency_of(job)
    if ratio is None:
        return was_missed
    found = judged(ratio)
    return found is Judged.SLOW or (was_missed and found is Judged.JUST_ABOVE)


def _measured(job: JobView) -> str:
    if (fails := failing(job)) is not None:
        return fails
    within, target = bounds_of_latency(job), target_of(job.spec.target)
    if target is None or within is None:
        return ""
    over = measurements(job.progress.recent.count, target)
    return f"{render_within(within.lowest_s, within.most_s)} over {over}, target {target.text}"
