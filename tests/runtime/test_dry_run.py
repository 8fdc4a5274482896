"""A dry run: what reads passes through, and nothing that writes ever reaches the runtime."""

from __future__ import annotations

from typing import Any

from dlsched.model.actions import Resize
from dlsched.model.spec import Limits
from dlsched.runtime.docker.runtime import DockerRuntime
from dlsched.runtime.dry_run import DryRun

READS = {"refresh", "observe", "logs", "alarms", "check_engine", "close"}
RESIZE = Resize("a", "id-a", Limits(1.0), Limits(0.5), 1024, "late")


class Recorder:
    """A runtime that notes every call."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self.calls.append(name)


def test_what_would_write_does_nothing_and_says_so() -> None:
    inner: Any = Recorder()
    dry = DryRun(inner)
    dry.advance(1.0)
    assert dry.apply(RESIZE, 1.0).status == "withheld"
    outcomes = dry.apply_all([RESIZE, RESIZE], 1.0)
    assert [(one.status, one.detail) for one in outcomes] == [("withheld", "dry run")] * 2
    assert dry.release({"a": 1.0}) == ()
    dry.expect({"a": 1.0}, {"id-a"})
    dry.hold(None)
    dry.report_deliverable("a", True)
    assert dry.held == "dry run"
    assert inner.calls == []


def test_it_lists_containers_and_resumes_no_move() -> None:
    inner: Any = Recorder()
    DryRun(inner).resume(1.0)
    assert inner.calls == ["refresh"], "a move that it shows would never go on"


def test_what_reads_passes_through() -> None:
    inner: Any = Recorder()
    dry: Any = DryRun(inner)
    for name in sorted(READS):
        getattr(dry, name)()
    assert set(inner.calls) == READS


def test_it_has_every_method_of_the_runtime() -> None:
    methods = {name for name in vars(DockerRuntime) if not name.startswith("_")}
    dry: Any = DryRun(Recorder())  # type: ignore[arg-type]
    assert methods <= {name for name in (*vars(dry), *vars(DryRun)) if not name.startswith("_")}
