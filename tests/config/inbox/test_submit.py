"""Putting a job file in: whole or not at all, under a name that is nobody else's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dlsched.config.inbox import submit as submitting
from dlsched.config.inbox.submit import own_folder, submit
from dlsched.config.users import Owner
from dlsched.model.errors import SpecError
from dlsched.model.spec import JobSpec
from tests.config.inbox.test_scan import Desk, desk, names

__all__ = ["desk"]


def test_submit_puts_the_file_in_whole(desk: Desk) -> None:
    spec = submit("name: job-a\nimage: a\n", "a.yaml", desk.folder)
    assert spec.name == "job-a"
    assert [path.name for path in desk.folder.iterdir()] == ["a.yaml"]
    assert names(desk.settle()) == {"job-a": "a.yaml"}
    submit("name: job-a\nimage: b\n", "a.yaml", desk.folder)
    assert desk.settle().specs[0].container.image == "b"


@pytest.mark.parametrize(
    ("text", "name", "problem"),
    [
        ("name: X\nimage: a\n", "a.yaml", "a.yaml:1:7: name: 'X' is not a name"),
        ("name: job-a\nimage: a\n", "a.txt", "a.txt: is not the name of a job file"),
        ("name: job-a\nimage: a\n", "../a.yaml", "is not the name of a job file"),
        ("name: job-a\nimage: a\n", ".a.yaml", "is not the name of a job file"),
        ("name: job-a\nimage: a\n", "b.yaml", "b.yaml: is already the file of the job job-b: give"),
    ],
)
def test_submit_refuses_and_leaves_the_folder_as_it_was(
    desk: Desk, text: str, name: str, problem: str
) -> None:
    desk.write("b.yaml", "job-b")
    with pytest.raises(SpecError) as caught:
        submit(text, name, desk.folder)
    assert problem in str(caught.value)
    assert [path.name for path in desk.folder.iterdir()] == ["b.yaml"]


def test_a_refusal_puts_nothing_in(desk: Desk) -> None:
    def refuse(spec: JobSpec) -> list[tuple[tuple[str, ...], str]]:
        return [(("memory",), f"{spec.container.memory_bytes}, the node has 1")]

    with pytest.raises(SpecError) as caught:
        submit("name: job-a\nimage: a\nmemory: 8MiB\n", "a.yaml", desk.folder, refuse)
    assert str(caught.value) == "a.yaml:3:9: memory: 8388608, the node has 1"
    assert list(desk.folder.iterdir()) == []


def test_submit_into_no_folder_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        submit("name: job-a\nimage: a\n", "a.yaml", tmp_path / "none")


def test_a_users_file_goes_into_their_own_subfolder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "alice").mkdir()
    if os.geteuid() == 0:  # root's own folder is never a user's
        os.chown(tmp_path / "alice", 60001, 60001)
    mine = (tmp_path / "alice").stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert own_folder(tmp_path) == tmp_path, "root's files are the operator's"
    monkeypatch.setattr(submitting, "owner_of", lambda uid: Owner(uid, uid, "alice"))
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    assert own_folder(tmp_path) == tmp_path, "a folder of that name that is not theirs"
    monkeypatch.setattr(submitting, "owner_of", lambda uid: Owner(uid, uid, "bob"))
    assert own_folder(tmp_path) == tmp_path, "no folder of that name"
    monkeypatch.setattr(submitting, "owner_of", lambda uid: Owner(uid, uid, "alice"))
    monkeypatch.setattr(os, "geteuid", lambda: mine)
    assert own_folder(tmp_path) == tmp_path / "alice"
