"""The whole way once: a lock in a real container is named, and nothing else is."""

from __future__ import annotations

import pytest

from benchmarks.real.bottleneck import SCENES, Scene, run, watch
from benchmarks.real.scene import stranger, typed
from dlsched.model.bottleneck import Cause
from tools.base_image import BASE
from tools.session import Session

pytestmark = [pytest.mark.e2e, pytest.mark.engine, pytest.mark.long]


def test_a_lock_is_named(node: Session, changes_host_network: None) -> None:
    node.start("none")
    scene = next(one for one in SCENES if one.cause is Cause.LOCK)
    row = run(node, scene, 1)
    assert row.right, row


@pytest.mark.parametrize(
    ("cause", "program", "limits"),
    [
        (Cause.LOADER, "import time\nwhile True: time.sleep(0.2)", {}),
        (Cause.CPU, "while True: pass", {"nano_cpus": 100_000_000}),
    ],
    ids=["loader", "CPU"],
)
def test_a_training_that_hardly_computes_has_a_cause(
    node: Session, cause: Cause, program: str, limits: dict[str, int]
) -> None:
    node.start("none")
    container = stranger(node, BASE, "planted-training", ["python3", "-c", program], **limits)
    try:
        words = (
            "adopt",
            "planted-training",
            "--reach",
            "accuracy=0.9",
            "--metrics",
            "pattern=acc (?P<accuracy>[0-9.]+)",
        )
        typed(node, *words, "--run-dir", str(node.root / "run"))
        row = watch(node, Scene(cause, "a training", "", ()), "planted-training")
    finally:
        container.remove(force=True)
    assert row.right, row
