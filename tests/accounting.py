"""A plugin of pytest: what each case took, in wall time and in CPU time, written to one file.

    python -m pytest -p tests.accounting --account FILE

Own CPU is that of the process that runs the cases; children's is that of processes that it started
and that ended. A process that outlives its case is counted in the one in which it ends.
"""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lanes import COLLECTED, lane_of

FILE_OPTION = "--account"
_UNKNOWN = "unknown"


def _cpu_s() -> tuple[float, float]:
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime


class Accounting:
    """Measures where cases run, collects where they are reported: with xdist not the same place."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._before = _cpu_s()
        self._cases: dict[str, dict[str, Any]] = {}
        self._collected: dict[str, int] = {}

    def pytest_collection_finish(self) -> None:
        """What collecting took is no case's."""
        self._before = _cpu_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        """Add lane and CPU time to each phase's report."""
        report = yield
        after = _cpu_s()
        cost = [round(new - old, 4) for new, old in zip(after, self._before, strict=True)]
        report.account = {"lane": lane_of(item), "own_s": cost[0], "children_s": cost[1]}
        self._before = after
        return report  # type: ignore[return-value]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one phase to its case."""
        given = getattr(report, "account", {"lane": _UNKNOWN, "own_s": 0.0, "children_s": 0.0})
        case = self._cases.setdefault(
            report.nodeid,
            {"lane": given["lane"], "outcome": "passed", "begin_s": report.start}
            | dict.fromkeys(("wall_s", "own_s", "children_s"), 0.0),
        )
        case["wall_s"] += report.duration
        case["end_s"] = report.stop
        for key in ("own_s", "children_s"):
            case[key] += given[key]
        if report.failed or (report.skipped and case["outcome"] == "passed"):
            case["outcome"] = "failed" if report.failed else "skipped"
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            case["error"] = crash.message if crash else report.longreprtext

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """What a worker collected; each collects the same."""
        self._collected |= getattr(node, "workeroutput", {}).get("collected", {})

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the file; also where the session was interrupted."""
        collected = dict(session.config.stash.get(COLLECTED, {}))
        if (output := getattr(session.config, "workeroutput", None)) is not None:
            output["collected"] = collected
        if self._file is not None:
            told = {"collected": self._collected | collected, "cases": self._cases}
            self._file.write_text(json.dumps(told, indent=1), encoding="utf-8")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The file's name."""
    parser.addoption(FILE_OPTION, type=Path, help="write what each case took to this file")


def pytest_configure(config: pytest.Config) -> None:
    """A worker measures only; what it measured travels with its reports."""
    worker = hasattr(config, "workerinput")
    config.pluginmanager.register(
        Accounting(None if worker else config.getoption(FILE_OPTION)), "accounting-of-cases"
    )
