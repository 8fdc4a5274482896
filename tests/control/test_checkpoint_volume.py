"""Which of a job's volumes holds its checkpoints."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.control.checkpoint_volume import MountedVolume, checkpoint_volume, volume_parts
from dlsched.model.spec import Checkpoint
from tests.doubles import job_spec


@pytest.mark.parametrize(
    ("volumes", "tmpfs", "path", "found"),
    [
        (("data:/data",), (), "/data", "data:/data"),
        (("data:/data:nocopy", "a:/a"), (), "/data/ckpt/", "data:/data:nocopy"),
        (("data:/data", "ckpt:/data/ckpt"), (), "/data/ckpt/x", "ckpt:/data/ckpt"),
        (("/srv:/data:z",), (), "/data/./ckpt", "/srv:/data:z"),
        (("data:/data", "ckpt:/data/ckpt:ro"), (), "/data/ckpt/x", None),
        (("data:/data",), ("/data/ckpt:size=1m",), "/data/ckpt", None),
        (("data:/data",), (), "/database", None),
        (("data:/data",), (), "/data/../etc", None),
        ((), (), "/data", None),
    ],
)
def test_the_deepest_writable_volume_around_it(
    volumes: tuple[str, ...], tmpfs: tuple[str, ...], path: str, found: str | None
) -> None:
    spec = replace(job_spec("job"), checkpoint=Checkpoint("SIGUSR1", 1.0, path))
    spec = replace(spec, container=replace(spec.container, volumes=volumes, tmpfs=tmpfs))
    kept = checkpoint_volume(spec)
    assert (None if kept is None else str(kept)) == found


def test_a_job_without_checkpoint_has_none() -> None:
    assert checkpoint_volume(replace(job_spec("job"), checkpoint=None)) is None


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a:/b", MountedVolume("a", "/b")),
        ("/a:/b:ro,z", MountedVolume("/a", "/b", ("ro", "z"))),
        ("a:/b:", MountedVolume("a", "/b")),
    ],
)
def test_parts(text: str, parts: MountedVolume) -> None:
    assert volume_parts(text) == parts
    assert str(parts) == text.rstrip(":")
