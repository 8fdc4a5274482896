"""The demo: its set, its tables, and its scene of real traffic."""

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
from benchmarks.publish import pictures
from benchmarks.real import demo
from benchmarks.real.comparison import MODELS, SPREAD, Comparison, Plan, PolicyRun, draw, spec_text
from benchmarks.real.demo import TRAFFIC, by_model, summary, traffic_table
from benchmarks.real.http_services import Measured
from benchmarks.real.kept import KeptServices
from dlsched.config.job import parse_spec
from dlsched.model.spec import LatencyTarget
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


@pytest.mark.parametrize("seed", range(20))
def test_parts_sum_to_one_and_span_at_most_a_factor_of_ten(seed):
    jobs = draw(seed)
    parts = [job.part for job in jobs]
    assert sum(parts) == pytest.approx(1.0)
    assert max(parts) / min(parts) <= SPREAD
    assert {job.model for job in jobs} == set(MODELS)
    assert draw(seed) == jobs


def test_the_job_files_are_valid():
    for job in draw(3):
        spec = parse_spec(spec_text(job, 0.0421), "demo.yaml")
        assert spec.target == LatencyTarget(0.0421)
        assert spec.name == job.name


PLAIN = [
    Measured(
        "real traffic",
        "none",
        1,
        one.name,
        1000 * one.target_s,
        912,
        0,
        9.0,
        21.0,
        0,
        0.0,
        64.2,
        900,
    )
    for one in TRAFFIC.services
]
OWN = [replace(row, policy="adaptive", updates_per_min=3.0, trainings_core_s=61.0) for row in PLAIN]


def shown_traffic(*rows: Measured) -> str:
    told = io.StringIO()
    Console(width=80, file=told).print(traffic_table(rows))
    return " ".join(told.getvalue().split())


def test_it_says_that_nobody_is_slower_and_what_it_cost() -> None:
    text = shown_traffic(*PLAIN, *OWN)
    assert "\N{HORIZONTAL ELLIPSIS}" not in text  # it fits an ordinary terminal
    assert "10 % + 2 ms: none of 6" in text
    assert "64.2 s and 61 s" in text
    assert "updates a minute: 0 and 3" in text


def test_who_is_slower_and_what_was_never_answered_are_named() -> None:
    slow = replace(OWN[0], mean_ms=12.1)
    lost = replace(OWN[1], requests=0, failed=912, mean_ms=None, p95_ms=None)
    text = shown_traffic(*PLAIN, slow, lost, *OWN[2:])
    assert f"{slow.service} (mean 12.1 ms, plain 9 ms)" in text
    assert "912 / 0" in text and "never" in text
    assert "requests that failed: 912" in text


def test_the_picture_is_drawn_also_where_nothing_was_answered(tmp_path: Path) -> None:
    lost = replace(OWN[1], requests=0, mean_ms=None, p95_ms=None)
    pictures.draw_traffic([*PLAIN, OWN[0], lost, *OWN[2:]], tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000
