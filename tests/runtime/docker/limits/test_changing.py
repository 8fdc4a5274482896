"""What becomes of changes: slow ones, refused ones, strays, and the great release."""

from __future__ import annotations

from collections.abc import Iterator, Set
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest

from dlsched.model.actions import Memory, Outcome, Resize
from dlsched.model.errors import EngineUnavailable
from dlsched.model.facts import GpuAccess
from dlsched.model.spec import JobSpec, Limits
from dlsched.runtime.allotment import job_dir, read_allotment
from dlsched.runtime.cgroup.exclusive import ExclusiveClaims
from dlsched.runtime.docker.background import Patience
from dlsched.runtime.docker.engine import EngineRefused
from dlsched.runtime.docker.executor import CONCURRENT_UPDATES as WIDTH
from dlsched.runtime.docker.limits.changing import BUSY, NO_ANSWER, Changes
from dlsched.runtime.docker.limits.writer import LimitWriter
from dlsched.runtime.machine.container import Machine
from dlsched.runtime.machine.inspected import Inspected, Listing
from dlsched.runtime.machine.limits import AGAIN_S
from dlsched.runtime.machine.outcomes import Waits
from dlsched.runtime.originals import Originals
from tests.doubles import job_spec, texts
from tests.runtime.docker.fake_host import CONTAINER, PID, FakeHost
from tests.runtime.docker.making import Waiting, calls_of, instance_of, making
from tests.runtime.machine.described import RUNNING

THEIRS: JobSpec = job_spec("theirs")


def described(adopted: JobSpec | None = THEIRS, **changes: Any) -> Inspected:
    one = replace(RUNNING, container_id=CONTAINER, name="theirs", job="theirs", pid=PID)
    return replace(one, adopted=adopted, **changes)


def resize(cores: float = 0.25, ceiling: float | None = 1.0) -> Resize:
    return Resize(
        "theirs", CONTAINER, Limits(), Limits(cores), 512, "a test", None, ceiling_cores=ceiling
    )


class Bench:
    """Changes on a host of files, with a clock of numbers."""

    def __init__(self, root: Path) -> None:
        self.host = FakeHost(root).claimable()
        self.now_s = 100.0
        self.managed: Set[str] | None = None
        self.wanted: list[str | None] = []
        self.originals = Originals(root / "state")
        clock: Any = SimpleNamespace(now_s=lambda: self.now_s, wall_time=lambda: "now")
        instance = instance_of(
            self.host,
            root / "state",
            clock=clock,
            originals=self.originals,
            proc=self.host.proc,
        )
        self.hands = LimitWriter(instance)
        self.executor = making(calls_of(self.host, self.hands), self.wanted, lambda: self.now_s)
        self.machine = Machine(self.executor.do)
        self.listings: Any = SimpleNamespace(want=self.wanted.append, problem=None)
        self.changes = Changes(
            instance,
            self.machine,
            self.executor,
            self.hands,
            self.listings,
            cast("Patience", Waiting()),
        )

    def close(self) -> None:
        self.hands.claims.close()

    def begin(self, action: Resize | Memory, one: Inspected) -> Outcome:
        return self.changes.make([(action, one)])[0]

    def operation(self, one: Inspected | None = None) -> str:
        one = one or described()
        found = self.machine.of(one.container_id).operation(one, self.now_s)
        return str(found or "")

    def go_on(self) -> None:
        """The engine answers again."""
        self.executor.go_on()
        self.machine.take(self.executor.ended())

    def until_free(self) -> None:
        """Time passes until it is no longer left alone."""
        self.now_s += AGAIN_S + 1
        self.sweep(described())
        assert self.operation() == ""

    def sweep(self, *listed: Inspected, **more: Any) -> None:
        """One cycle, whose listing began at this moment."""
        listing = Listing(self.now_s, {one.container_id: one for one in listed}, **more)
        self.changes.settle(listing, frozenset(), self.managed)
        self.machine.take(self.executor.ended())


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with closing(Bench(tmp_path)) as made:
        yield made


@pytest.fixture
def other(bench: Bench) -> Iterator[ExclusiveClaims]:
    """What another instance claims."""
    with closing(ExclusiveClaims(bench.host.proc)) as claims:
        yield claims


