"""Where a Docker Engine that is in a swarm keeps its node's certificate."""

from __future__ import annotations

from pathlib import Path

from dlsched.cluster.certificates import Certificates


def swarm_certificates(docker_root: Path) -> Certificates:
    """Those of the node whose engine has this data root (`DockerRootDir` of its info)."""
    folder = docker_root / "swarm" / "certificates"
    return Certificates(
        folder / "swarm-root-ca.crt", folder / "swarm-node.crt", folder / "swarm-node.key"
    )
