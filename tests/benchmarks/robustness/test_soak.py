"""The soak, shortened: a simulated day, and 40 s of churn on an engine of its own."""

from __future__ import annotations

import os

import pytest

from benchmarks.judge.flatness import judged
from benchmarks.publish import results
from benchmarks.robustness import soak, soak_simulated

SHORT_S = 40.0


def grown(rows: object) -> list[str]:
    """Which measures grew; a journal fills up for longer than a short run lasts."""
    return [one.measure for one in rows if not one.flat and one.measure != "journal MiB"]  # type: ignore[attr-defined]


def test_days_follow_each_other_each_with_jobs_of_its_own():
    trace = soak_simulated.trace_of(2)
    assert len(trace.jobs) == 2 * soak_simulated.JOBS_A_DAY == len({job.name for job in trace.jobs})
    for job in trace.jobs:
        day = int(job.name[3:5])
        assert job.leaves_s is not None
        assert day * 86_400 <= job.arrives_s < job.leaves_s <= (day + 1) * 86_400
    assert trace.duration_s == 2 * 86_400


@pytest.mark.long
@pytest.mark.slow
def test_a_simulated_day_leaves_nothing_behind():
    samples, facts = soak_simulated.run(1, lambda _: None, jobs_a_day=12)
    assert facts["jobs"] == 12
    assert facts["cycles"] > 2000
    assert len(samples) >= soak_simulated.SAMPLES_A_DAY // 2
    assert grown(judged(samples)) == []
    assert samples[-1].values["journal MiB"] < 16


@pytest.mark.slow
@pytest.mark.engine
def test_some_churn_with_an_engine_restart_leaves_nothing_behind(
    docker_host: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    if os.geteuid() != 0:
        pytest.skip("a private engine needs root")
    saved: list[object] = []
    monkeypatch.setattr(results, "save", lambda *args, **more: saved.append(args))
    soak.main(["--only", "real", "--seconds", str(SHORT_S)])
    told = capsys.readouterr().out
    rows = {line.split("|")[1].strip(): line for line in told.splitlines() if line.startswith("| ")}
    assert "1 engine restarts" in told
    for measure in ("RSS MiB", "descriptors", "threads", "state files"):
        assert "| yes |" in rows[measure], rows[measure]
    assert saved == [], "a short run is not quoted"


def test_a_part_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        soak.main(["--only", "imagined"])
    assert "no 'imagined'" in capsys.readouterr().err
