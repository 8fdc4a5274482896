"""One version of the sources, run as a user runs it: commands, files, signals.

Owns the process of its daemon and the checkout of a commit. It must not import `dlsched`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.environment import BUILD
from tools.steps import SetupError

ROOT = BUILD.parent
CHECKOUTS = BUILD / "upgrade"
_DLSCHED = (sys.executable, "-m", "dlsched")


@dataclass(frozen=True, slots=True)
class Sources:
    """A source tree whose commands can be run."""

    commit: str
    folder: Path
    metadata: Path
    """A folder with what an installation of these sources would say of itself: entry points name
    modules, and those that are installed are of one layout only."""

    @property
    def environment(self) -> dict[str, str]:
        """This process's, in which Python finds these sources before what is installed."""
        return {**os.environ, "PYTHONPATH": os.pathsep.join((str(self.metadata), str(self.folder)))}

    def imported_from(self) -> Path:
        """The folder that `import dlsched` really finds."""
        code = "import dlsched; print(dlsched.__file__)"
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=True,
        )
        return Path(done.stdout.strip()).parent.parent

    def run(self, settings: Path, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of these sources, to its end."""
        return subprocess.run(
            [*_DLSCHED, words[0], "--config", str(settings), *words[1:]],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )


class Agent:
    """The daemon of one version."""

    def __init__(self, sources: Sources, settings: Path, log: Path) -> None:
        """Starts it; does not wait until it answers."""
        self.sources = sources
        self._settings = settings
        self._log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [*_DLSCHED, "run", "--config", str(settings), "--policy", "adaptive"],
                env=sources.environment,
                cwd=sources.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        """What it has said."""
        return self._log.read_text(errors="replace")

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of the same version."""
        return self.sources.run(self._settings, *words)

    def ask(self, *words: str) -> Any:
        """A command's answer as JSON; None: it failed."""
        done = self.command(*words, "-o", "json")
        return json.loads(done.stdout) if done.returncode == 0 else None

    def rows(self) -> dict[str, dict[str, Any]]:
        """What it says of every job, by name; raises RuntimeError once it has ended."""
        if self._process.poll() is not None:
            tail = self.log[-2000:]
            raise RuntimeError(f"the daemon ended with {self._process.returncode}:\n{tail}")
        told = self.ask("ps")
        return {} if told is None else {row["name"]: row for row in told["jobs"]}

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait(10)

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        self._process.terminate()
        try:
            return self._process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.returncode


def present(metadata: Path) -> Sources:
    """The sources that this file is of."""
    commit = f"{_git('rev-parse', '--short', 'HEAD')}{_changed()}"
    return _described(Sources(commit, ROOT, metadata))


@contextmanager
def sources_of(commit: str, metadata: Path) -> Iterator[Sources]:
    """A checkout of that commit; removed at the end. Raises SetupError where there is none."""
    name = _git("rev-parse", "--short", f"{commit}^{{commit}}")
    folder = CHECKOUTS / name
    _forget(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    _git("worktree", "add", "--detach", "--force", str(folder), name)
    try:
        yield _described(Sources(name, folder, metadata))
    finally:
        _forget(folder)


def _forget(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    _git("worktree", "prune")


def _described(sources: Sources) -> Sources:
    project: Mapping[str, Any] = tomllib.loads((sources.folder / "pyproject.toml").read_text())
    project = project["project"]
    about = sources.metadata / f"dlsched-{project['version']}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: dlsched\nVersion: {project['version']}\n"
    )
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    (about / "entry_points.txt").write_text(
        "".join(
            f"[{group}]\n" + "".join(f"{name} = {at}\n" for name, at in points.items())
            for group, points in groups.items()
        )
    )
    return sources


def _changed() -> str:
    return " and changes" if _git("status", "--porcelain", "--", "dlsched") else ""


def _git(*words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    if done.returncode != 0:
        raise SetupError(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()
