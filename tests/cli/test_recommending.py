"""`dlsched recommend`: table, patches that dlsched and Compose read, and which cycles count."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from dlsched.config.job import parse_spec
from dlsched.control.decider import NamedPolicy
from dlsched.model.facts import NodeFact
from dlsched.model.spec import ContainerSpec, JobSpec, LatencyTarget, Target
from dlsched.policies.registry import load
from dlsched.simulation.node.workloads import ServiceLoad, Shift, SimulatedJob, Trace
from dlsched.simulation.run import simulate
from dlsched.store.journal.writer import Journal
from tests.cli.conftest import Program
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
    path = folders / "state" / "journal.db"
    wide = ServiceLoad(work_core_s=0.12, overhead_s=0.01, threads=4.0)
    waits = ServiceLoad(work_core_s=0.01, overhead_s=0.09, threads=1.0)
    jobs = (
        _job("asr", wide, LatencyTarget(0.1), Shift(300.0, work=1 / 3)),
        _job("far", waits, LatencyTarget(0.05)),
        _job("plain", waits, None),
    )
    journal = Journal(path, frame_s=10.0, queue_reports=2000)
    trace = Trace(NodeFact(8.0, 8 << 30), jobs, 600.0)
    simulate(trace, NamedPolicy("none", load("none")), 1, publish=journal.write)
    journal.flush()  # however long it takes: closing waits ten seconds
    journal.close()
    return path


def parsed(program: Program, *words: str) -> dict[str, dict]:
    result = program("recommend", *words, "-o", "json")
    assert result.exit_code == 0, result.stderr
    return {one["name"]: one for one in json.loads(result.stdout)["jobs"]}


def test_the_table_has_a_row_a_container_and_what_is_out_of_reach(
    program: Program, journal: Path
) -> None:
    result = program("recommend", env={"COLUMNS": "200"})
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0].split() == [
        "NAME", "TARGET", "MEASURED", "USED", "MIN", "MAX", "WEIGHT", "WHY",
    ]  # fmt: skip
    rows = {line.split()[0]: line for line in lines[1:] if line[:1].isalpha()}
    assert {"asr", "far", "plain"} <= rows.keys()
    assert "mean 100 ms" in rows["asr"]
    assert "met 100%" in rows["asr"]
    assert "out of reach: with all that it can use (1 core)" in rows["far"]
    assert "met 0%" in rows["far"]
    assert "out of reach: far" in result.stdout
    assert "10 min under none; 8.00 cores to divide" in result.stdout


def test_a_narrow_terminal_has_the_reasons_below(program: Program, journal: Path) -> None:
    lines = program("recommend", env={"COLUMNS": "90"}).stdout.splitlines()
    assert lines[0].split()[-1] == "WEIGHT"
    assert max(map(len, lines)) <= 90
    assert any(line.startswith("far: out of reach: with all that it can use") for line in lines)


@pytest.mark.long
def test_since_counts_from_the_last_recorded_cycle(program: Program, journal: Path) -> None:
    whole, late = parsed(program), parsed(program, "--since", "4m")
    # The load of the first half, three times that of the second, is not in the last four minutes.
    assert late["asr"]["min_cores"] < 0.6 * whole["asr"]["min_cores"]
    assert parsed(program, str(journal)) == whole == parsed(program, str(journal.parent))


def test_the_compose_patch_is_yaml_with_bounds_that_dlsched_reads(
    program: Program, journal: Path
) -> None:
    given = parsed(program)
    result = program("recommend", "--format", "compose")
    services = yaml.safe_load(result.stdout)["services"]
    labels = services["asr"]["labels"]
    assert float(labels["dlsched.cpus.min"]) == given["asr"]["min_cores"]
    # What no limit helps gets no promise.
    assert "dlsched.cpus.min" not in (services["far"].get("labels") or {})
    assert "# out of reach: with all that it can use" in result.stdout


def test_the_job_patch_fits_into_a_job_file(program: Program, journal: Path) -> None:
    given = parsed(program)
    result = program("recommend", "--format", "job")
    documents = list(yaml.safe_load_all(result.stdout))
    assert {one["name"] for one in documents} == {"asr", "far", "plain"}
    (asr,) = [one for one in documents if one["name"] == "asr"]
    text = yaml.safe_dump({**asr, "image": "busybox", "target": {"latency": "100ms"}})
    assert parse_spec(text, "asr.yaml").bounds.floor_cores == given["asr"]["min_cores"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--since", "soon"), 2, "'soon' is not a duration"),
        (("--format", "xml"), 2, "'xml' is not one of"),
        (("nowhere.db",), 2, "error: nowhere.db: no such journal"),
    ],
)
def test_wrong_words_say_what_is_wrong(
    program: Program, journal: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    result = program("recommend", *words)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr


def test_without_a_journal_one_line_says_where_it_was_expected(
    program: Program, folders: Path
) -> None:
    result = program("recommend")
    assert result.exit_code == 2
    assert result.stderr == f"error: {folders / 'state'} holds no journal.db or dry-run.db\n"


@pytest.mark.parametrize(
    "command", but_the_first_long(["recommend", "report", "usage", "trace record"])
)
def test_the_journal_of_a_dry_run_is_read_where_there_is_no_other(
    program: Program, journal: Path, command: str
) -> None:
    words = (*command.split(), str(journal.parent))
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
    assert result.stderr == "error: no cycle could be read\n"