@pytest.mark.parametrize(("adopted", "cores"), [(THEIRS, None), (None, 1.0)])
def test_container_is_changed_once_its_original_is_recorded(
    bench: Bench, adopted: JobSpec | None, cores: float | None
) -> None:
    assert bench.begin(resize(), described(adopted)).status == "done"
    assert bench.host.words["CpuQuota"] == 25_000
    record = bench.originals.all()[CONTAINER]
    assert (record.adopted, record.cpu_cores) == (adopted is THEIRS, cores)


def test_what_only_the_job_has_to_know_is_told_without_the_engine(bench: Bench) -> None:
    action = replace(resize(), before=Limits(0.25, 0.7), limits=Limits(0.25, 0.4))
    bench.host.gone = True
    own = described(adopted=None)
    assert bench.begin(action, own).status == "done"
    told = read_allotment(job_dir(bench.host.proc.parent / "state", "theirs"))
    assert (told.cpu_cores, told.gpu_share) == (0.25, 0.4)
    assert bench.host.updates == []
    assert bench.begin(action, described()).status == "failed"
    bench.host.gone = False
    outcomes = bench.changes.make([(replace(action, job="a"), own), (resize(), own)])
    assert [(one.action.job, one.status) for one in outcomes] == [("a", "done"), ("theirs", "done")]


def test_while_another_is_tried_first_it_is_withheld_and_not_refused(bench: Bench) -> None:
    waits = Waits("waits for the canary")
    with patch.object(bench.hands, "set", side_effect=waits):
        assert bench.begin(resize(), described()) == Outcome(resize(), "withheld", str(waits))
    assert bench.operation() == ""
    assert bench.begin(resize(), described()).status == "done"


def test_a_slow_engine_is_not_waited_for(bench: Bench) -> None:
    bench.executor.held = True
    assert bench.begin(resize(), described()).status == "begun"
    assert bench.operation() == "updating"
    assert bench.wanted == [CONTAINER]
    assert bench.begin(resize(), described()) == Outcome(resize(), "withheld", BUSY)
    bench.listings.problem = "no answer"
    assert bench.begin(resize(), described()) == Outcome(resize(), "failed", NO_ANSWER)
    bench.go_on()
    assert bench.operation() == ""
    assert bench.host.words["CpuQuota"] == 25_000


def test_beside_a_change_under_way_nothing_is_done(bench: Bench) -> None:
    own = described(adopted=None)
    back = replace(resize(), gives_back=True)
    notice = replace(resize(), before=Limits(0.25, 0.7), limits=Limits(0.25, 0.4))
    bench.executor.held = True
    assert bench.begin(resize(), own).status == "begun"
    cast(Any, bench.changes.patience).lost = False
    for action in (notice, back, resize()):
        assert bench.begin(action, own) == Outcome(
            action, "failed", "operation under way: updating"
        )
    bench.go_on()
    assert bench.begin(notice, own).status == "done"


def test_a_slow_change_that_fails_is_logged(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.host.raises.append(EngineRefused(409, "is restarting"))
    bench.executor.held = True
    assert bench.begin(resize(), described()).status == "begun"
    bench.go_on()
    assert bench.operation() == ""
    assert caplog.messages == ["resize theirs: failed is restarting"]


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (EngineRefused(409, "is restarting"), "is restarting"),
        (EngineUnavailable("no answer"), "no answer"),
    ],
)
def test_what_the_engine_says_is_an_outcome(bench: Bench, error: Exception, detail: str) -> None:
    bench.host.raises.append(error)
    outcome = bench.begin(resize(), described())
    assert (outcome.status, outcome.detail) == ("failed", detail)
    # One that has just ended is shown by a new inspection.
    assert bench.wanted == ([CONTAINER] if isinstance(error, EngineRefused) else [])
    assert bench.operation() == ""


def test_a_refused_one_shows_its_reason_until_it_is_cured(bench: Bench) -> None:
    bench.host.write("cpu.shares", "3")
    outcome = bench.begin(resize(), described())
    assert outcome.status == "failed"
    assert outcome.detail.startswith(
        "limits not changed: another program changed the container's shares without the engine"
    )
    for _ in range(3):
        assert bench.operation() == outcome.detail
        assert texts(bench.changes.alarms) == (f"theirs: {outcome.detail}",)
        bench.now_s += AGAIN_S + 1
        bench.sweep(described())
    bench.host.write("cpu.shares", "1024")
    bench.until_free()
    assert texts(bench.changes.alarms) == ()
    assert bench.begin(resize(), described()).status == "done"


