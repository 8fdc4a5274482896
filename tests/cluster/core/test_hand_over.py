"""Each row of the table of hand-overs, each point at which one can break off, and any order of
reads, writes, starts and withdrawals: a job can be started in one shard or, for the moment, in
none; it is never lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dlsched.cluster.core.hand_over import (
    TOMBSTONE_S,
    Entry,
    EntryState,
    Write,
    begin,
    may_forget,
    next_write,
    start,
    withdraw,
)
from tests.properties import examples

QUEUED = Entry("job", EntryState.QUEUED)
STARTED = replace(QUEUED, state=EntryState.STARTED)
ENDED = replace(QUEUED, state=EntryState.ENDED)
COMING = Entry("job", EntryState.COMING, 2, "a")
GONE = Entry("job", EntryState.GONE, 2, "b")
WITHDRAWN = replace(GONE, withdrawn=True)
ARRIVED = replace(COMING, state=EntryState.QUEUED, other="")
ONWARD = Entry("job", EntryState.GONE, 3, "c")

ROWS: list[tuple[str, Entry | None, Entry | None, Write | None]] = [
    ("nothing was begun", QUEUED, None, None),
    ("tombstone", QUEUED, COMING, Write("a", GONE)),
    ("it may start", GONE, COMING, Write("b", ARRIVED)),
    ("it is there", GONE, ARRIVED, None),
    ("the source started it", STARTED, COMING, Write("b", None)),
    ("it was withdrawn before", ENDED, COMING, Write("b", None)),
    ("it went elsewhere", replace(GONE, other="c"), COMING, Write("b", None)),
    ("it waits again there", replace(QUEUED, epoch=2), COMING, Write("b", None)),
    ("a newer tombstone", replace(GONE, epoch=3), COMING, Write("b", None)),
    ("it went elsewhere later", ONWARD, COMING, Write("b", None)),
    ("an old reading", QUEUED, replace(COMING, epoch=3), None),
    ("an old tombstone", GONE, replace(COMING, epoch=4), None),
    ("nothing is known of the source", None, COMING, None),
    ("it comes from another shard", QUEUED, replace(COMING, other="c"), None),
    ("the source itself waits for it", replace(COMING, epoch=1), COMING, None),
    ("withdrawn on its way", WITHDRAWN, COMING, Write("b", withdraw(COMING))),
    ("withdrawn in the queue", WITHDRAWN, ARRIVED, Write("b", withdraw(ARRIVED))),
    (
        "withdrawn when started", WITHDRAWN, replace(ARRIVED, state=EntryState.STARTED),
        Write("b", withdraw(ARRIVED)),
    ),
    ("withdrawn further on", WITHDRAWN, ONWARD, Write("b", replace(ONWARD, withdrawn=True))),
    ("the withdrawal is there", WITHDRAWN, replace(ONWARD, withdrawn=True), None),
    ("withdrawn and ended", WITHDRAWN, withdraw(ARRIVED), None),
    ("an older job of that name", WITHDRAWN, QUEUED, None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("own", "there", "write"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_a_row_of_the_table(own: Entry | None, there: Entry | None, write: Write | None) -> None:
    assert next_write("a", "b", own, there) == write


@pytest.mark.parametrize(
    ("own", "there", "begins"),
    [
        (QUEUED, None, True),
        (QUEUED, ENDED, True),
        (QUEUED, replace(ENDED, epoch=2), False),
        (QUEUED, replace(GONE, epoch=1), False),
        (QUEUED, QUEUED, False),
        (QUEUED, COMING, False),
        (STARTED, None, False),
        (COMING, None, False),
        (GONE, None, False),
        (ENDED, None, False),
    ],
)
def test_only_a_queued_job_goes_and_only_where_nothing_of_it_is(
    own: Entry, there: Entry | None, begins: bool
) -> None:
    assert begin("a", "b", own, there) == (Write("b", COMING) if begins else None)


Stores = dict[str, Entry | None]


def settle(stores: Stores) -> Stores:
    """What any number of federations make of it that read what is there now."""
    found = dict(stores)
    for _ in range(30):
        writes = [
            write
            for source in found
            for target in found
            if source != target
            if (write := next_write(source, target, found[source], found[target])) is not None
        ]
        if not writes:
            return found
        found[writes[0].shard] = writes[0].entry
    raise AssertionError(f"no end: {stores}")


def can_start(stores: Stores) -> set[str]:
    """Shards that may start it, or have."""
    live = (EntryState.QUEUED, EntryState.STARTED)
    return {name for name, entry in stores.items() if entry and entry.state in live}


def broken_off(after: int) -> Stores:
    """The stores after so many writes of a hand-over from a to b."""
    stores: Stores = {"a": QUEUED, "b": None, "c": None}
    for step in range(after):
        own, there = stores["a"], stores["b"]
        assert own is not None
        write = begin("a", "b", own, there) if step == 0 else next_write("a", "b", own, there)
        assert write is not None
        stores[write.shard] = write.entry
    return stores


@pytest.mark.parametrize(
    ("after", "now", "later"),
    [(0, {"a"}, {"a"}), (1, {"a"}, {"b"}), (2, set(), {"b"}), (3, {"b"}, {"b"})],
)
def test_a_hand_over_that_breaks_off_goes_on(after: int, now: set[str], later: set[str]) -> None:
    stores = broken_off(after)
    assert can_start(stores) == now
    assert can_start(settle(stores)) == later


@pytest.mark.parametrize(("after", "where"), [(0, "a"), (1, "a"), (3, "b")])
def test_a_job_that_starts_meanwhile_stays_where_it_is(after: int, where: str) -> None:
    stores = broken_off(after)
    own = stores[where]
    assert own is not None
    stores[where] = start(own)
    found = settle(stores)
    assert can_start(found) == {where}
    assert not any(entry and entry.state is EntryState.COMING for entry in found.values())


@pytest.mark.parametrize("after", range(4))
def test_a_withdrawal_wins_at_every_point(after: int) -> None:
    stores = broken_off(after)
    own = stores["a"]
    assert own is not None
    stores["a"] = withdraw(own)
    assert can_start(settle(stores)) == set()


@pytest.mark.parametrize("first", ["b", "c"])
def test_two_federations_that_disagree_leave_one_job(first: str) -> None:
    stores: Stores = {"a": QUEUED, "b": COMING, "c": COMING}
    write = next_write("a", first, stores["a"], stores[first])
    assert write is not None
    stores["a"] = write.entry
    assert can_start(settle(stores)) == {first}


@pytest.mark.parametrize(
    ("tombstone", "there", "age_s", "goes"),
    [
        (GONE, withdraw(ARRIVED), TOMBSTONE_S, True),
        (GONE, None, TOMBSTONE_S, True),
        (GONE, withdraw(ARRIVED), TOMBSTONE_S - 1, False),
        (GONE, ARRIVED, TOMBSTONE_S, False),
        (GONE, COMING, TOMBSTONE_S, False),
        (GONE, ONWARD, TOMBSTONE_S, False),
        (GONE, ENDED, TOMBSTONE_S, False),
        (QUEUED, None, TOMBSTONE_S, False),
    ],
)
def test_a_tombstone_stays_until_the_job_has_ended(
    tombstone: Entry, there: Entry | None, age_s: float, goes: bool
) -> None:
    assert may_forget(tombstone, there, age_s) is goes


SHARDS = ("a", "b", "c")
shards = st.sampled_from(SHARDS)
federations = st.sampled_from((0, 1))
Change = Callable[[Entry], Entry | None]


class HandOvers(RuleBasedStateMachine):
    """One job, three shards, and two federations that act on what they read some time ago. A write
    over an entry that has changed since is refused, as by the stores."""

    def __init__(self) -> None:
        super().__init__()
        self.stores: Stores = {"a": QUEUED, "b": None, "c": None}
        self.versions = dict.fromkeys(SHARDS, 0)
        self.read: list[Stores] = [dict(self.stores) for _ in range(2)]
        self.read_versions = [dict(self.versions) for _ in range(2)]
        self.over = self.withdrawn = False

    def put(self, shard: str, entry: Entry | None) -> None:
        self.stores[shard] = entry
        self.versions[shard] += 1

    def change(self, shard: str, state: EntryState, change: Change) -> bool:
        """A change by the shard's own controller."""
        entry = self.stores[shard]
        if entry is None or entry.state is not state:
            return False
        self.put(shard, change(entry))
        return True

    def write(self, federation: int, write: Write | None) -> None:
        if write is not None:
            known = self.read_versions[federation][write.shard]
            if known == self.versions[write.shard]:
                self.put(write.shard, write.entry)

    @initialize(path=st.permutations(SHARDS[1:]), writes=st.integers(0, 6))
    def was_handed_over(self, path: list[str], writes: int) -> None:
        """So many writes of its hand-overs to one shard, and on to the other."""
        for source, other in (("a", path[0]), tuple(path)):
            for step in range(min(writes, 3)):
                own, there = self.stores[source], self.stores[other]
                assert own is not None
                pair = source, other
                write = begin(*pair, own, there) if step == 0 else next_write(*pair, own, there)
                assert write is not None
                self.put(write.shard, write.entry)
            writes = max(writes - 3, 0)

    @rule(federation=federations, shard=shards)
    def reads(self, federation: int, shard: str) -> None:
        self.read[federation][shard] = self.stores[shard]
        self.read_versions[federation][shard] = self.versions[shard]

    @rule(federation=federations)
    def reads_all(self, federation: int) -> None:
        for shard in SHARDS:
            self.reads(federation, shard)

    @rule(federation=federations, other=shards)
    def decides(self, federation: int, other: str) -> None:
        known = self.read[federation]
        for source, own in known.items():
            if source != other and own is not None:
                self.write(federation, begin(source, other, own, known[other]))

    @rule(federation=federations, choice=st.integers(0, 5))
    def goes_on(self, federation: int, choice: int) -> None:
        known = self.read[federation]
        found = [
            write
            for source, other in permutations(SHARDS, 2)
            if (write := next_write(source, other, known[source], known[other])) is not None
        ]
        if found:
            self.write(federation, found[choice % len(found)])

    @rule(shard=shards)
    def starts(self, shard: str) -> None:
        self.change(shard, EntryState.QUEUED, start)

    @rule(shard=shards)
    def waits_again(self, shard: str) -> None:
        """As its node is lost: in a new epoch."""
        self.change(
            shard,
            EntryState.STARTED,
            lambda entry: replace(entry, state=EntryState.QUEUED, epoch=entry.epoch + 1),
        )

    @rule(shard=shards)
    def ends(self, shard: str) -> None:
        self.over |= self.change(
            shard, EntryState.STARTED, lambda entry: replace(entry, state=EntryState.ENDED)
        )

    @precondition(lambda self: not self.withdrawn)
    @rule()
    def is_withdrawn(self) -> None:
        own = self.stores["a"]
        if own is not None:
            self.put("a", withdraw(own))
            self.withdrawn = True

    @rule(shard=shards)
    def forgets(self, shard: str) -> None:
        own = self.stores[shard]
        if own is None or own.other not in SHARDS:
            return
        if may_forget(own, self.stores[own.other], TOMBSTONE_S):
            self.put(shard, None)

    @invariant()
    def never_two(self) -> None:
        assert len(can_start(self.stores)) <= 1, self.stores

    @invariant()
    def never_lost(self) -> None:
        expected = 0 if self.over or self.withdrawn else 1
        found = settle(self.stores)
        assert len(can_start(found)) == expected, (self.stores, found)


TestHandOvers = HandOvers.TestCase
TestHandOvers.settings = settings(max_examples=examples(600), stateful_step_count=50, deadline=None)
