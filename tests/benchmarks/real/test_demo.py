"""What the demo ends with: both readings of every policy, ours last."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import docker
import pytest
from rich.console import Console

from benchmarks.judge.services import Judged
from benchmarks.real import demo
from benchmarks.real.comparison import Comparison, Plan, PolicyRun, draw
from benchmarks.real.demo import by_model, summary
from benchmarks.real.kept import KeptServices
from tests.simulation.review.worlds import busy_node, written
from tools.session import JOURNAL, Session

PLAN = Plan(seed=1, jobs=2)
SET = draw(1, 2)
TARGETS = {job.name: 0.1 for job in SET}


def run(policy: str, ratios: tuple[float, float]) -> PolicyRun:
    judged = [
        Judged(job.name, 0.1, 0.1 * ratio, 100, 11) for job, ratio in zip(SET, ratios, strict=True)
    ]
    rolled = [(float(at_s), sum(abs(one - 1) <= 0.1 for one in ratios)) for at_s in (15, 16)]
    slo = [(float(at_s), sum(one <= 1 for one in ratios)) for at_s in (15, 16)]
    kept = KeptServices(Path("nowhere"), 1, policy, 1, TARGETS, 60.0)
    return PolicyRun(policy, judged, {}, kept, rolled, slo, 2.5, 0.5, 0.012)


def shown(table: object) -> str:
    told = io.StringIO()
    Console(width=80, file=told).print(table)
    return told.getvalue()


def compared() -> Comparison:
    runs = [
        run("none", (1.3, 0.5)),
        run("adaptive?mode=band", (1.02, 0.98)),
        run("adaptive", (0.8, 0.5)),
    ]
    return Comparison(PLAN, SET, 1.9, dict.fromkeys(TARGETS, 0.6), TARGETS, runs)


def line(text: str, start: str) -> list[str]:
    found = next(line for line in text.splitlines() if start in line)
    return [cell.strip() for cell in found.strip("│ ").split("│")]


def test_both_readings_of_each_policy_and_when_it_settled_in_each():
    text = shown(summary(compared()))
    assert line(text, "plain Docker")[1:4] == ["0 of 2", "1 of 2", "never / never"]
    assert line(text, "mode=band")[1:4] == ["2 of 2", "1 of 2", "15 / never"]
    assert "…" not in text  # it fits an ordinary terminal
    assert line(text, "adaptive (default)")[1:4] == ["0 of 2", "2 of 2", "never / 15"]


def test_a_model_with_too_few_requests_says_so():
    whole = compared()
    few = [replace(whole.runs[0].judged[0], requests=7), whole.runs[0].judged[1]]
    whole.runs[0].judged = few
    text = shown(by_model(whole))
    assert "(7 of 11" in text and "…" not in text


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """A session whose engine has no container."""
    engine = SimpleNamespace(containers=SimpleNamespace(list=lambda **_: []), close=lambda: None)
    monkeypatch.setattr(docker, "DockerClient", lambda **_: engine)
    one = Session(tmp_path, "unix:///nowhere", 4.0)
    yield one
    one.close()


@pytest.mark.long
@pytest.mark.process
def test_it_ends_with_three_lines_of_the_report_and_the_path_of_its_page(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.state_dir.mkdir()
    written(session.state_dir / JOURNAL, busy_node(120.0))
    page = tmp_path / "build" / "report.html"
    monkeypatch.setattr(demo, "REPORT_PAGE", page)
    lines = demo._report(session)
    assert lines[-1] == f"report: {page}"
    assert page.read_text().endswith("</html>\n")
    assert lines[0].startswith("Targets were met")
    assert lines[1].startswith("Plain Docker would have met them")
    assert "an estimate" in lines[1]
    assert lines[2].startswith("The model's error on this node")
    assert len(lines) == 4
