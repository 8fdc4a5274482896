"""One update is tried first; what it does to one container's GPUs holds for all."""

from __future__ import annotations

import threading
from pathlib import Path
from unittest.mock import Mock

import pytest

from dlsched.model.errors import EngineUnavailable
from dlsched.model.facts import GpuAccess
from dlsched.runtime.docker.gpus.canary import (
    ALARM_FILE,
    Canary,
    GpuContainer,
    Probe,
    ProbeFailed,
    Unproven,
    Unsafe,
)
from dlsched.runtime.machine.outcomes import Waits

NODE = "/dev/nvidia0"
HAS, HAS_NOT = Probe(frozenset({NODE}), frozenset()), Probe(frozenset(), frozenset({NODE}))


def held(name: str = "one", access: GpuAccess = GpuAccess.CDI, pid: int = 7) -> GpuContainer:
    return GpuContainer(f"id-{name}", name, pid, access, (NODE,))


class Eyes:
    """What the looks see, one after the other; the last one from then on."""

    def __init__(self, *sights: Probe | Exception) -> None:
        self.sights = list(sights)
        self.looks = 0

    def __call__(self, _: GpuContainer) -> Probe:
        self.looks += 1
        sight = self.sights.pop(0) if len(self.sights) > 1 else self.sights[0]
        if isinstance(sight, Exception):
            raise sight
        return sight


def test_only_the_first_of_each_way_is_looked_at() -> None:
    eyes, update = Eyes(HAS), Mock()
    canary = Canary(eyes)
    for access in (GpuAccess.CDI, GpuAccess.NODES):
        for name in ("one", "two", "three"):
            canary.update(held(name, access), update)
    assert (update.call_count, eyes.looks, canary.alarm) == (6, 4, None)


def test_after_a_loss_no_container_with_gpus_is_updated_any_more() -> None:
    update = Mock()
    canary = Canary(Eyes(HAS, HAS_NOT))
    with pytest.raises(
        Unsafe, match="one: a CPU update took the container's GPU away: it may not open /dev/"
    ):
        canary.update(held(), update)
    for access in (GpuAccess.CDI, GpuAccess.RUNTIME, GpuAccess.NODES):
        assert canary.bar(access) == canary.alarm
        with pytest.raises(Unsafe, match=r"nvidia-container-runtime\.mode=cdi"):
            canary.update(held("two", access), update)
    assert update.call_count == 1
    assert "took the container's GPU away" in (canary.lost("id-one", 7) or "")
    assert canary.lost("id-one", 8) is None  # started anew, it has them again
    assert canary.lost("id-two", 7) is None
    canary.forget("id-one")
    assert canary.lost("id-one", 7) is None


def test_a_loss_is_seen_also_where_the_call_failed() -> None:
    def fails() -> None:
        raise EngineUnavailable("timed out")

    canary = Canary(Eyes(HAS, HAS_NOT))
    with pytest.raises(Unsafe):
        canary.update(held(), fails)
    assert canary.alarm is not None
    whole = Canary(Eyes(HAS))
    with pytest.raises(EngineUnavailable):
        whole.update(held(), fails)
    assert whole.alarm is None


def test_the_legacy_way_is_never_tried() -> None:
    eyes, update = Eyes(HAS), Mock()
    canary = Canary(eyes)
    assert canary.bar(GpuAccess.LEGACY) is not None
    assert canary.bar(GpuAccess.CDI) is None
    with pytest.raises(Unsafe, match="legacy hook"):
        canary.update(held(access=GpuAccess.LEGACY), update)
    assert (update.call_count, eyes.looks) == (0, 0)


def test_where_nobody_can_look_nothing_is_tried() -> None:
    update = Mock()
    canary = Canary(Eyes(ProbeFailed("dlsched sees none of the container's GPU device nodes"), HAS))
    with pytest.raises(Unproven, match="none of the container's GPU device nodes"):
        canary.update(held(), update)
    assert update.call_count == 0
    canary.update(held("two"), update)  # another one can be looked at
    assert update.call_count == 1


