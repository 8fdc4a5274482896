"""Users' subfolders of the watch folder: hostile files, hostile folders, and one job's name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dlsched.config.inbox import files as job_files
from dlsched.config.inbox import scan as inbox
from dlsched.config.inbox.files import USER_ENTRIES_MAX
from dlsched.config.inbox.scan import Inbox, InboxScan
from dlsched.config.users import Rules, Tenants

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can give files to other users, as these tests do"
)
ALICE, BOB = 60001, 60002
TENANTS = Tenants(Rules(images=("a",), run_as="anybody"))


class House:
    """A watch folder with a subfolder a user, and an inbox that is scanned once a second."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir()
        for name, uid in (("alice", ALICE), ("bob", BOB)):
            (folder / name).mkdir()
            os.chown(folder / name, uid, uid)
        self.now_s = 100.0
        self.begin()

    def begin(self) -> None:
        """As after a restart: only the claims are remembered."""
        claims = self.scan().claims if hasattr(self, "inbox") else {}
        self.inbox = Inbox(self.folder, TENANTS, claims)

    def write(self, file: str, job: str, more: str = "", uid: int | None = None) -> Path:
        path = self.folder / file
        path.write_text(f"name: {job}\nimage: a\n{more}")
        owner = {"alice": ALICE, "bob": BOB}.get(path.parent.name, 0) if uid is None else uid
        os.chown(path, owner, owner)
        return path

    def scan(self, after_s: float = 0.0) -> InboxScan:
        self.now_s += after_s
        return self.inbox.scan(self.now_s)

    def settle(self, cycles: int = 6) -> InboxScan:
        for _ in range(cycles):
            scan = self.scan(1.0)
        return scan


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path / "jobs.d")


def told(scan: InboxScan) -> dict[str, str]:
    return {bad.file: bad.problems[0].split(": ", 1)[1] for bad in scan.rejected}


def test_a_users_file_is_in_force_with_its_owner(house: House) -> None:
    house.write("alice/a.yaml", "job-a")
    house.write("b.yaml", "job-b")
    scan = house.settle()
    assert {spec.name: spec.owner for spec in scan.specs} == {"job-a": ALICE, "job-b": 0}
    assert scan.files == {"job-a": "alice/a.yaml", "job-b": "b.yaml"}


def test_the_owner_is_in_no_digest(house: House) -> None:
    house.write("alice/a.yaml", "job-a")
    mine = house.settle().specs[0]
    (house.folder / "alice/a.yaml").unlink()
    house.write("a.yaml", "job-a")
    theirs = house.settle().specs[0]
    assert (mine.owner, theirs.owner) == (ALICE, 0)
    assert (mine.digest, mine.container_digest) == (theirs.digest, theirs.container_digest)


def test_rules_bind_users_and_not_the_operator(house: House) -> None:
    house.write("alice/a.yaml", "job-a", "ports: ['80:80']\n")
    house.write("a.yaml", "job-b", "ports: ['80:80']\n")
    scan = house.settle()
    assert [spec.name for spec in scan.specs] == ["job-b"]
    assert scan.rejected[0].problems == (
        (
            f"alice/a.yaml:3:9: ports[0]: uid {ALICE} may not publish the host port 80: none is "
            "allowed"
        ),
    )


def test_without_rules_a_users_file_is_refused_and_a_subfolder_not_read(house: House) -> None:
    house.inbox = Inbox(house.folder)
    house.write("alice/a.yaml", "job-a")
    house.write("a.yaml", "job-b", uid=ALICE)
    assert told(house.settle()) == {
        "a.yaml": f"belongs to uid {ALICE}, for whom the setting `tenants` has no rules"
    }


def test_rules_that_are_taken_back_end_nothing(house: House) -> None:
    house.write("alice/a.yaml", "job-a")
    house.settle()
    house.inbox.use(Tenants())
    scan = house.settle()
    assert [spec.name for spec in scan.specs] == ["job-a"]
    assert list(told(scan)) == ["alice/a.yaml"]
    house.begin()
    house.inbox.use(Tenants())
    scan = house.settle()
    assert scan.specs == ()
    assert scan.rejected[0].file == "alice/a.yaml", "after a restart its container is left alone"


def test_a_subfolder_of_the_operator_is_none(house: House) -> None:
    (house.folder / "retired").mkdir()
    house.write("retired/a.yaml", "job-a", uid=0)
    scan = house.settle()
    assert (scan.specs, scan.rejected, scan.closed) == ((), (), {})


# ------------------------------------------------------------------------------ hostile files


def _hard_link(house: House) -> None:
    house.write("alice/x.yaml", "job-x")
    os.link(house.folder / "alice/x.yaml", house.folder / "alice/other")


