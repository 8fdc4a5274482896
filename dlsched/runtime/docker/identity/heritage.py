"""What a replacement container takes over beside the job's spec: first id, host name, volumes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dlsched.runtime.docker.engine import Body
from dlsched.runtime.docker.identity.labels import ORIGIN, labels_in

_NO_HOST_NAME = ("host", "container:")
"""Network modes in which the engine refuses a host name of the container's own."""


@dataclass(frozen=True, slots=True)
class Heritage:
    """What one container passes on to its replacement."""

    origin: str
    """The id of the first container in the chain."""
    image: str
    """The id of its image."""
    image_moved: bool = False
    """Whether the image's name refers to another image by now."""
    host_name: str | None = None
    volumes: Mapping[str, str] = field(default_factory=dict)
    """Names of volumes by mount path."""

    def give(self, body: Body) -> None:
        """Add it to the body of a create call; the spec's own mounts have precedence."""
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
    """The heritage of an inspected container; raises whatever a malformed description causes."""
    config, host = body["Config"], body["HostConfig"]
    mode = str(host.get("NetworkMode") or "")
    mounts = (one for one in body.get("Mounts") or () if one.get("Type") == "volume")
    return Heritage(
        origin=labels_in(body).get(ORIGIN) or str(body["Id"]),
        image=str(body["Image"]),
        host_name=None if mode.startswith(_NO_HOST_NAME) else str(config["Hostname"]),
        volumes={str(one["Destination"]): str(one["Name"]) for one in mounts},
    )
