"""Which jobs can go on on another node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dlsched.cluster.core.carried import unmovable_across
from dlsched.model.spec import Checkpoint, JobSpec
from tests.doubles import job_spec


def job(path: str | None = "/ckpt", *, shared: bool = False, **container: Any) -> JobSpec:
    spec = job_spec("job")
    checkpoint = None if path is None else Checkpoint("SIGUSR1", 1.0, path, shared)
    volumes = {"volumes": ("ckpt:/ckpt",), **container}
    return replace(spec, checkpoint=checkpoint, container=replace(spec.container, **volumes))


@pytest.mark.parametrize(
    "container",
    [
        {},
        {"volumes": ("ckpt:/ckpt", "/srv/images:/images:ro")},
        {"volumes": ("/srv/images:/images:z,ro", "ckpt:/ckpt:nocopy")},
        {"network": "none"},
        {"network": "bridge"},
        {"tmpfs": ("/scratch",)},
    ],
)
def test_what_goes_on_elsewhere(container: dict[str, Any]) -> None:
    assert unmovable_across(job(**container)) is None


@pytest.mark.parametrize(
    ("path", "container", "why"),
    [
        (None, {}, "the job declares no checkpoint"),
        ("/tmp", {}, "the job's checkpoint path /tmp is in no writable volume"),
        (
            "/ckpt",
            {"volumes": ("ckpt:/ckpt:ro",)},
            "the job's checkpoint path /ckpt is in no writable volume",
        ),
        (
            "/ckpt",
            {"ports": ("80:8080",)},
            "the job publishes port 80:8080, whose address would change",
        ),
        ("/ckpt", {"network": "mine"}, "the job's network mine belongs to its node"),
        ("/ckpt", {"network": "host"}, "the job's network host belongs to its node"),
        ("/ckpt", {"network": "container:x"}, "the job's network container:x belongs to its node"),
        (
            "/ckpt",
            {"volumes": ("/srv/ckpt:/ckpt",)},
            "the job writes to /srv/ckpt, a folder on its node",
        ),
        (
            "/ckpt",
            {"volumes": ("ckpt:/ckpt", "/srv/out:/out")},
            "the job writes to /srv/out, a folder on its node",
        ),
        (
            "/ckpt",
            {"volumes": ("ckpt:/ckpt", "data:/data:ro")},
            "the job's volume data stays on its node, and holds no checkpoint",
        ),
    ],
)
def test_what_cannot_go_on_elsewhere(path: str | None, container: dict[str, Any], why: str) -> None:
    assert unmovable_across(job(path, **container)) == why


@pytest.mark.parametrize("volumes", [("nfs:/ckpt",), ("/mnt/nfs:/ckpt", "/srv/images:/images:ro")])
def test_shared_storage_is_on_every_node(volumes: tuple[str, ...]) -> None:
    assert unmovable_across(job(shared=True, volumes=volumes)) is None


@pytest.mark.parametrize(
    ("volumes", "why"),
    [
        (("/mnt/nfs:/data",), "the job's checkpoint path /ckpt is in no writable volume"),
        (("/mnt/nfs:/ckpt", "/srv/out:/out"), "the job writes to /srv/out, a folder on its node"),
        (
            ("/mnt/nfs:/ckpt", "/srv/out:/ckpt/out"),
            "the job writes to /srv/out, a folder on its node",
        ),
        (
            ("nfs:/ckpt", "data:/data"),
            "the job's volume data stays on its node, and holds no checkpoint",
        ),
    ],
)
def test_only_what_holds_the_checkpoint_is_shared(volumes: tuple[str, ...], why: str) -> None:
    assert unmovable_across(job(shared=True, volumes=volumes)) == why