def test_who_asks_to_be_adopted_is_examined_before_anything_is_decided(bench: Bench) -> None:
    bench.changes.examine(described())
    bench.host.write("cpu.shares", "3")
    bench.changes.examine(described())
    bench.machine.take(bench.executor.ended())
    assert bench.operation() != ""
    assert bench.host.updates == []


def test_what_another_instance_has_is_left_alone_until_that_lets_it_go(
    bench: Bench, other: ExclusiveClaims
) -> None:
    bench.begin(resize(), described())
    bench.close()  # as the end of a killed agent does
    bench.hands.claims = ExclusiveClaims(bench.host.proc)
    assert other.take(CONTAINER)
    outcome = bench.begin(resize(0.5), described())
    assert (
        outcome.detail
        == "limits not changed: another dlsched instance on this host has the container"
    )
    assert bench.host.words["CpuQuota"] == 25_000
    assert texts(bench.changes.alarms) == (f"theirs: {outcome.detail}",)
    other.release(CONTAINER)
    bench.until_free()
    assert bench.begin(resize(0.5), described()).status == "done"


def test_a_claim_lasts_until_it_is_given_back_and_is_taken_again_after_a_kill(
    bench: Bench, other: ExclusiveClaims
) -> None:
    bench.begin(resize(), described())
    bench.sweep(described())
    assert other.is_elsewhere(CONTAINER)
    bench.close()
    assert not other.is_elsewhere(CONTAINER)
    bench.hands.claims = ExclusiveClaims(bench.host.proc)
    bench.sweep(described())
    assert other.is_elsewhere(CONTAINER)
    bench.changes.release({}, {}, bench.now_s + 10)
    assert not other.is_elsewhere(CONTAINER)


def test_what_could_not_be_changed_is_not_claimed_any_longer(
    bench: Bench, other: ExclusiveClaims
) -> None:
    bench.host.write("cpu.shares", "3")
    assert bench.begin(resize(), described()).status == "failed"
    bench.sweep(described())
    assert not other.is_elsewhere(CONTAINER)


def test_a_burst_that_cannot_be_set_is_an_alarm(bench: Bench) -> None:
    bench.hands.burst_problem = "burst: read-only"
    assert texts(bench.changes.alarms) == ("burst: read-only",)


# ---------------------------------------------------------------------- strays


def test_one_that_is_not_listed_any_more_is_given_back_once(bench: Bench) -> None:
    bench.begin(resize(), described())
    bench.sweep(described())
    assert bench.host.words["CpuQuota"] == 25_000
    bench.sweep()  # it is missing, but this listing may be older than the container
    assert bench.host.words["CpuQuota"] == 25_000
    bench.now_s += 5
    bench.sweep()
    assert bench.host.words["CpuQuota"] == -1
    updates = len(bench.host.updates)
    bench.now_s += 5
    bench.sweep()
    assert len(bench.host.updates) == updates


def test_one_that_a_job_is_about_to_have_keeps_its_limits(bench: Bench) -> None:
    # Its first change comes in the cycle that lists it first; that it has a job is known later.
    bench.managed = set()
    bench.sweep(described())
    bench.now_s += 1.0
    listing = Listing(bench.now_s, {CONTAINER: described()})
    bench.now_s += 0.1
    bench.begin(resize(), described())
    bench.changes.settle(listing, frozenset(), bench.managed)
    bench.managed = {CONTAINER}
    bench.now_s += 5.0
    bench.sweep(described())
    assert bench.host.words["CpuQuota"] == 25_000


def test_one_that_is_gone_is_forgotten(bench: Bench) -> None:
    bench.begin(resize(), described())
    bench.host.gone = True
    for _ in range(2):
        bench.sweep()
        bench.now_s += 5
    assert bench.originals.all() == {}


def test_one_that_is_back_in_the_listing_is_left_alone(bench: Bench) -> None:
    bench.begin(resize(), described())
    bench.sweep()
    bench.now_s += 5
    bench.sweep(described())
    bench.now_s += 5
    bench.sweep()
    assert bench.host.words["CpuQuota"] == 25_000


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({"set_aside": {CONTAINER: described(adopted=None)}}, id="set aside"),
        pytest.param({"undescribed": frozenset({CONTAINER})}, id="being started"),
    ],
)
def test_one_that_is_there_otherwise_keeps_what_it_has(bench: Bench, how: dict[str, Any]) -> None:
    bench.begin(resize(), described(adopted=None))
    for _ in range(2):
        bench.sweep(**how)
        bench.now_s += 100.0
    assert bench.host.words["CpuQuota"] == 25_000


