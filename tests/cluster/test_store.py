"""The store in memory keeps what every store promises."""

from __future__ import annotations

import pytest

from dlsched.cluster.store import Member, MemoryStore
from tests.cluster.store_contract import StoreContract, Stores

pytestmark = pytest.mark.timed


class TestMemory(StoreContract):
    @pytest.fixture
    def stores(self) -> Stores:
        store = MemoryStore([Member("m1")])
        return store, store
