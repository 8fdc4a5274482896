"""Finds Docker Compose for the tests, or installs Debian's. Standard library only, Python 3.8 and
later."""

from __future__ import annotations

import shutil
import subprocess
from typing import List

from tools import debian
from tools.steps import SetupError

PACKAGE = "docker-compose"


def ensure_compose() -> List[str]:
    """The command that starts Compose here. Raises SetupError where there is none."""
    if shutil.which("docker") is not None:
        plugin = ["docker", "compose"]
        probe = subprocess.run([*plugin, "version"], capture_output=True, check=False, timeout=30)
        if probe.returncode == 0:
            return plugin
    if shutil.which(PACKAGE) is None:
        debian.install([PACKAGE], "the Compose example")
    found = shutil.which(PACKAGE)
    if found is None:
        raise SetupError(f"{PACKAGE} was installed, but is not on the PATH")
    return [found]
