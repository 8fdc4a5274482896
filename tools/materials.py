"""Writes what a release consists of: a bill of materials, CycloneDX in JSON."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tools.debian_package import ARCHITECTURE, PYTHONS, RUNTIME
from tools.environment import BUILD, ROOT
from tools.steps import run_step
from tools.wheels import debian_wheels

WRITER = BUILD / "release-venv" / "bin" / "cyclonedx-py"


def bill_of_materials(version: str, epoch_s: int, folder: Path) -> Path:
    """The bill of dlsched's wheel in `folder` and of the packages that it runs with there. Raises
    SetupError."""
    made = folder / f"dlsched-{version}.cdx.json"
    with tempfile.TemporaryDirectory(prefix="dlsched-materials-") as name:
        environment = Path(name) / "dlsched"
        run_step("environment", [sys.executable, "-m", "venv", "--without-pip", str(environment)])
        python = str(environment / "bin" / "python")
        wheels = debian_wheels(ARCHITECTURE, PYTHONS[0])
        (pip,) = wheels.glob("pip-*.whl")
        install = [sys.executable, f"{pip}/pip", "--python", python, "install", "--no-index"]
        install += ["--no-deps", "--no-compile", "--find-links", str(wheels)]
        run_step("pinned packages", [*install, "--require-hashes", "-r", str(RUNTIME)])
        run_step("dlsched", [*install, "--find-links", str(folder), f"dlsched=={version}"])
        # It builds nothing, so it does not know where the version is.
        project = Path(name) / "pyproject.toml"
        text = (ROOT / "pyproject.toml").read_text("utf-8")
        project.write_text(text.replace('dynamic = ["version"]', f'version = "{version}"'), "utf-8")
        command = [str(WRITER), "environment", "--output-reproducible", "--mc-type", "application"]
        command += ["--pyproject", str(project), "--output-file", str(made), python]
        dated = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch_s)}
        run_step("bill of materials", command, env=dated)
    return made
