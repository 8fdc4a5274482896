"""`dlsched report`: text, JSON and page, bad input, and hostile text from containers."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from dlsched.api.review_schema import JobReview, Review
from dlsched.api.schema import SCHEMA_VERSION
from dlsched.cli.pages.report import notes, summary
from dlsched.cli.pages.report_html import page_of
from dlsched.model.cycle import CycleReport
from dlsched.model.facts import NodeFact
from dlsched.model.spec import LatencyTarget
from dlsched.review.gathering import review
from dlsched.simulation.node.workloads import ServiceLoad, Trace
from dlsched.store.journal.reader import JournalReader
from dlsched.store.journal.writer import Journal
from tests.cli.conftest import Program
from tests.review.worlds import busy_node, run, written
from tests.simulation.worlds import job

pytestmark = pytest.mark.timed

HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m\u202e]]>&"
CLEANED = "\"'><script>alert(1)</script><img src=x onerror=alert(2)> ]]>&"
_VOID = {"meta", "link"}


class Page(HTMLParser):
    """The elements of a page, which must be balanced."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("state") / "journal.db", busy_node(300.0))


@pytest.fixture
def journal(recorded: Path, folders: Path) -> Path:
    path = folders / "state" / "journal.db"
    path.write_bytes(recorded.read_bytes())
    return path


def test_the_text_has_targets_trainings_shares_changes_and_the_estimate(
    program: Program, journal: Path
) -> None:
    narrow = program("report", "--no-estimate", env={"COLUMNS": "100"}).stdout
    assert max(map(len, narrow.splitlines())) <= 110
    result = program("report", env={"COLUMNS": "200"})
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0] == "5 min until 2026-11-24 07:05:00 UTC under adaptive: 5 jobs on 4 cores"
    assert lines[1].startswith("Targets were met ")
    assert lines[2].startswith("Plain Docker would have met them ")
    assert "an estimate from the recorded load of the 2 services; recorded" in lines[2]
    assert lines[3].startswith("The model's error on this node: under the recorded limits it says")
    assert any(line.startswith("hard ") and "mean 125 ms" in line for line in lines)
    heads = [line for line in lines if "PLAIN DOCKER, ESTIMATE" in line]
    assert [line.split()[0] for line in heads] == ["SERVICE", "TRAINING"]
    assert any(line.startswith("CPU TIME") for line in lines)
    assert any(" changes: " in line and " resize" in line for line in lines)
    assert "no alarm" in lines
    assert any("note: 1 d were asked for, the record has 5 min of them" in line for line in lines)


