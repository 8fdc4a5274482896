"""What every store of a cluster promises: the one in memory, in a played and in a real swarm."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pytest

from dlsched.cluster.core.records import (
    Record,
    RecordState,
    Request,
    Submission,
    Wanted,
)
from dlsched.cluster.store import ClusterStore, StaleRecord, StoreError

DIGEST = "0123456789abcdef" * 4
RECORD = Record("resnet", RecordState.PLACED, "node-a", digest=DIGEST)
SUBMISSION = Submission("resnet", "name: resnet\n", by="node-a", name="resnet.yaml")
Stores = tuple[ClusterStore, ClusterStore]
"""The same store, as two managers see it."""


def manager(store: ClusterStore) -> str:
    """One whose submissions are its own."""
    return min(name for name, one in store.nodes().items() if one.manages)


class StoreContract:
    """Cases for a fixture `stores`."""

    def test_of_two_first_writers_one_wins(self, stores: Stores) -> None:
        one, two = stores
        one.put(RECORD, None)
        with pytest.raises(StaleRecord, match="resnet"):
            two.put(replace(RECORD, on="node-b"), None)
        assert two.records()["resnet"].record == RECORD

    def test_a_stale_version_is_refused(self, stores: Stores) -> None:
        one, two = stores
        first = one.put(RECORD, None)
        later = replace(RECORD, on="node-b")
        second = two.put(later, first)
        assert second != first
        for change in (lambda: one.put(RECORD, first), lambda: one.remove("resnet", first)):
            with pytest.raises(StaleRecord, match="resnet"):
                change()
        assert one.records()["resnet"].record == later
        assert one.records()["resnet"].version == second
        one.remove("resnet", second)
        assert two.records() == {}
        with pytest.raises(StaleRecord, match="resnet"):
            two.put(RECORD, second)

    def test_a_version_is_never_used_again(self, stores: Stores) -> None:
        one, two = stores
        first = one.put(RECORD, None)
        two.remove("resnet", first)
        one.put(RECORD, None)
        with pytest.raises(StaleRecord):
            two.put(RECORD, first)

    def test_races_have_exactly_one_winner(self, stores: Stores) -> None:
        version = stores[0].put(RECORD, None)
        start = Barrier(len(stores), timeout=60.0)

        def write(store: ClusterStore, record: Record) -> str:
            start.wait()
            try:
                store.put(record, version)
            except StaleRecord:
                return "stale"
            return record.on

        with ThreadPoolExecutor(len(stores)) as pool:
            for epoch in range(2, 12):
                records = [replace(RECORD, epoch=epoch, on=node) for node in ("node-a", "node-b")]
                came = list(pool.map(write, stores, records))
                present = stores[1].records()["resnet"]
                assert sorted(came) == sorted([present.record.on, "stale"])
                assert present.record.epoch == epoch
                version = present.version

    def test_only_who_submitted_a_job_changes_or_withdraws_it(self, stores: Stores) -> None:
        one, two = stores
        first = manager(one)
        submission = replace(SUBMISSION, by=first)
        one.submit(submission)
        assert two.submissions() == {"resnet": submission}
        changed = replace(submission, text="name: resnet\nweight: 2\n")
        one.submit(changed)
        with pytest.raises(StaleRecord, match=f"{first} has submitted a job of that name"):
            two.submit(replace(SUBMISSION, by="node-b"))
        two.withdraw("resnet", by="node-b")
        assert two.submissions() == {"resnet": changed}
        one.withdraw("resnet", by=first)
        one.withdraw("resnet", by=first)
        assert two.submissions() == {}
        two.submit(replace(SUBMISSION, by="node-b"))
        assert one.submissions()["resnet"].by == "node-b"

    def test_a_check_says_what_submitting_would_and_writes_nothing(self, stores: Stores) -> None:
        one, two = stores
        submission = replace(SUBMISSION, by=manager(one))
        one.check(submission)
        assert two.submissions() == {}
        one.submit(submission)
        one.check(replace(submission, text="name: resnet\nweight: 2\n"))
        with pytest.raises(StaleRecord, match=f"{submission.by} has submitted a job of that name"):
            two.check(replace(SUBMISSION, by="node-b"))
        assert two.submissions() == {"resnet": submission}

    def test_what_a_manager_submitted_that_has_left_is_taken_over(self, stores: Stores) -> None:
        one, two = stores
        one.submit(replace(SUBMISSION, by="has-left"))
        taken = replace(SUBMISSION, by=manager(two))
        two.check(taken)
        two.submit(taken)
        assert one.submissions() == {"resnet": taken}

    def test_a_request_stays_until_it_is_done_or_replaced(self, stores: Stores) -> None:
        one, two = stores
        pause, forget = Request(Wanted.PAUSE), Request(Wanted.FORGET, "node-b")
        first, second = (Request(Wanted.MOVE, "resnet", node) for node in ("node-a", "node-b"))
        for request in (pause, pause, first, forget, second):
            one.ask(request)
        assert sorted(map(str, two.requests())) == sorted(map(str, (pause, forget, second)))
        two.done(first)
        assert second in one.requests()
        for request in (pause, second, forget, forget):
            two.done(request)
        assert one.requests() == []

    def test_a_node_is_drained_and_back(self, stores: Stores) -> None:
        one, two = stores
        node = min(one.nodes())
        for _ in range(2):
            one.drain(node)
        assert [name for name, each in two.nodes().items() if each.draining] == [node]
        for _ in range(2):
            two.drain(node, on=False)
        assert not any(each.draining for each in one.nodes().values())
        with pytest.raises(StoreError, match="node-9 is not a node of the "):
            one.drain("node-9")
