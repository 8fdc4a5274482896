"""Job files of managers' folders, as submissions, and as jobs that the controller gets."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from dlsched.cluster.core.records import Submission
from dlsched.cluster.store import Member, MemoryStore, NotStorable, StoreError
from dlsched.cluster.submitted import FolderReport, SubmittedFolder, SubmittedJobs


class Manager:
    """A manager with a watch folder, and a clock that a test moves."""

    def __init__(self, folder: Path, store: MemoryStore, name: str = "m1") -> None:
        self.folder, self.store, self.name = folder, store, name
        self.now_s = 100.0
        self.restart()

    def restart(self) -> None:
        self.watched = SubmittedFolder(self.folder, self.store, self.name)

    def write(self, file: str, text: str) -> None:
        (self.folder / file).write_text(text)

    def scan(self, after_s: float = 0.0) -> FolderReport:
        self.now_s += after_s
        return self.watched.scan(self.now_s)

    def settle(self) -> FolderReport:
        """Scan until the folder is settled; the last report, with all changes."""
        reports = [self.scan(1.0) for _ in range(4)]
        return replace(
            reports[-1],
            submitted=tuple(job for one in reports for job in one.submitted),
            withdrawn=tuple(job for one in reports for job in one.withdrawn),
        )


class Silent(MemoryStore):
    """A store that can stop to answer."""

    silent = False

    def submit(self, submission: Submission) -> None:
        if submission.job == "long":
            raise NotStorable("long: more than 16 KiB")
        super().submit(submission)

    def submissions(self) -> dict[str, Submission]:
        if self.silent:
            raise StoreError("no manager of the swarm leads")
        return dict(super().submissions())


@pytest.fixture
def store() -> Silent:
    return Silent([Member("m1"), Member("m2")])


@pytest.fixture
def manager(tmp_path: Path, store: Silent) -> Manager:
    (tmp_path / "cluster.d").mkdir()
    return Manager(tmp_path / "cluster.d", store)


@pytest.fixture
def submitted(manager: Manager) -> Manager:
    """One whose folder has a job that is submitted."""
    manager.write("a.yaml", RESNET)
    manager.settle()
    return manager


RESNET = "name: resnet\nimage: lab/resnet\n"


def test_a_file_is_submitted_changed_and_withdrawn(manager: Manager, store: Silent) -> None:
    manager.write("a.yaml", RESNET)
    assert manager.settle().submitted == ("resnet",)
    assert store.submissions() == {"resnet": Submission("resnet", RESNET, "m1", "a.yaml")}
    assert manager.settle() == FolderReport()
    manager.write("a.yaml", RESNET + "weight: 2\n")
    assert manager.settle().submitted == ("resnet",)
    assert store.submissions()["resnet"].text.endswith("weight: 2\n")
    (manager.folder / "a.yaml").unlink()
    assert manager.settle().withdrawn == ("resnet",)
    assert store.submissions() == {}


def test_an_invalid_file_is_rejected_with_its_place_and_withdraws_nothing(
    submitted: Manager, store: Silent
) -> None:
    submitted.write("a.yaml", RESNET + "weight: none\n")
    report = submitted.settle()
    assert [line[:23] for line in report.rejected] == ["a.yaml:3:9: weight: 'no"]
    submitted.restart()
    assert submitted.settle().withdrawn == ()
    assert store.submissions()["resnet"].text == RESNET


def test_a_folder_that_cannot_be_read_withdraws_nothing(submitted: Manager, store: Silent) -> None:
    submitted.folder.rename(submitted.folder.with_name("elsewhere"))
    assert "cannot be listed" in submitted.settle().problem
    submitted.restart()
    assert submitted.settle().withdrawn == ()
    assert "resnet" in store.submissions()


def test_a_restart_withdraws_nothing_before_a_whole_scan(submitted: Manager, store: Silent) -> None:
    submitted.restart()
    assert submitted.scan().withdrawn == ()
    (submitted.folder / "a.yaml").unlink()
    submitted.restart()
    assert submitted.scan().withdrawn == ()
    assert "resnet" in store.submissions()
    assert submitted.settle().withdrawn == ("resnet",)


def test_a_file_that_was_renamed_and_broken_meanwhile_withdraws_nothing(
    submitted: Manager, store: Silent
) -> None:
    (submitted.folder / "a.yaml").rename(submitted.folder / "b.yaml")
    submitted.write("b.yaml", "name: [")
    submitted.restart()
    assert submitted.settle().withdrawn == ()
    assert "resnet" in store.submissions()


def test_a_file_under_a_new_name_withdraws_nothing(submitted: Manager, store: Silent) -> None:
    (submitted.folder / "a.yaml").unlink()
    submitted.scan()
    submitted.write("b.yaml", RESNET)
    assert submitted.scan(0.6).withdrawn == ()
    assert submitted.settle().withdrawn == ()
    assert store.submissions()["resnet"].name == "b.yaml"


def test_a_broken_file_keeps_its_job_over_a_restart(manager: Manager, store: Silent) -> None:
    manager.write("b.yaml", RESNET)
    manager.settle()
    manager.write("b.yaml", "name: [")
    manager.write("a.yaml", RESNET + "weight: 2\n")
    manager.restart()
    report = manager.settle()
    assert report.rejected[0] == "a.yaml: the file b.yaml already has the job resnet"
    assert store.submissions()["resnet"].text == RESNET


def test_of_two_managers_with_one_name_the_first_has_it(tmp_path: Path, store: Silent) -> None:
    managers = []
    for name in ("m1", "m2"):
        (tmp_path / name).mkdir()
        managers.append(Manager(tmp_path / name, store, name))
        managers[-1].write(f"{name}.yaml", RESNET)
    first, second = managers
    first.settle()
    report = second.settle()
    assert report.rejected == ("m2.yaml: the job resnet is already submitted by m1",)
    (second.folder / "m2.yaml").unlink()
    assert second.settle().withdrawn == ()
    assert store.submissions()["resnet"].by == "m1"


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_files_of_other_users_are_rejected(manager: Manager, store: Silent) -> None:
    manager.write("a.yaml", RESNET)
    os.chown(manager.folder / "a.yaml", 4711, -1)
    (manager.folder / "alice").mkdir()
    manager.write("alice/b.yaml", RESNET)
    os.chown(manager.folder / "alice", 4711, -1)
    report = manager.settle()
    (line,) = report.rejected
    assert line.startswith("a.yaml: belongs to uid 4711")
    assert store.submissions() == {}


def test_a_store_that_does_not_answer_is_a_problem_and_no_end(
    manager: Manager, store: Silent
) -> None:
    manager.write("a.yaml", RESNET)
    store.silent = True
    assert manager.settle().problem == "the store: no manager of the swarm leads"
    store.silent = False
    assert manager.settle().submitted == ("resnet",)


def test_a_file_that_cannot_be_stored_keeps_no_other_back(manager: Manager, store: Silent) -> None:
    manager.write("a.yaml", "name: long\nimage: a\n")
    manager.write("b.yaml", RESNET)
    report = manager.settle()
    assert report.rejected == ("a.yaml: long: more than 16 KiB",)
    assert report.submitted == ("resnet",)


def test_jobs_come_with_their_file_and_are_parsed_once(store: Silent) -> None:
    jobs = SubmittedJobs(store)
    store.submit(Submission("resnet", RESNET, "m1", "a.yaml"))
    found = jobs.scan(5.0)["resnet"]
    assert (found.spec.container.image, found.text, found.arrived_s) == ("lab/resnet", RESNET, 5.0)
    assert jobs.scan(6.0)["resnet"] is found
    store.submit(Submission("resnet", RESNET + "weight: 2\n", "m1", "a.yaml"))
    assert jobs.scan(7.0)["resnet"].spec.weight == 2
    assert jobs.scan(7.0)["resnet"].arrived_s == 5.0
    store.withdraw("resnet", "m1")
    assert jobs.scan(8.0) == {}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name: resnet\n", "m1:a.yaml:1:1: image: "),
        (
            "name: vgg\nimage: a\n",
            "m1:a.yaml: the file names the job 'vgg', but was submitted as resnet",
        ),
        (RESNET + "env_file: [/etc/shadow]\n", "m1:a.yaml:3:12: env_file[0]: '/etc/shadow' cannot"),
        ("name: \x1b[2J\n", "m1:a.yaml:"),
    ],
)
def test_a_submission_that_cannot_be_read_is_reported_and_keeps_the_job(
    store: Silent, text: str, problem: str
) -> None:
    store.submit(Submission("resnet", text, "m1", "a.yaml"))
    fresh = SubmittedJobs(store)
    assert fresh.scan(1.0) == {}
    assert list(fresh.unread()) == ["resnet"]
    assert fresh.problems()["resnet"].startswith(problem)
    assert "\x1b" not in fresh.problems()["resnet"]

    store.submit(Submission("resnet", RESNET, "m1", "a.yaml"))
    known = SubmittedJobs(store)
    before = known.scan(1.0)["resnet"]
    store.submit(Submission("resnet", text, "m1", "a.yaml"))
    assert known.scan(2.0)["resnet"] == before
    assert list(known.unread()) == ["resnet"]
    assert fresh.scan(3.0) == {}


def test_a_change_that_is_the_same_job_is_submitted(submitted: Manager, store: Silent) -> None:
    text = f"{RESNET}# of the vision group\n"
    submitted.write("a.yaml", text)
    assert submitted.settle().submitted == ("resnet",)
    assert store.submissions()["resnet"].text == text


@pytest.mark.parametrize("left", [True, False])
def test_a_job_whose_manager_is_none_any_more_is_told_and_taken_over(
    manager: Manager, store: Silent, left: bool
) -> None:
    store.submit(Submission("resnet", RESNET, "m2", "a.yaml"))
    assert manager.settle().rejected == ()
    if left:
        del store.members["m2"]
    else:
        store.members["m2"] = Member("m2", manages=False)
    (line,) = manager.settle().rejected
    assert line.startswith("resnet: m2, which submitted the job, is no longer a manager")
    manager.write("b.yaml", RESNET)
    assert manager.settle().rejected == ()
    assert store.submissions()["resnet"].by == "m1"
    (manager.folder / "b.yaml").unlink()
    manager.settle()
    assert store.submissions() == {}


def test_a_change_that_cannot_be_carried_is_rejected_every_time(submitted: Manager) -> None:
    submitted.write("e.env", "A=1\n")
    submitted.write("a.yaml", f"{RESNET}env_file: e.env\n")
    for _ in range(2):
        (line,) = submitted.settle().rejected
        assert "an env_file is not sent to other hosts" in line