def test_one_whose_name_a_job_has_taken_is_given_back(bench: Bench) -> None:
    bench.begin(resize(), described())
    for managed, quota in (({CONTAINER}, 25_000), (set(), -1)):
        bench.managed = managed
        for _ in range(2):
            bench.sweep(described())
            bench.now_s += 5
        assert bench.host.words["CpuQuota"] == quota


# ---------------------------------------------------------------------- what own ones go back to


def test_a_changed_ceiling_is_written_down_before_any_change_needs_it(bench: Bench) -> None:
    own = {"theirs": CONTAINER}
    for ceiling in (0.5, 0.5, 1.5):
        bench.changes.keep_true({"theirs": ceiling, "another": 1.0}, own)
        bench.machine.take(bench.executor.ended())
        record = bench.originals.of(CONTAINER)
        assert record is not None and record.cpu_cores == ceiling
    assert bench.host.updates == []


def test_a_ceiling_is_not_written_down_beside_a_change(bench: Bench) -> None:
    bench.executor.held = True
    bench.begin(resize(), described(adopted=None))
    bench.changes.keep_true({"theirs": 2.0}, {"theirs": CONTAINER})
    assert len(bench.machine.of(CONTAINER).calls) == 1


def test_what_is_being_changed_stays_claimed(bench: Bench, other: ExclusiveClaims) -> None:
    assert bench.hands.claims.take(CONTAINER)  # as the change does first
    bench.executor.held = True
    bench.begin(resize(), described())
    bench.sweep(described())
    assert other.is_elsewhere(CONTAINER)


# ---------------------------------------------------------------------- the great release


def test_release_goes_to_the_ceilings_of_now(bench: Bench) -> None:
    bench.begin(resize(), described(adopted=None))
    (back,) = bench.changes.release({"theirs": 1.5}, {"theirs": CONTAINER}, bench.now_s + 10)
    assert back.failure is None
    assert bench.host.words["CpuQuota"] == 150_000
    assert bench.changes.release({}, {}, bench.now_s + 10) == ()


def test_release_does_not_wait_for_ever(bench: Bench) -> None:
    bench.begin(resize(), described())
    bench.executor.held = True
    (back,) = bench.changes.release({}, {}, bench.now_s)
    assert (back.job, back.failure) == ("theirs", "the engine does not answer")


def test_while_it_is_held_what_was_under_way_is_given_back_too(bench: Bench) -> None:
    bench.changes.release({}, {}, bench.now_s)
    bench.machine.held = "given back"
    bench.begin(resize(), described())  # begun before, and slow
    bench.sweep(described())
    assert bench.host.words["CpuQuota"] == -1


def test_changes_go_together_and_those_behind_a_hung_engine_are_not_made(bench: Bench) -> None:
    bench.executor.held, bench.listings.problem = True, "no answer"
    changes = [
        (replace(resize(), job=f"j{n}", container_id=f"c{n}"), described(adopted=None))
        for n in range(3 * WIDTH)
    ]
    outcomes = bench.changes.make(changes)
    assert [one.action.job for one in outcomes] == [f"j{n}" for n in range(3 * WIDTH)]
    assert {one.status for one in outcomes[:WIDTH]} == {"begun"}
    rest = {(one.status, one.detail) for one in outcomes[WIDTH:]}
    assert rest == {("failed", NO_ANSWER)}
    assert bench.machine.busy.keys() == {f"c{n}" for n in range(WIDTH)}
    with patch.object(bench.hands, "set") as made:
        bench.go_on()
    assert [call.args[0] for call in made.call_args_list] == [f"c{n}" for n in range(WIDTH)]
    assert not bench.machine.busy


def test_what_cannot_be_given_back_is_an_alarm_and_asked_of_the_engine_only_after_a_while(
    bench: Bench, other: ExclusiveClaims
) -> None:
    back = replace(resize(), gives_back=True)
    assert bench.begin(resize(), described()).status == "done"
    bench.hands.claims.release(CONTAINER)
    assert other.take(CONTAINER)
    why = (
        "another dlsched instance on this host has the container: first let that instance give the "
        "limits back"
    )
    for _ in range(3):
        outcome = bench.begin(back, described())
        assert (outcome.status, outcome.detail) == ("failed", why)
        assert texts(bench.changes.alarms) == (f"theirs: limits not given back: {why}",)
        assert bench.operation() == ""
        bench.now_s += AGAIN_S / 3
    other.release(CONTAINER)
    assert bench.begin(back, described()).status == "failed"
    bench.now_s += 1.0
    assert bench.begin(back, described()).status == "done"
    assert (bench.changes.alarms, dict(bench.machine.busy)) == ((), {})


