"""Which containers without a spec are left alone, and which were truly given up."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from dlsched.folder_wish import FolderWish
from dlsched.inbox import Inbox, InboxScan
from dlsched.model import RejectedFile
from tests.doubles import job_spec, running

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
    inbox: Scripted, wish: FolderWish | None = None, source: str = "/jobs/a.yaml"
) -> str | None:
    wish = wish or FolderWish(cast(Inbox, inbox), FOLDER)
    return wish.scan(0.0).wish.spares(running("a", source=source))


def test_a_removed_file_gives_its_container_up(inbox: Scripted):
    assert spared(inbox) is None


def test_nothing_is_given_up_while_the_folder_cannot_be_listed(inbox: Scripted):
    inbox.sees = InboxScan(trouble="/jobs cannot be listed: gone", settled=False)
    assert spared(inbox) == "/jobs cannot be listed: gone"


def test_a_container_of_another_folder_is_left_alone(inbox: Scripted):
    assert spared(inbox, source="/elsewhere/a.yaml") == (
        "it was started from /elsewhere, not from /jobs"
    )


@pytest.mark.parametrize(
    "rejected",
    [RejectedFile("a.yaml", None, ("bad",)), RejectedFile("renamed.yaml", "a", ("bad",))],
)
def test_a_rejected_file_is_not_a_removed_one(inbox: Scripted, rejected: RejectedFile):
    inbox.sees = InboxScan(settled=True, rejected=(rejected,))
    assert spared(inbox) == "its job file a.yaml is rejected"


def test_a_file_still_being_written_is_not_a_removed_one(inbox: Scripted):
    inbox.sees = InboxScan(unsettled=("a.yaml",))
    assert spared(inbox) == "its job file a.yaml is still being read"


def test_a_restarted_agent_waits_until_the_folder_is_read(inbox: Scripted):
    inbox.sees = InboxScan(unsettled=("other.yaml",))
    assert spared(inbox) == "the job files are still being read"


def test_a_restarted_agent_spares_what_an_unreadable_file_may_be(inbox: Scripted):
    inbox.sees = InboxScan(settled=True, rejected=(RejectedFile("x.yaml", None, ("bad",)),))
    assert spared(inbox) == "its job file a.yaml is gone, but x.yaml is rejected and may be it"


def test_a_file_that_was_in_force_is_removed_whatever_others_are_like(inbox: Scripted):
    wish = FolderWish(cast(Inbox, inbox), FOLDER)
    inbox.sees = InboxScan(specs=(job_spec("a"),), files={"a": "a.yaml"}, settled=True)
    wish.scan(0.0)
    inbox.sees = InboxScan(
        unsettled=("churning.yaml",), rejected=(RejectedFile("x.yaml", None, ("bad",)),)
    )
    assert spared(inbox, wish) is None


def test_records_of_ended_jobs_are_lifted_only_when_every_file_is_understood(inbox: Scripted):
    assert FolderWish(cast(Inbox, inbox), FOLDER).scan(0.0).wish.settled
    inbox.sees = InboxScan(settled=True, rejected=(RejectedFile("x.yaml", None, ("bad",)),))
    assert not FolderWish(cast(Inbox, inbox), FOLDER).scan(0.0).wish.settled
