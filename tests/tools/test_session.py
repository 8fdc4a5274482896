"""A session removes what it made, and nothing else."""

from __future__ import annotations

import signal
from pathlib import Path

import docker
import pytest

from tests.daemon.test_daemon import SLEEP, reaches, spec
from tools.session import session, undivided


@pytest.mark.e2e
@pytest.mark.engine
def test_a_session_removes_what_it_made_and_nothing_else(
    docker_host: str, base_image: str, instance: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    client = docker.DockerClient(base_url=docker_host)
    try:
        stranger = client.containers.create(
            base_image, ["python"], labels={"dlsched.instance": instance}, network_mode="none"
        )
        with session() as node:
            node.start("fair")
            node.drop("alpha", spec("alpha", SLEEP))
            reaches(node, "alpha", "running")
            root, label = node.root, f"dlsched.instance={node.instance}"
        assert client.containers.list(all=True, filters={"label": label}, ignore_removed=True) == []
        assert client.containers.get(stranger.id).status == "created"
        assert not Path(root).exists()
    finally:
        client.close()


def test_a_signal_waits_until_what_is_undivided_is_done(request: pytest.FixtureRequest) -> None:
    done = []
    # In the background of a shell it would be ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    with pytest.raises(KeyboardInterrupt), undivided():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        done.append("all")
    assert done == ["all"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
