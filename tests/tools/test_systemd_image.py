"""The image of a whole host: what is put into its tree, and that it is made once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools import systemd_image
from tools.steps import SetupError
from tools.systemd_image import BUSYBOX, ensure_systemd, finish


def test_the_tree_holds_an_engine_by_itself_and_a_small_image_for_it(tmp_path: Path) -> None:
    for folder in ("etc/systemd/system", "sbin", "bin", "usr/bin", "usr/share/doc/bash"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "bin" / "busybox").write_bytes(b"ELF")
    finish(tmp_path)
    assert '"bridge": "none"' in (tmp_path / "etc/docker/daemon.json").read_text()
    assert os.access(tmp_path / "sbin/first", os.X_OK)
    assert (tmp_path / "etc/systemd/system/apt-daily.timer").readlink() == Path("/dev/null")
    assert (tmp_path / BUSYBOX / "bin/sh").read_bytes() == b"ELF"
    assert not (tmp_path / "usr/share/doc/bash").exists()


@pytest.mark.engine
def test_who_cannot_make_it_is_told(
    docker_host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systemd_image, "BUILD", tmp_path)
    monkeypatch.setattr(systemd_image, "REPOSITORY", "dlsched-tests/none-such")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(SetupError, match="run as root"):
        ensure_systemd(docker_host)
