"""`dlsched recommend`: table, patches that dlsched and Compose read, and which cycles count."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from dlsched.config.job import parse_spec
from dlsched.model.facts import NodeFact
from dlsched.model.spec import ContainerSpec, JobSpec, LatencyTarget, Target
from dlsched.simulation.node.workloads import ServiceLoad, Shift, SimulatedJob, Trace
from dlsched.store.journal.writer import Journal
from tests.cli.conftest import Program, recorded
from tests.lanes import but_the_first_long

pytestmark = pytest.mark.timed


def _job(name: str, load: ServiceLoad, target: Target | None, *shifts: Shift) -> SimulatedJob:
    spec = JobSpec(
        name, ContainerSpec("simulated"), target=target, container_digest=name, digest=name
    )
    return SimulatedJob(spec, load, shifts=shifts)


@pytest.fixture
def journal(folders: Path) -> Path:
    """Ten minutes under `none`: the first service's load falls to a third in the middle."""
    wide = ServiceLoad(work_core_s=0.12, overhead_s=0.01, threads=4.0)
    waits = ServiceLoad(work_core_s=0.01, overhead_s=0.09, threads=1.0)
    jobs = (
        _job("asr", wide, LatencyTarget(0.1), Shift(300.0, work=1 / 3)),
        _job("far", waits, LatencyTarget(0.05)),
        _job("plain", waits, None),
    )
    trace = Trace(NodeFact(8.0, 8 << 30), jobs, 600.0)
    return recorded(folders / "state" / "journal.db", trace, "none")


def parsed(program: Program, *words: str) -> dict[str, dict]:
    result = program("recommend", *words, "-o", "json")
    assert result.exit_code == 0, result.stderr
    return {one["name"]: one for one in json.loads(result.stdout)["jobs"]}


def test_the_table_has_a_row_a_container_and_what_is_out_of_reach(
    program: Program, journal: Path
) -> None:
    result = program("recommend", env={"COLUMNS": "200"})
    assert (result.exit_code, result.stderr) == (0, "")
    heads, *lines = result.stdout.splitlines()
    columns = "NAME TARGET OVER MEASURED USED MIN MAX WEIGHT"
    assert heads.split() == columns.split()
    rows = {line.split()[0]: line for line in lines if line[:1].isalpha()}
    assert "out of reach: with all cores that the job can use (1 core)" in rows["far:"]
    assert "mean 100 ms" in rows["asr"] and "met 100%" in rows["asr"]
    assert "met 0%" in rows["far"] and "plain" in rows
    assert "no limit meets the targets of far" in result.stdout
    assert "10 min under none; 8.00 cores to divide" in result.stdout
    assert all("  9 min 59 s  " in rows[name] for name in ("asr", "far", "plain"))


def test_the_compose_patch_is_yaml_with_bounds_that_dlsched_reads(
    program: Program, journal: Path
) -> None:
    result = program("recommend", "--format", "compose")
    services = yaml.safe_load(result.stdout)["services"]
    floor = float(services["asr"]["labels"]["dlsched.cpus.min"])
    assert floor == parsed(program)["asr"]["min_cores"]
    # What no limit helps gets no promise.
    assert "dlsched.cpus.min" not in (services["far"].get("labels") or {})
    assert "# out of reach: with all cores that the job can use" in result.stdout


def test_the_job_patch_fits_into_a_job_file(program: Program, journal: Path) -> None:
    documents = yaml.safe_load_all(program("recommend", "--format", "job").stdout)
    jobs = {one["name"]: one for one in documents}
    assert jobs.keys() == {"asr", "far", "plain"}
    text = yaml.safe_dump({**jobs["asr"], "image": "busybox", "target": {"latency": "100ms"}})
    floor = parse_spec(text, "asr.yaml").bounds.floor_cores
    assert floor == parsed(program)["asr"]["min_cores"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--since soon", "'soon' is not a duration"),
        ("--format xml", "'xml' is not one of"),
        ("nowhere.db", "error: nowhere.db: no such journal"),
        ("", "/state holds no journal.db or dry-run.db\n"),
    ],
)
def test_wrong_words_say_what_is_wrong(program: Program, words: str, message: str) -> None:
    result = program("recommend", *words.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


@pytest.mark.parametrize(
    "command", but_the_first_long(["recommend", "report", "usage", "trace record", "replay"])
)
def test_the_journal_of_a_dry_run_is_read_where_there_is_no_other(
    program: Program, journal: Path, command: str
) -> None:
    words = (*command.split(), str(journal.parent), *(["-p", "fair"] * (command == "replay")))
    whole = program(*words)
    assert whole.exit_code == 0
    journal.rename(journal.with_name("dry-run.db"))
    assert program(*words).stdout == whole.stdout
    Journal(journal).close()  # the daemon's own is preferred
    assert program(*words).exit_code == 1


def test_a_journal_of_no_cycles_is_no_advice(program: Program, folders: Path) -> None:
    path = folders / "state" / "journal.db"
    Journal(path, frame_s=10.0, queue_reports=10).close()
    result = program("recommend")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: no cycle of the journal could be read\n"