def _sparse(house: House) -> None:
    with house.write("alice/x.yaml", "job-x").open("wb") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize(("make", "said"), [
    (lambda house: house.write("alice/x.yaml", "job-x", uid=BOB),
     f"belongs to uid {BOB}, but the folder to uid {ALICE}"),
    (lambda house: house.write("alice/x.yaml", "job-x", uid=0),
     f"belongs to uid 0, but the folder to uid {ALICE}"),
    (_hard_link, "has several names (hard links): copy the file instead"),
    (lambda house: house.write("alice/x.yaml", "job-x").chmod(0o666),
     "may be written by everybody: `chmod o-w` the file"),
    (lambda house: (house.folder / "alice/x.yaml").symlink_to("/etc/shadow"),
     "is a symbolic link: put the job file itself into the folder"),
    (lambda house: os.mkfifo(house.folder / "alice/x.yaml"),
     "is not a regular file: put the job file itself into the folder"),
    (lambda house: os.mknod(house.folder / "alice/x.yaml", 0o20666, os.makedev(1, 5)),
     "is not a regular file: put the job file itself into the folder"),
    (_sparse, "has more than 256 KiB"),
])  # fmt: skip
def test_a_hostile_file_is_refused_and_blocks_nobody(
    house: House, make: Callable[[House], None], said: str
) -> None:
    make(house)
    house.write("bob/b.yaml", "job-b")
    scan = house.settle()
    assert [spec.name for spec in scan.specs] == ["job-b"]
    assert told(scan) == {"alice/x.yaml": said}
    assert scan.settled, "the operator's jobs are known all the same"


@pytest.mark.parametrize(("make", "name", "said"), [
    (lambda path: path.symlink_to("/etc/shadow"), "secret.env", "is a symbolic link"),
    (lambda path: path.write_text("A=roots\n"), "secret.env", (
        "belongs to uid 0, but the job file "
        "to"
    )),
    (lambda path: os.link("/etc/shadow", path), "secret.env", (
        "belongs to uid 0, but the job file "
        "to"
    )),
    (os.mkfifo, "secret.env", "is not a regular file"),
    (lambda _: None, "/etc/shadow", (
        "must be in the folder of the job file, as it is a user's file"
    )),
    (lambda _: None, "../bob/b.env", (
        "must be in the folder of the job file, as it is a user's file"
    )),
    (lambda _: None, "..", "must be in the folder of the job file, as it is a user's file"),
    (lambda _: None, "absent.env", "does not exist"),
])  # fmt: skip
def test_the_agent_reads_no_other_file_for_a_user(
    house: House, make: Callable[[Path], None], name: str, said: str
) -> None:
    try:
        make(house.folder / "alice" / "secret.env")
    except OSError as error:  # another file system: no hard link to there can be made at all
        pytest.skip(f"no hard link to that file: {error.strerror}")
    (house.folder / "bob" / "b.env").write_text("A=bobs\n")
    house.write("alice/a.yaml", "job-a", f"env_file: {name}\n")
    scan = house.settle()
    assert scan.specs == ()
    assert f"env_file[0]: '{name}' cannot be read: {said}" in scan.rejected[0].problems[0]


def test_what_env_files_take_to_read_is_bounded_and_counted(house: House) -> None:
    (house.folder / "alice" / "a.env").write_text(f"A={'b' * 60_000}\n")
    os.chown(house.folder / "alice" / "a.env", ALICE, ALICE)
    house.write("alice/many.yaml", "job-m", f"env_file: [{'a.env, ' * 4000}]\n")
    many = "env_file: has 4000 entries, the limit is 8"
    assert told(house.settle()) == {"alice/many.yaml": many}
    house.write("alice/a.yaml", "job-a", f"env_file: [{'a.env, ' * 8}]\n")
    assert [spec.name for spec in house.settle().specs] == ["job-a"]
    house.write("alice/b.yaml", "job-b")
    waits = [house.scan(1.0).unsettled for _ in range(7)]
    assert waits[0] == ("alice/b.yaml",)


def test_a_name_stays_with_the_folder_whose_file_is_renamed(house: House) -> None:
    house.write("prod.yaml", "prod")
    house.write("bob/b.yaml", "bobs")
    house.settle()
    house.write("alice/p.yaml", "prod")
    house.write("alice/b.yaml", "bobs")
    house.settle(10)
    (house.folder / "prod.yaml").rename(house.folder / "web.yaml")
    (house.folder / "bob/b.yaml").rename(house.folder / "bob/c.yaml")
    assert house.settle(10).files == {"prod": "web.yaml", "bobs": "bob/c.yaml"}
    (house.folder / "web.yaml").unlink()
    assert house.settle().files == {"prod": "alice/p.yaml", "bobs": "bob/c.yaml"}


def test_of_two_newcomers_the_operators_has_the_name(house: House) -> None:
    house.write("alice/a.yaml", "prod")
    house.write("prod.yaml", "prod")
    assert house.settle().files == {"prod": "prod.yaml"}


def test_a_users_own_env_file_is_read_and_followed(house: House) -> None:
    env = house.folder / "alice" / "a.env"
    env.write_text("A=1\n")
    os.chown(env, ALICE, ALICE)
    house.write("alice/a.yaml", "job-a", "env_file: a.env\n")
    assert house.settle().specs[0].container.environment == (("A", "1"),)
    env.write_text("A=22\n")
    assert house.settle().specs[0].container.environment == (("A", "22"),)


