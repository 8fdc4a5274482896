"""What a container takes over from the one that it replaces, beside the job's spec.

Owns what of a container is its identity to those inside and outside: its first id, its host name,
the volumes that only it knows. It must not call the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dlsched.runtime.docker.engine import Body
from dlsched.runtime.docker.identity.labels import ORIGIN, labels_in

_NO_HOST_NAME = ("host", "container:")
"""Network modes in which a container has the host name of another: the engine refuses its own."""


@dataclass(frozen=True, slots=True)
class Heritage:
    """What one container leaves to another."""

    origin: str
    """The id of the first container in the row."""
    image: str
    """The id of its image."""
    image_moved: bool = False
    """Whether the name that it was made by means another image by now."""
    host_name: str | None = None
    volumes: Mapping[str, str] = field(default_factory=dict)
    """Names of volumes by where they are mounted."""

    def give(self, body: Body) -> None:
        """Add it to the body of a create call; what the spec mounts comes first."""
        if self.image_moved:
            body["Image"] = self.image
        if self.host_name is not None:
            body.setdefault("Hostname", self.host_name)
        host = body["HostConfig"]
        taken = {mount["Target"] for mount in host["Mounts"] if mount.get("Source")}
        taken |= {bind.split(":")[1] for bind in host.get("Binds") or ()} | set(host["Tmpfs"])
        left = {place: name for place, name in self.volumes.items() if place not in taken}
        host["Mounts"] = [mount for mount in host["Mounts"] if mount["Target"] not in left]
        for place, name in sorted(left.items()):
            host["Mounts"].append({"Type": "volume", "Source": name, "Target": place})


def heritage_of(body: Body) -> Heritage:
    """What the inspected container leaves; raises what a description that is none does."""
    config, host = body["Config"], body["HostConfig"]
    mode = str(host.get("NetworkMode") or "")
    mounts = (one for one in body.get("Mounts") or () if one.get("Type") == "volume")
    return Heritage(
        origin=labels_in(body).get(ORIGIN) or str(body["Id"]),
        image=str(body["Image"]),
        host_name=None if mode.startswith(_NO_HOST_NAME) else str(config["Hostname"]),
        volumes={str(one["Destination"]): str(one["Name"]) for one in mounts},
    )
