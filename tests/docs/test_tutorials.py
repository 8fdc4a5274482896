"""The tutorials, done as they are written."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest

from tests.conftest import group_for
from tests.docs.tutorial import Reader, fits

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"

Follow = Callable[[str, float], None]


@pytest.fixture
def own() -> str:
    """The name of this test's instance and containers, in place of the page's."""
    return f"tutorial-{secrets.token_hex(3)}"


@pytest.fixture
def folder() -> Iterator[Path]:
    """In place of the page's folder below /tmp; a hook that runs as nobody reaches it, too."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture
def follow(folder: Path, own: str) -> Iterator[Follow]:
    """Does what the tutorial of that name says, in a folder and under a name of this test alone."""
    outer = {"PATH", "HOME", "DOCKER_HOST", "LANG"}
    environ = {name: value for name, value in os.environ.items() if name in outer}
    if above := group_for("").removesuffix("/dlsched-"):
        environ["DLSCHED_ENGINE_CGROUP_PARENT"] = above
    reader = Reader(ROOT, {**environ, "NO_COLOR": "1", "COLUMNS": "200"})

    def done(name: str, patience_s: float) -> None:
        page = (TUTORIALS / f"{name}.md").read_text()
        for named in (f"/tmp/{name}", "/tmp/late-first"):
            page = page.replace(named, str(folder))
        reader.follow(page.replace(name, own), patience_s=patience_s)

    yield done
    reader.close()


@pytest.mark.process
def test_your_own_policy(follow: Follow) -> None:
    follow("your-own-policy", 0)


@pytest.fixture
def cleared(docker_client: docker.APIClient, own: str) -> Iterator[None]:
    """No container of this test is left, whatever happened."""
    yield
    for mine in ({"label": f"dlsched.instance={own}"}, {"name": own}):
        for container in docker_client.containers(all=True, filters=mine):
            docker_client.remove_container(container["Id"], force=True, v=True)


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["first-service", "first-training", "your-container"])
@pytest.mark.gate
def test_with_containers(cleared: None, follow: Follow, name: str) -> None:
    follow(name, 600)


@pytest.mark.parametrize(
    ("shown", "output", "right"),
    [
        (("a 0.50 ...", "b"), "a   0.55  x\nb\nmore", True),
        (("a 0.50 ...", "b"), "a   0.70  x\nb", False),
        (("a ... ok ...",), "a 0.9 ok met", True),
        (("a ... ok ...",), "a 0.9 slow met", False),
        (("...", "b"), "a\nb", True),
        (("b",), "a\nb", False),
        (("v2:Name 12ms",), "v2:Name 13ms", False),
    ],
)
def test_what_is_seen_is_compared(shown: tuple[str, ...], output: str, right: bool) -> None:
    assert fits(shown, output) == right