def test_alarm_ends_with_what_was_given_back_otherwise(
    bench: Bench, other: ExclusiveClaims
) -> None:
    bench.begin(resize(), described())
    bench.hands.claims.release(CONTAINER)
    assert other.take(CONTAINER)
    assert bench.begin(replace(resize(), gives_back=True), described()).status == "failed"
    other.release(CONTAINER)
    bench.changes.release({}, {}, bench.now_s + 60)
    bench.sweep(described())
    assert bench.changes.alarms == ()


def test_listed_own_container_is_not_inspected(bench: Bench) -> None:
    with patch.object(bench.host, "inspect", wraps=bench.host.inspect) as inspect:
        assert bench.begin(resize(), described(adopted=None)).status == "done"
        assert (inspect.call_count, bench.host.words["CpuQuota"]) == (0, 25_000)
        started_again = described(adopted=None, pid=PID + 1)
        assert bench.begin(resize(0.3), started_again).status == "done"
        assert (inspect.call_count, bench.host.words["CpuQuota"]) == (1, 30_000)
        assert bench.begin(resize(0.4), described(gpu_access=GpuAccess.CDI)).status == "done"
        assert inspect.call_count > 1


def test_a_change_that_outlasts_its_container_is_forgotten_once_it_is_over(bench: Bench) -> None:
    bench.executor.held = True
    assert bench.begin(resize(), described()).status == "begun"
    bench.sweep()
    assert bench.machine.busy
    bench.host.gone = True
    bench.go_on()
    assert not bench.machine.busy


def raise_to(mib: int) -> Memory:
    return Memory("theirs", CONTAINER, 64 << 20, mib << 20, "a test", ceiling_cores=1.0)


@pytest.mark.parametrize("adopted", [THEIRS, None])
def test_memory_limit_is_changed_beside_the_others_and_comes_back_with_them(
    bench: Bench, adopted: JobSpec | None
) -> None:
    bench.host.run(Memory=64 << 20, MemorySwap=64 << 20).hold(60 << 20)
    one = described(adopted)
    assert bench.begin(resize(), one).status == "done"
    assert bench.begin(raise_to(128), one).status == "done"
    assert bench.begin(resize(0.4), one).status == "done"
    assert (bench.host.words["Memory"], bench.host.words["CpuQuota"]) == (128 << 20, 40_000)
    assert bench.wanted == [CONTAINER]  # what the engine says of it has changed
    (back,) = bench.changes.release({}, {}, bench.now_s + 10)
    assert back.failure is None
    assert bench.host.words["Memory"] == 64 << 20


def test_refused_memory_limit_is_one_line_and_bars_no_other_change(bench: Bench) -> None:
    bench.host.run(Memory=64 << 20, MemorySwap=64 << 20).hold(60 << 20)
    bench.host.raises = [EngineRefused(500, "memory.limit_in_bytes: device or resource busy")]
    outcome = bench.begin(raise_to(128), described())
    assert (outcome.status, outcome.detail) == (
        "failed", "memory.limit_in_bytes: device or resource busy"
    )  # fmt: skip
    bench.host.run(Memory=0)
    bench.host.words["MemorySwap"] = 0
    outcome = bench.begin(raise_to(128), described())
    assert outcome.detail == (
        "memory limit not changed: the engine shows a memory limit of the container without a "
        "limit of swap"
    )
    assert bench.operation() == ""
    assert bench.begin(resize(), described()).status == "done"


def test_memory_limit_that_must_stay_is_tried_again_until_it_can_be_given_back(
    bench: Bench,
) -> None:
    bench.host.run(Memory=64 << 20, MemorySwap=64 << 20).hold(60 << 20)
    bench.begin(raise_to(128), described())
    bench.host.hold(100 << 20)
    bench.managed = frozenset()
    for _ in range(3):
        bench.sweep()
        bench.now_s += 31
    assert bench.host.words["Memory"] == 128 << 20
    bench.host.hold(10 << 20)
    for _ in range(2):
        bench.sweep()
        bench.now_s += 31
    assert bench.host.words["Memory"] == 64 << 20
    assert bench.originals.all()[CONTAINER].given_back
