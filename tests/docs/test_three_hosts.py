"""The tutorial of three hosts: its commands of dlsched are typed on three engines of one swarm.

A host's set-up is not, and the job is one that needs no large image.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dlsched.cluster.core.carried import unmovable_across
from dlsched.config.job import parse_spec
from tests.docs.test_tutorials import TUTORIALS
from tests.docs.tutorial import Typed, fits, steps
from tests.tools.live import needs_dockerd
from tools.base_image import BASE, ensure_base
from tools.engines import copy_images, swarm
from tools.hosts import Host, cluster, training_file
from tools.waiting import wait_for

JOB = "digits"
FOLDER, FILE = "/etc/dlsched/cluster.d", f"{JOB}.yaml"
PATIENCE_S = 90.0
_LOOKS = ("dlsched cluster status", "dlsched cluster why")


def page() -> str:
    return (TUTORIALS / "three-hosts.md").read_text()


def test_its_job_can_move() -> None:
    (text,) = re.findall(r"^```yaml\n(# digits.yaml\n.*?)^```$", page(), re.MULTILINE | re.DOTALL)
    spec = parse_spec(text, "digits.yaml")
    assert spec.name == JOB
    assert unmovable_across(spec) is None


def follow(hosts: list[Host], typed: list[Typed]) -> None:
    """Type the commands on the manager. AssertionError where something else is shown."""
    manager = hosts[0]
    own = manager.folder / FILE
    own.write_text(training_file(JOB, BASE, 1_000_000, 1 << 16))
    name = "node2"  # where the job first runs, as the page has it
    for step in typed:
        command, shown = step.command, "\n".join(step.shown)
        if command.startswith("cat > "):
            continue  # the job's file
        if command == f"rm {FOLDER}/{FILE}":
            manager.withdraw(JOB)
            continue
        command, shown = (_swap(text, "node2", name) for text in (command, shown))
        shown = shown.replace(FOLDER, str(manager.cluster))
        program, *words = (str(own) if word == FILE else word for word in command.split())
        assert program == "dlsched", command
        output = ""

        def as_shown(words: list[str] = words, shown: str = shown) -> bool:
            nonlocal output
            output = manager.ask(*words)
            return fits(tuple(shown.splitlines()), output)

        patience_s = PATIENCE_S if command.startswith(_LOOKS) else 0.0
        try:
            wait_for(as_shown, patience_s, command)
        except AssertionError as error:
            raise AssertionError(f"$ {command}\n{output}\nmeant:\n{shown}") from error
        if "submit" in words:
            wait_for(lambda: any(host.running() for host in hosts), PATIENCE_S, "the job to run")
            (name,) = (host.node.name for host in hosts if host.running())


def _swap(text: str, one: str, other: str) -> str:
    return re.sub(f"{one}|{other}", lambda found: other if found[0] == one else one, text)


@pytest.mark.slow
@pytest.mark.engine
@needs_dockerd
def test_its_commands_show_what_it_says(tmp_path: Path) -> None:
    with swarm(3, 1, tmp_path / "engines") as engines:
        first, *others = engines.nodes
        ensure_base(first.host)
        for other in others:
            copy_images(first.host, other.host, [BASE])
        sizes = [1.0] * 3
        with cluster(engines, sizes, tmp_path, "three-hosts", "adaptive", "adaptive") as hosts:
            follow(hosts, steps(page()))
