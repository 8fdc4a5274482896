"""Which containers without a spec are left alone, and which were truly given up."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from dlsched.config.inbox.desired import DesiredFolder
from dlsched.config.inbox.scan import Inbox, InboxScan
from dlsched.model.cycle import RejectedFile
from dlsched.store.jobs import NameClaim, claim_records
from tests.doubles import job_spec, running, texts

FOLDER = Path("/jobs")


class Scripted:
    """An inbox that sees what a test writes."""

    def __init__(self) -> None:
        self.sees = InboxScan(settled=True)

    def scan(self, now_s: float) -> InboxScan:
        return self.sees


@pytest.fixture
def inbox() -> Scripted:
    return Scripted()


def spared(
    inbox: Scripted, wish: DesiredFolder | None = None, source: str = "/jobs/a.yaml"
) -> str | None:
    wish = wish or DesiredFolder(cast(Inbox, inbox), FOLDER)
    return wish.scan(0.0).spares(running("a", source=source))


def test_a_removed_file_gives_its_container_up(inbox: Scripted):
    assert spared(inbox) is None


def test_a_users_file_waits_for_a_container_that_is_not_from_their_folder(inbox: Scripted):
    inbox.sees = InboxScan(settled=True, files={"a": "alice/a.yaml", "b": "b.yaml"})
    yields = DesiredFolder(cast(Inbox, inbox), FOLDER).scan(0.0).yields
    assert not yields(running("a", source="/jobs/alice/old.yaml"))
    assert yields(running("a", source="/before/alice/a.yaml")), "alice may be a watch folder there"
    assert yields(running("a", source="/jobs/bob/a.yaml"))
    assert yields(running("a", source="/jobs/a.yaml"))
    assert yields(running("a", adopted=job_spec("a"), source=""))
    assert not yields(running("b", source="/jobs/bob/b.yaml"))
    assert not yields(running("c", source="/jobs/bob/c.yaml"))


def test_a_container_of_another_folder_is_left_alone(inbox: Scripted):
    assert (
        spared(inbox, source="/elsewhere/a.yaml")
        == "its job file was in /elsewhere, but the watch folder is /jobs"
    )


def rejected(name: str, job: str | None = None) -> InboxScan:
    return InboxScan(settled=True, rejected=(RejectedFile(name, job, ("bad",)),))


@pytest.mark.parametrize(("sees", "why"), [
    (InboxScan(problem="/jobs cannot be listed: gone", settled=False),
     "/jobs cannot be listed: gone"),
    (rejected("a.yaml"), "its job file a.yaml is rejected"),
    (rejected("renamed.yaml", "a"), "its job file a.yaml is rejected"),
    (InboxScan(unsettled=("a.yaml",)), "its job file a.yaml is still being read"),
    (InboxScan(unsettled=("other.yaml",)), "not all job files have been read yet"),
    (rejected("x.yaml"), (
        "its job file a.yaml is gone, but the rejected file x.yaml may be the same "
        "job"
    )),
])  # fmt: skip
def test_what_is_not_surely_removed_is_spared(inbox: Scripted, sees: InboxScan, why: str):
    inbox.sees = sees
    assert spared(inbox) == why


def test_a_file_that_was_in_force_is_removed_whatever_others_are_like(inbox: Scripted):
    wish = DesiredFolder(cast(Inbox, inbox), FOLDER)
    inbox.sees = InboxScan(specs=(job_spec("a"),), files={"a": "a.yaml"}, settled=True)
    wish.scan(0.0)
    inbox.sees = InboxScan(
        unsettled=("churning.yaml",), rejected=(RejectedFile("x.yaml", None, ("bad",)),)
    )
    assert spared(inbox, wish) is None


def test_names_that_are_gone_with_their_containers_are_forgotten(inbox: Scripted):
    wish = DesiredFolder(cast(Inbox, inbox), FOLDER)
    for number in range(100):
        inbox.sees = InboxScan(files={f"job{number}": f"alice/{number}.yaml"}, settled=True)
        spares = wish.scan(0.0).spares
        stays = spares(running("job0", source="/jobs/alice/0.yaml"))
        assert number == 0 or stays is None, "its container is still there"
    assert len(wish._known) == 3


def test_records_of_ended_jobs_are_lifted_only_when_every_file_is_understood(inbox: Scripted):
    assert DesiredFolder(cast(Inbox, inbox), FOLDER).scan(0.0).settled
    inbox.sees = rejected("x.yaml")
    assert not DesiredFolder(cast(Inbox, inbox), FOLDER).scan(0.0).settled


# -------------------------------------------------------------------------------- users


@pytest.mark.parametrize(("sees", "alices", "bobs"), [
    (InboxScan(settled=True), None, None),
    (InboxScan(settled=True, closed={"alice": "/jobs/alice cannot be listed"}),
     "/jobs/alice cannot be listed", None),
    (InboxScan(settled=True, unsettled=("alice/x.yaml",), unsettled_users=frozenset({"alice"})),
     "not all job files have been read yet", None),
    (rejected("alice/x.yaml"),
     (
         "its job file alice/a.yaml is gone, but the rejected file alice/x.yaml may be the same "
         "job"
     ), None),
    (rejected("alice/a.yaml"),
     "its job file alice/a.yaml is rejected", None),
    (InboxScan(settled=False), *["not all job files have been read yet"] * 2),
])  # fmt: skip
def test_what_is_wrong_with_one_users_files_concerns_no_other(
    inbox: Scripted, sees: InboxScan, alices: str | None, bobs: str | None
):
    inbox.sees = sees
    assert spared(inbox, source="/jobs/alice/a.yaml") == alices
    assert spared(inbox, source="/jobs/bob/a.yaml") == bobs


def test_a_container_from_deeper_than_a_users_folder_is_not_from_here(inbox: Scripted):
    assert (
        spared(inbox, source="/jobs/alice/deep/a.yaml")
        == "its job file was in /jobs/alice/deep, but the watch folder is /jobs"
    )


def test_records_are_not_lifted_while_a_file_holds_the_name(inbox: Scripted):
    inbox.sees = InboxScan(
        settled=True,
        claims={"a": "alice/a.yaml"},
        rejected=(RejectedFile("alice/a.yaml", "a", ("bad",)),),
    )
    wish = DesiredFolder(cast(Inbox, inbox), FOLDER).scan(0.0)
    assert (wish.settled, set(wish.claimed)) == (True, {"a"})


def test_who_holds_a_name_is_kept_and_forgotten_durably(inbox: Scripted, tmp_path: Path):
    wish = DesiredFolder(cast(Inbox, inbox), FOLDER, claim_records(tmp_path))
    inbox.sees = InboxScan(settled=True, claims={"job-a": "alice/a.yaml", "job-b": "b.yaml"})
    assert wish.scan(0.0).alarms == ()
    inbox.sees = InboxScan(settled=True, claims={"job-a": "alice/z.yaml"})
    wish.scan(1.0)
    kept = claim_records(tmp_path).all()
    assert dict(kept) == {"job-a": NameClaim("job-a", "alice/z.yaml")}


def test_a_name_that_cannot_be_kept_is_told_and_holds_all_the_same(
    inbox: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    records = claim_records(tmp_path)
    wish = DesiredFolder(cast(Inbox, inbox), FOLDER, records)
    inbox.sees = InboxScan(
        settled=True, claims={"job-a": "a.yaml"}, closed={"bob": "/jobs/bob cannot be listed"}
    )

    def full(word: NameClaim) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(records, "record", full)
    seen = wish.scan(0.0)
    assert texts(seen.alarms) == (
        "/jobs/bob cannot be listed",
        "which file owns a job's name cannot be recorded: [Errno 28] No space left on device",
    )
    assert set(seen.claimed) == {"job-a"}
