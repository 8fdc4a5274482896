"""The program in this process, with a daemon's API in a run directory of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dlsched.api.server import ApiServer
from dlsched.cli import main
from dlsched.config import settings_file
from dlsched.control.decider import NamedPolicy
from dlsched.policies.registry import load
from dlsched.simulation.node.workloads import Trace
from dlsched.simulation.run import simulate
from dlsched.store.journal.writer import Journal
from tests.status_source import FakeSource, example_report

Program = Callable[..., Result]


def recorded(path: Path, trace: Trace, policy: str) -> Path:
    """The journal of that trace under that policy. Its time begins with the epoch."""
    journal = Journal(path, frame_s=10.0, queue_reports=2000)
    simulate(trace, NamedPolicy(policy, load(policy)), 1, publish=journal.write)
    journal.flush()  # however long it takes: closing waits ten seconds
    journal.close()
    return path


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without dlsched: nothing of the host's own settings is read."""
    for name in ("run", "state", "jobs.d"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(settings_file, "default_settings_file", tmp_path / "absent.yaml")
    monkeypatch.setenv("DLSCHED_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("DLSCHED_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("DLSCHED_WATCH", str(tmp_path / "jobs.d"))
    for name in ("DLSCHED_CONFIG", "DLSCHED_OUTPUT", "DLSCHED_POLICY", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def source(folders: Path) -> FakeSource:
    source = FakeSource(example_report())
    source.watch = str(folders / "jobs.d")
    return source


@pytest.fixture
def daemon(source: FakeSource, folders: Path) -> Iterator[FakeSource]:
    """A daemon that answers; what was asked of it is in `asked`."""
    server = ApiServer(source, folders / "run")
    server.start()
    yield source
    server.stop()


@pytest.fixture
def program() -> Program:
    def call(*words: str, **more: object) -> Result:
        return CliRunner().invoke(main, list(words), **more)  # type: ignore[arg-type]

    return call