def test_a_wrong_file_of_a_user_tells_a_few_problems(house: House) -> None:
    more = "".join(f"unknown{number}: 1\n" for number in range(40))
    house.write("alice/a.yaml", "job-a", more)
    problems = house.settle().rejected[0].problems
    assert len(problems) == 6
    assert problems[-1] == "alice/a.yaml: 35 more problems: see `dlsched check`"


# ---------------------------------------------------------------------------- hostile folders


def _full(house: House) -> None:
    for number in range(USER_ENTRIES_MAX + 1):
        (house.folder / "alice" / f"{number}.yaml").touch()


@pytest.mark.parametrize(("close", "said"), [
    (_full, "/alice is not read: it holds more than 100 entries"),
    (lambda house: (house.folder / "alice").chmod(0o777),
     "/alice may be changed by others than its owner (mode 0777): `chmod 755` the folder"),
])  # fmt: skip
def test_a_closed_folder_removes_nothing_and_blocks_nobody(
    house: House, close: Callable[[House], None], said: str
) -> None:
    house.write("alice/a.yaml", "job-a")
    house.write("bob/b.yaml", "job-b")
    house.settle()
    close(house)
    (house.folder / "bob/b.yaml").unlink()
    scan = house.settle()
    assert [spec.name for spec in scan.specs] == ["job-a"]
    assert scan.closed["alice"].endswith(said)
    assert scan.settled
    house.begin()
    house.write("bob/c.yaml", "job-a")
    scan = house.settle()
    assert scan.specs == ()
    assert told(scan) == {"bob/c.yaml": "the file alice/a.yaml already has the job job-a"}
    assert scan.claims == {"job-a": "alice/a.yaml"}


def test_a_folder_that_may_not_be_listed_is_closed(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.write("alice/a.yaml", "job-a")
    house.settle()
    real = os.open

    def refuse(path: object, *rest: object, **more: object) -> int:
        if str(path).endswith("/alice"):
            raise PermissionError(13, "Permission denied")
        return real(path, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(job_files.os, "open", refuse)
    scan = house.settle()
    assert [spec.name for spec in scan.specs] == ["job-a"]
    assert scan.closed == {"alice": f"{house.folder}/alice cannot be listed: Permission denied"}


def test_a_folder_swapped_for_a_link_is_not_followed(house: House) -> None:
    house.write("bob/b.yaml", "job-b")
    house.settle()
    (house.folder / "bob").rename(house.folder.parent / "away")
    (house.folder / "bob").symlink_to(house.folder.parent / "away")
    assert house.settle().specs == (), "its owner's jobs are gone with it"


def test_one_who_writes_without_end_keeps_nobody_waiting(house: House) -> None:
    for number in range(USER_ENTRIES_MAX):
        house.write(f"alice/{number:03}.yaml", f"job-{number}", "# " + "x" * 200_000 + "\n")
    house.scan(1.0)
    house.write("bob/b.yaml", "job-b")
    reads: list[str] = []
    real = inbox.read_job_file

    def counted(folder: Path, name: str, stamp: job_files.Stamp) -> job_files.JobFile:
        reads.append(name)
        return real(folder, name, stamp)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inbox, "read_job_file", counted)
        for _ in range(100):
            scan = house.scan(0.02)
            assert scan.next_s is None or scan.next_s > house.now_s, "the loop is not hurried"
    assert "job-b" in scan.files
    assert sum(name.startswith("alice/") for name in reads) <= 2


# ---------------------------------------------------------------------------- one name, two


def test_a_name_stays_its_owners_over_restarts_whoever_comes_first_by_name(house: House) -> None:
    house.write("bob/b.yaml", "job-x")
    house.settle()
    house.write("alice/a.yaml", "job-x", "weight: 1\n")
    assert house.settle().files == {"job-x": "bob/b.yaml"}
    house.begin()
    for _ in range(10):
        scan = house.scan(0.2)
        assert scan.files in ({}, {"job-x": "bob/b.yaml"})
    assert told(scan) == {"alice/a.yaml": "the file bob/b.yaml already has the job job-x"}


def test_a_name_is_kept_for_a_file_that_is_wrong_now(house: House) -> None:
    path = house.write("bob/b.yaml", "job-x")
    house.settle()
    path.write_text("name: [")
    house.begin()
    house.write("alice/a.yaml", "job-x")
    scan = house.settle()
    assert (scan.specs, sorted(told(scan))) == ((), ["alice/a.yaml", "bob/b.yaml"])


def test_a_name_is_free_again_when_its_file_is_gone(house: House) -> None:
    house.write("bob/b.yaml", "job-x")
    house.write("alice/a.yaml", "job-x")
    first = house.settle().files["job-x"]
    (house.folder / first).unlink()
    house.begin()
    scan = house.settle()
    assert scan.files["job-x"] != first
    assert scan.claims == scan.files


def test_nobody_gets_the_operators_name_either(house: House) -> None:
    house.write("z.yaml", "job-x")
    house.settle()
    house.begin()
    house.write("alice/a.yaml", "job-x")
    assert house.settle().files == {"job-x": "z.yaml"}
