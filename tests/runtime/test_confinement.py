"""What a user's container may bind, as the host's folders are at the moment of its start."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from dlsched.runtime.confinement import Confinement

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can give folders to other users, as these tests do"
)
ALICE = 60001


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "srv"
    (made / "alice" / "deep").mkdir(parents=True)
    (made / "sets" / "digits").mkdir(parents=True)
    (made / "sets" / "file").write_text("x")
    for path in (made / "alice", made / "alice" / "deep"):
        os.chown(path, ALICE, ALICE)
    return made


def check(root: Path, *sources: Path | str, kept_out: tuple[str, ...] = ("/proc",)) -> None:
    Confinement(64, (str(root),), kept_out).check(tuple(f"{source}:/m" for source in sources))


def test_what_only_the_operator_can_change_is_bound_at_any_depth(root: Path) -> None:
    check(root, root, root / "sets", root / "sets" / "digits", root / "sets" / "file", "named")


def test_a_users_own_folder_is_bound_whole(root: Path) -> None:
    check(root, root / "alice")
    with pytest.raises(ValueError, match=r"other than root can change .*/alice, a folder"):
        check(root, root / "alice" / "deep")
    (root / "sets").chmod(0o777)
    with pytest.raises(ValueError, match=r"other than root can change .*/sets, a folder"):
        check(root, root / "sets" / "digits")


def test_no_link_is_followed_below_the_root(root: Path) -> None:
    (root / "out").symlink_to("/etc")
    (root / "sets" / "in").symlink_to(root / "sets" / "digits")
    for source in (root / "out", root / "sets" / "in", root / "out" / "ssl"):
        with pytest.raises(
            ValueError, match=r"(is a symbolic link|cannot be inspected: Not a dir)"
        ):
            check(root, source)


def test_a_root_that_is_itself_a_link_is_the_operators_word(root: Path) -> None:
    (root.parent / "named").symlink_to(root)
    check(root.parent / "named", root.parent / "named" / "sets")


def test_a_root_that_its_owner_could_swap_for_a_link_is_not_bound(root: Path) -> None:
    pool = root / "pool"
    pool.mkdir()
    pool.chmod(0o1777)  # as /scratch often is: who owns an entry may rename it
    (pool / "alice").mkdir()
    os.chown(pool / "alice", ALICE, ALICE)
    with pytest.raises(ValueError, match=r"other than root can change .*/pool, a folder"):
        check(pool / "alice", pool / "alice")
    (pool / "alice").rmdir()
    (pool / "alice").symlink_to("/etc")
    os.chown(pool / "alice", ALICE, ALICE, follow_symlinks=False)
    with pytest.raises(ValueError, match=r"other than root can change .*/pool, a folder"):
        check(pool / "alice", pool / "alice")
    # Nor on the way that the operator's own link takes.
    (root / "way").symlink_to("sets/../pool/alice")
    with pytest.raises(ValueError, match=r"other than root can change .*/pool, a folder"):
        check(root / "way", root / "way")
    (root / "round").symlink_to("round")
    with pytest.raises(ValueError, match="cannot be inspected: Too many levels"):
        check(root / "round", root / "round")


def test_what_is_elsewhere_or_not_there_is_refused(root: Path) -> None:
    with pytest.raises(ValueError, match="is in no folder that the job's owner may bind"):
        check(root, "/etc")
    with pytest.raises(ValueError, match="is in no folder that the job's owner may bind"):
        check(root, f"{root}x")
    with pytest.raises(ValueError, match="cannot be inspected: No such file or directory"):
        check(root, root / "absent")


@pytest.mark.timed
def test_neither_sockets_nor_pipes_are_bound(root: Path) -> None:
    os.mkfifo(root / "pipe")
    here = Path.cwd()
    os.chdir(root)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("docker.sock")
    os.chdir(here)
    for source in (root / "pipe", root / "docker.sock"):
        with pytest.raises(ValueError, match="is neither a folder nor a regular file"):
            check(root, source)


def test_what_is_kept_out_is_known_by_whatever_name(root: Path) -> None:
    (root.parent / "state").symlink_to(root / "sets")
    kept = (str(root.parent / "state"),)
    for source in (root, root / "sets", root / "sets" / "digits"):
        with pytest.raises(
            ValueError, match=r"is not bound: through it, the job could reach .*/state"
        ):
            check(root, source, kept_out=kept)
    check(root, root / "alice", kept_out=kept)
