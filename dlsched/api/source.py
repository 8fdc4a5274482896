"""What the API reads and requests of the daemon."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from dlsched.api.cluster_schema import ClusterStatus
from dlsched.api.metrics.totals import Totals
from dlsched.api.stream import Stream
from dlsched.estimate.effect import Effect
from dlsched.model.cycle import CycleReport
from dlsched.store.journal.history import CpuUsage, Curves, Range
from dlsched.store.journal.rows import Change, Event


class StatusSource(Protocol):
    """The daemon as the API needs it: readings and requests, from any thread."""

    @property
    def stream(self) -> Stream:
        """What `/v1/stream` sends."""

    def last_report(self) -> CycleReport | None:
        """The last complete cycle; None before the first."""

    def failure(self) -> str | None:
        """What failed in the cycle before, in one line; None: it succeeded, or is the first."""

    def totals(self) -> Totals | None:
        """The same, with the loop's counters up to its end. One object a cycle."""

    def cluster(self) -> ClusterStatus | None:
        """What a cluster's controller on this host last reported; None: none has run here. Raises
        DlschedError where that cannot be read."""

    def changes(self, job: str, limit: int) -> Sequence[Change]:
        """The job's last changes, newest first."""

    def events(self, job: str, limit: int) -> Sequence[Event]:
        """The job's last events, newest first."""

    def effects(self, job: str, limit: int) -> Mapping[int, Effect]:
        """By cycle, the effects of its last changes of limits, while it has a latency target."""

    def curves(self, asked: Range, stopped: Callable[[], bool]) -> Curves:
        """That range of the journal. Raises NoJournal, and Cancelled once `stopped` is true."""

    def usage(self, from_s: float, to_s: float, stopped: Callable[[], bool]) -> CpuUsage:
        """Who used the CPU in that range. Raises as `curves`."""

    def some_effects(
        self, changes: Sequence[Change], stopped: Callable[[], bool]
    ) -> Mapping[tuple[str, int], Effect]:
        """By job and cycle, the effects that are known of these changes, and a few more."""

    def stop(self, job: str) -> None:
        """Record that the job must be stopped; raises KeyError for an unknown job."""

    def start(self, job: str) -> None:
        """Lift a recorded stop; raises KeyError for an unknown job."""

    def release(self) -> Sequence[Mapping[str, object]]:
        """Give all limits back and set no more; returns the result for each container."""

    def resume(self) -> None:
        """Set limits again after a release."""

    def adopt(self, container: str, labels: Mapping[str, str]) -> Mapping[str, object]:
        """Adopt a running container as labels of `dlsched.` ask; the fields of `Taken`. Raises
        KeyError for an unknown one."""

    def drop(self, container: str) -> Mapping[str, object]:
        """Let an adopted container go; the result of giving its limits back. Raises KeyError."""

    def found(self) -> Mapping[str, object]:
        """The adopted containers, and other running ones that no instance manages; the fields of
        `FoundContainers`."""

    def adopted_labels(self, container: str) -> Mapping[str, str]:
        """The labels that `adopt` was given; raises KeyError where it was not."""

    def logs(self, job: str, tail: int, follow: bool) -> Iterator[bytes]:
        """The job's output; raises KeyError or EngineUnavailable. A thread may wait for its next
        chunk while another closes it: that must end the wait, so it is no generator."""

    def about(self) -> Mapping[str, object]:
        """`version`, `instance`, `policy`, `shadow`, `dry_run`, `watch`, `pid`."""
