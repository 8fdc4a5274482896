"""The base image: what is cut from a Debian tree, and that it holds the Python we promise."""

from __future__ import annotations

import json
from pathlib import Path

import docker
import pytest

from tools.base_image import trim


def test_trim_takes_documents_and_lists_and_leaves_the_rest(tmp_path: Path) -> None:
    compiled = "usr/lib/python3.11/json/__pycache__/decoder.pyc"
    kept = ["usr/lib/python3.11/json/__init__.py", compiled, "usr/share/zoneinfo/UTC", "var/log"]
    surplus = [
        "usr/share/doc/bash/README",
        "usr/share/man/man1/ls.1.gz",
        "var/log/dpkg.log",
    ]
    for name in [*kept[:3], *surplus]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "usr" / "bin").mkdir()
    trim(tmp_path)
    assert [name for name in kept if not (tmp_path / name).exists()] == []
    assert [name for name in surplus if (tmp_path / name).exists()] == []
    assert (tmp_path / "usr" / "bin" / "python").readlink() == Path("python3")


@pytest.mark.engine
def test_the_base_image_has_python_3_11_by_both_names(
    docker_client: docker.APIClient, base_image: str, instance: str
) -> None:
    look = "import json, sys; print(json.dumps(sys.version_info[:2]))"
    for name in ("python", "python3"):
        made = docker_client.create_container(
            base_image,
            [name, "-c", look],
            labels={"dlsched.instance": instance},
            host_config=docker_client.create_host_config(network_mode="none"),
        )
        docker_client.start(made["Id"])
        assert docker_client.wait(made["Id"], timeout=60)["StatusCode"] == 0
        assert json.loads(docker_client.logs(made["Id"])) == [3, 11]