def test_the_json_is_of_the_published_schema(program: Program, journal: Path) -> None:
    result = program("report", "--since", "2m", "-o", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    assert found["schema_version"] == SCHEMA_VERSION
    read = TypeAdapter(Review).validate_python(found)
    assert [one.name for one in read.jobs] == ["bulk-a", "bulk-b", "bulk-c", "easy", "hard"]
    assert read.recorded_s == pytest.approx(120.0, abs=1.5)
    hard = read.jobs[-1].plain_docker
    assert hard.why_not is None and hard.met_ratio is not None
    # They ran before these two minutes, so how far they were is not known.
    assert "ran before the range" in (read.jobs[0].plain_docker.why_not or "")


def test_the_page_stands_alone(program: Program, journal: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    result = program("report", "--html", str(file), env={"COLUMNS": "900"})
    assert (result.exit_code, result.stderr) == (0, f"page: {file}\n")
    text = file.read_text()
    page = Page(text)
    assert "script" not in page.tags and "iframe" not in page.tags
    assert {name for _, name, _ in page.attributes if name.startswith("on")} == set()
    links = [value for _, name, value in page.attributes if name in ("src", "href", "xlink:href")]
    assert links == ["data:,"]
    assert "http:" not in text and "https:" not in text and "@import" not in text
    assert "default-src 'none'" in text
    assert page.tags.count("svg") > 10
    assert "prefers-color-scheme: dark" in text
    said = ("Targets were", "Plain Docker", "  before and after", "  note: ")
    lines = [line for line in result.stdout.splitlines() if line.startswith(said)]
    assert len(lines) > 5
    assert all(line.removeprefix("  note: ").strip() in page.text for line in lines)
    assert [child.name for child in tmp_path.iterdir() if child.name.startswith(".")] == []


def hostile(path: Path) -> Path:
    """A journal in which each text that a container or a person writes is hostile."""
    service = job(HOSTILE, ServiceLoad(0.02, threads=1.0), LatencyTarget(0.03))
    bulk = job("b" + HOSTILE, ServiceLoad(0.5, threads=2.0), None)
    writer = Journal(path, frame_s=60.0, queue_reports=10_000)

    def spoilt(one: CycleReport) -> CycleReport:
        outcomes = tuple(
            replace(out, action=replace(out.action, why=HOSTILE), detail=HOSTILE)
            if hasattr(out.action, "why")
            else out
            for out in one.outcomes
        )
        return replace(one, policy=HOSTILE, alarms=(HOSTILE,), outcomes=outcomes, wall_time=HOSTILE)

    trace = Trace(NodeFact(2.0, 1 << 30), (service, bulk), 120.0)
    run(trace, "adaptive", lambda one: writer.write(spoilt(one)))
    writer.flush()  # however long it takes: closing waits ten seconds
    writer.close()
    return path


def test_hostile_text_is_shown_and_nothing_more(program: Program, folders: Path) -> None:
    path = hostile(folders / "state" / "journal.db")
    file = folders / "page.html"
    result = program("report", "--html", str(file))
    assert result.exit_code == 0, result.stderr
    assert "\x1b" not in result.stdout and "\u202e" not in result.stdout
    text = file.read_text()
    page = Page(text)
    assert not {"script", "img"} & set(page.tags)
    assert not any(name.startswith("on") for _, name, _ in page.attributes)
    assert CLEANED.strip() in page.text
    assert "\x1b" not in text and "\u202e" not in text
    with JournalReader(path) as reader:
        found = review(reader, 60.0)
    assert {one.name for one in found.jobs} == {HOSTILE, "b" + HOSTILE}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--since soon", "'soon' is not a duration"),
        ("--since 0s", "is out of bounds"),
        ("nowhere.db", "error: nowhere.db: no such journal"),
        ("/dev/null", "error: /dev/null: not a file"),
        ("--html nowhere/page.html", "no folder nowhere"),
        ("--html .", ". is not a regular file: it is not replaced"),
    ],
)
def test_wrong_words_say_what_is_wrong(
    program: Program, journal: Path, words: str, message: str
) -> None:
    result = program("report", *words.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


@pytest.mark.parametrize(
    "make",
    [
        lambda place, _: os.mkfifo(place),
        lambda place, other: place.symlink_to(other),
        lambda place, _: place.symlink_to("absent"),
    ],
    ids=["FIFO", "link", "broken link"],
)
def test_what_is_no_file_is_not_replaced(
    program: Program, journal: Path, tmp_path: Path, make: Callable[[Path, Path], None]
) -> None:
    other, place = tmp_path / "other", tmp_path / "page.html"
    other.write_text("mine")
    make(place, other)
    before = place.lstat().st_ino
    result = program("report", "--html", str(place))
    assert result.exit_code == 2
    assert "is not a regular file: it is not replaced" in result.stderr
    assert (place.lstat().st_ino, other.read_text()) == (before, "mine")


def test_a_page_replaces_an_older_one_whole(
    program: Program, journal: Path, tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    file.write_text("old")
    os.link(file, tmp_path / "kept")
    assert program("report", "--no-estimate", "--html", str(file)).exit_code == 0
    assert file.read_text().endswith("</html>\n")
    assert (tmp_path / "kept").read_text() == "old"
    assert stat.S_ISREG(file.lstat().st_mode)


def test_a_journal_that_may_not_be_read_is_one_line(
    program: Program, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path, *_: object, **__: object) -> object:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refused)
    result = program("report", str(journal))
    assert result.exit_code == 1
    assert result.stderr == (
        f"error: {journal}: this user may not read the journal, which holds every job's whole "
        "specification: use sudo, or let root write a page with `dlsched report --html FILE`; "
        "`dlsched usage` and `dlsched why JOB` ask the daemon\n"
    )


def test_what_can_be_read_is_shown_and_the_rest_is_an_error(
    program: Program, journal: Path
) -> None:
    with closing(sqlite3.connect(journal)) as connection, connection:
        connection.execute("UPDATE frames SET body = x'00' WHERE cycle = 200")
    result = program("report", "--no-estimate")
    assert result.exit_code == 1
    assert "cycle 200 cannot be read" in result.stderr
    assert "only what could be read counts" in result.stderr
    assert "SERVICE" in result.stdout


def test_a_page_of_no_jobs(tmp_path: Path) -> None:
    with JournalReader(written(tmp_path / "a.db", busy_node(100.0))) as reader:
        found = review(reader, 100.0)
    nothing = type(found)(**{**vars(found), "jobs": (), "begins": "never"})
    assert "0 jobs on 4 cores" in Page(page_of(nothing)).text


def test_a_page_of_very_many_jobs_is_cut_and_says_so(recorded: Path) -> None:
    with JournalReader(recorded) as reader:
        found = review(reader, 300.0, estimates=False)
    service = next(one for one in found.jobs if one.kept is not None)
    training = next(one for one in found.jobs if one.trained is not None)
    assert training.trained is not None
    trained = replace(training.trained, outlook="soon")
    jobs = [replace(service, name=f"s-{number}") for number in range(310)]
    jobs += [replace(training, name=f"t-{number}", trained=trained) for number in range(305)]
    html = page_of(replace(found, jobs=tuple(jobs)))
    assert html.count("<figure>") == 300
    cut = {count: html.count(f">{count} more: ") for count in (5, 10, 315)}
    assert cut == {5: 2, 10: 1, 315: 2}, "trainings and what comes of them; services; all"
    assert "more: " not in page_of(found)


def test_services_are_counted_that_a_sentence_is_about(recorded: Path) -> None:
    with JournalReader(recorded) as reader:
        found = review(reader, 300.0)
    service = next(one for one in found.jobs if one.name == "easy")
    assert service.kept is not None
    kept = replace(service.kept, met_s=0.0, slow_s=0.0, silent_s=300.0, met_ratio=None)
    silent = replace(service, name="silent", kept=kept)
    targets, plain, _ = summary(replace(found, jobs=(*found.jobs, silent)))
    assert "(2 services)" in targets, "one that never reported is in no ratio"
    assert "load of the 2 services; recorded of the same were" in plain
    one_less = replace(found, estimate=replace(found.estimate, jobs=1))
    targets, plain, _ = summary(one_less)
    assert "(2 services)" in targets
    assert "load of 1 of the 2 services; recorded of the same were" in plain


def test_a_remark_of_one_job_keeps_its_numbers(recorded: Path) -> None:
    with JournalReader(recorded) as reader:
        found = review(reader, 300.0, estimates=False)
    one, other = found.jobs[:2]

    def of(job: JobReview, cores: int) -> JobReview:
        remarks = (f"it can use {cores} cores, or more",)
        return replace(job, plain_docker=replace(job.plain_docker, why_not=None, remarks=remarks))

    alone = notes(replace(found, jobs=(of(one, 3),)))
    assert alone[-1] == f"estimate: it can use 3 cores, or more ({one.name})"
    both = notes(replace(found, jobs=(of(one, 3), of(other, 2))))
    assert both[-1] == f"estimate: it can use # cores, or more ({one.name}, {other.name})"
