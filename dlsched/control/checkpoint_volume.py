"""Which of a job's volumes holds its checkpoints. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.model.spec import JobSpec


@dataclass(frozen=True, slots=True)
class MountedVolume:
    """One volume of a spec, in its parts."""

    source: str
    """An absolute path on the host, or a volume's name."""
    target: str
    mode: tuple[str, ...] = ()

    @property
    def writable(self) -> bool:
        return "ro" not in self.mode

    @property
    def is_bind(self) -> bool:
        """Whether it is a place on the host."""
        return self.source.startswith("/")

    def __str__(self) -> str:
        return ":".join((self.source, self.target, *filter(None, [",".join(self.mode)])))


def volume_parts(volume: str) -> MountedVolume:
    """A volume in Compose's short form, `source:target[:mode]`."""
    source, target, *modes = volume.split(":")
    return MountedVolume(source, target, tuple(filter(None, ",".join(modes).split(","))))


def checkpoint_volume(spec: JobSpec) -> MountedVolume | None:
    """The writable volume in which the checkpoint's path lies; None: it lies in none."""
    if spec.checkpoint is None:
        return None
    path = path_parts(spec.checkpoint.path)
    volumes = [volume_parts(volume) for volume in spec.container.volumes]
    mounts = [(path_parts(one.target), one if one.writable else None) for one in volumes]
    mounts += [(path_parts(tmpfs.partition(":")[0]), None) for tmpfs in spec.container.tmpfs]
    over = [mount for mount in mounts if path[: len(mount[0])] == mount[0]]
    if ".." in path or not over:
        return None
    return max(over, key=lambda mount: len(mount[0]))[1]


def path_parts(path: str) -> tuple[str, ...]:
    """The parts of an absolute path, from the root on."""
    return tuple(part for part in path.split("/") if part not in ("", "."))
