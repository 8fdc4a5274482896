"""The store in memory keeps what every store promises."""

from __future__ import annotations

import pytest

from dlsched.cluster.store import MemoryStore
from tests.cluster.store_contract import StoreContract, Stores


class TestMemory(StoreContract):
    @pytest.fixture
    def stores(self) -> Stores:
        store = MemoryStore(())
        return store, store
