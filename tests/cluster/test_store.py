"""The store in memory keeps what every store promises."""

from __future__ import annotations

import pytest

from dlsched.cluster.store import Member, MemoryStore, StoreError
from tests.cluster.store_contract import StoreContract, Stores

pytestmark = pytest.mark.timed


class TestMemory(StoreContract):
    @pytest.fixture
    def stores(self) -> Stores:
        store = MemoryStore([Member("m1")])
        return store, store

    def test_a_node_is_drained_and_back(self) -> None:
        store = MemoryStore([Member("a")])
        store.drain("a")
        store.drain("a")
        assert store.nodes()["a"].draining
        store.undrain("a")
        assert not store.nodes()["a"].draining
        with pytest.raises(StoreError, match="b: no node of the cluster"):
            store.drain("b")
