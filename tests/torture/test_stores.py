"""Small files survive a death at every step of their writing; needs no engine."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.torture.points import Order, give_order, listed
from tests.torture.stores import STORES, change

pytestmark = pytest.mark.timed

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.torture.stores"])


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """In memory where that can be: ten thousand times to the disk would take minutes."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="dlsched-", dir="/dev/shm") as folder:
        yield Path(folder)


def made(name: str, folder: Path, order: Order | None) -> int | None:
    orders = folder.with_name(f"{folder.name}-orders")
    orders.mkdir(exist_ok=True)
    if order is not None:
        give_order(orders, order)
    process = FORKS.Process(target=change, args=(name, str(folder), str(orders)))
    process.start()
    process.join(60)
    return process.exitcode


@pytest.mark.parametrize("name", STORES)
def test_a_death_at_any_step_leaves_the_old_or_the_new_and_nothing_else(name: str, place: Path):
    store = STORES[name]
    listing, points_file = place / "listing", place / "points"
    listing.mkdir()
    store.before(listing)
    assert made(name, listing, Order(1, list_to=str(points_file))) == 0
    points = listed(points_file)
    assert points
    for number, (point, phase) in enumerate((one, when) for one in points for when in one.deaths):
        folder = place / str(number)
        folder.mkdir()
        store.before(folder)
        assert made(name, folder, Order(1, point=point, phase=phase)) == -9, f"{phase} {point}"
        told = store.told(folder)
        assert told in store.may_be, f"{phase} {point}"
        store.change(folder)
        assert store.told(folder) == store.at_last, f"{phase} {point}"
        left = [p for p in folder.rglob("*") if p.name.endswith(".tmp") or ".new-" in p.name]
        assert not left, f"{phase} {point}"
