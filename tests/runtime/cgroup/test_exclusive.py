"""Claims of containers among instances, on trees of both cgroup versions."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dlsched.runtime.cgroup.exclusive import ExclusiveClaims
from tests.runtime.docker.fake_host import CONTAINER, FakeHost

OTHER = "f" * 64

CLAIMS = """
import sys
from pathlib import Path
from dlsched.runtime.cgroup.exclusive import ExclusiveClaims
claims = ExclusiveClaims(Path(sys.argv[1]))
print(claims.take(sys.argv[2]), flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=[False, True], ids=["v1", "v2"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path, v2=request.param).claimable()


@pytest.fixture
def claims(host: FakeHost) -> Iterator[ExclusiveClaims]:
    with closing(ExclusiveClaims(host.proc)) as one:
        yield one


@pytest.fixture
def others(host: FakeHost) -> Iterator[ExclusiveClaims]:
    with closing(ExclusiveClaims(host.proc)) as one:
        yield one


def test_one_has_it_until_it_is_released(claims: ExclusiveClaims, others: ExclusiveClaims) -> None:
    for _ in range(2):
        assert claims.take(CONTAINER)
        assert not claims.is_elsewhere(CONTAINER)
        assert others.is_elsewhere(CONTAINER)
        assert not others.take(CONTAINER)
    assert others.take(OTHER)
    claims.release(CONTAINER)
    assert others.take(CONTAINER)
    others.release_others({OTHER})
    assert claims.take(CONTAINER)
    assert not claims.take(OTHER)
    claims.close()
    assert others.take(CONTAINER)


@pytest.mark.process
def test_it_ends_with_its_process(host: FakeHost, claims: ExclusiveClaims) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", CLAIMS, host.proc, CONTAINER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with other:
        assert other.stdout.readline() == "True\n"
        assert not claims.take(CONTAINER)
        other.kill()
    assert claims.take(CONTAINER)


def test_a_lock_for_reading_is_no_claim(host: FakeHost, claims: ExclusiveClaims) -> None:
    with (host.cpu.parents[1] / "cgroup.procs").open() as file:
        fcntl.lockf(file, fcntl.LOCK_SH)  # of this process, so of another owner than the claims
        assert claims.take(CONTAINER)
        assert not claims.is_elsewhere(CONTAINER)


def test_where_nothing_can_be_locked_nothing_is_claimed(
    host: FakeHost, claims: ExclusiveClaims, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, real = list[int](), os.open

    def read_only(path: Path, flags: int) -> int:
        opened.append(flags)
        if flags & os.O_RDWR:
            raise OSError
        return real(path, flags)

    monkeypatch.setattr(os, "open", read_only)
    with closing(ExclusiveClaims(host.proc)) as reading, closing(ExclusiveClaims(None)) as none:
        assert len(opened) == 2
        assert reading.take(CONTAINER)
        assert claims.take(CONTAINER)
        assert not reading.take(CONTAINER)
        assert reading.is_elsewhere(CONTAINER)
        assert none.take(CONTAINER)
    (host.proc / "self" / "mountinfo").unlink()
    with closing(ExclusiveClaims(host.proc)) as unmounted:
        assert unmounted.take(CONTAINER)
        assert not unmounted.is_elsewhere(CONTAINER)