def test_one_without_its_gpus_before_is_no_canary_and_is_told() -> None:
    update = Mock()
    canary = Canary(Eyes(HAS_NOT, HAS))
    with pytest.raises(Unproven, match="may not open /dev/nvidia0"):
        canary.update(held(), update)
    assert canary.lost("id-one", 7) == "the container may not open /dev/nvidia0"
    assert canary.alarm is None
    canary.update(held("two"), update)
    assert update.call_count == 1


def test_one_that_ends_meanwhile_proves_nothing() -> None:
    eyes, update = Eyes(HAS, ProbeFailed("gone"), HAS), Mock()
    canary = Canary(eyes)
    canary.update(held(), update)
    canary.update(held("two"), update)
    canary.update(held("three"), update)
    assert (update.call_count, eyes.looks) == (3, 4)


@pytest.mark.timed
def test_the_others_wait_until_the_canary_is_over() -> None:
    began, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        began.set()
        assert go_on.wait(60)

    canary, update = Canary(Eyes(HAS)), Mock()
    first = threading.Thread(target=lambda: canary.update(held(), slow))
    first.start()
    assert began.wait(60)
    for access in (GpuAccess.CDI, GpuAccess.NODES):
        with pytest.raises(
            Waits,
            match="the update waits until that of one has shown whether a container keeps its GPUs",
        ):
            canary.update(held("two", access), update)
    patient = threading.Thread(target=lambda: canary.update(held("three"), update, wait=True))
    patient.start()
    assert update.call_count == 0
    go_on.set()
    for thread in (first, patient):
        thread.join(60)
        assert not thread.is_alive()
    assert update.call_count == 1
    canary.update(held("two"), update)
    assert update.call_count == 2


def test_a_look_at_what_something_else_may_have_done() -> None:
    canary = Canary(Eyes(HAS, ProbeFailed("no"), HAS_NOT))
    for lost in (False, False, True):
        canary.check(held())
        assert (canary.lost("id-one", 7) is not None) is lost
    assert canary.alarm is None


def test_an_alarm_outlives_the_agent_until_somebody_has_seen_to_it(tmp_path: Path) -> None:
    update = Mock()
    with pytest.raises(Unsafe, match=r"mode=cdi.*remove .*/gpu-alarm and restart dlsched"):
        Canary(Eyes(HAS, HAS_NOT), tmp_path).update(held(), update)
    later = Canary(Eyes(HAS), tmp_path)
    assert "one: a CPU update took the container's GPU away" in (later.bar(GpuAccess.NODES) or "")
    with pytest.raises(Unsafe):
        later.update(held("two"), update)
    assert update.call_count == 1
    (tmp_path / ALARM_FILE).unlink()
    Canary(Eyes(HAS), tmp_path).update(held("two"), update)
    assert update.call_count == 2


@pytest.mark.parametrize("after", [HAS, ProbeFailed("gone")])
def test_an_agent_that_is_killed_between_update_and_look_leaves_an_alarm(
    tmp_path: Path, after: Probe | Exception
) -> None:
    left: list[str | None] = []

    def change() -> None:
        left.append(Canary(Eyes(HAS), tmp_path).alarm)  # what the next agent finds

    canary = Canary(Eyes(HAS, after), tmp_path)
    canary.update(held(), change)
    assert str(left[0]).startswith(
        "one: unknown whether a CPU update took the container's GPU away; from now"
    )
    assert f"remove {tmp_path}/gpu-alarm" in str(left[0])
    assert Canary(Eyes(HAS), tmp_path).alarm is None


def test_an_alarm_that_cannot_be_read_is_one(tmp_path: Path) -> None:
    (tmp_path / ALARM_FILE).mkdir()
    assert "gpu-alarm cannot be read" in (Canary(Eyes(HAS), tmp_path).alarm or "")
    (tmp_path / ALARM_FILE).rmdir()
    (tmp_path / ALARM_FILE).write_bytes(b"\x1b[2J\xff" + b"a" * 5000)
    alarm = Canary(Eyes(HAS), tmp_path).alarm or ""
    assert alarm.isprintable()
    assert len(alarm) <= 1000
    (tmp_path / ALARM_FILE).write_bytes(b"")
    assert Canary(Eyes(HAS), tmp_path).alarm is not None
    assert Canary(Eyes(HAS), tmp_path / "none").alarm is None
