"""On which interface a container is visible, whatever it has mounted."""

from __future__ import annotations

import os
from pathlib import Path

from dlsched.runtime.wire.interfaces import _sysfs_devices


def test_the_name_of_a_mount_cannot_forge_another(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "mountinfo").write_text(
        "30 29 0:21 / /a\u2028b c ro master:2 - sysfs sysfs ro\n"
        "31 29 0:22 / /proc rw - proc proc rw\n",
        encoding="utf-8",
    )
    assert _sysfs_devices(7, tmp_path) == {os.makedev(0, 21)}
