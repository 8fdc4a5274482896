"""Any run of reports comes back exactly; a policy's memory is plain, bounded, and may be lost."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlsched.model.actions import Outcome, Remove, Start
from dlsched.model.cycle import CycleReport, Shadow
from dlsched.model.decision import Decision
from dlsched.model.errors import PolicyError
from dlsched.model.facts import LogFact, Sample
from dlsched.model.forecast import Forecast, ForecastKind
from dlsched.model.spec import Limits, Stop
from dlsched.model.state import Progress
from dlsched.store.journal.coding import Decoder, Encoder, OutlineDecoder
from dlsched.store.policy_memory import load_memory, memory_size_check, memory_text
from tests.properties import examples
from tests.store.journal.reports import GPU, REPORTS, Remembered, job, report

LARGE = (HealthCheck.too_slow, HealthCheck.data_too_large)


def restored(reports: list[CycleReport], whole: set[int]) -> list[CycleReport]:
    encoder, decoder = Encoder(), Decoder()
    back = []
    for number, item in enumerate(reports):
        full = number in whole or number == 0
        decoder.take(encoder.row(item, full=full), full=full)
        back.append(decoder.report())
    return back


def texts(reports: list[CycleReport]) -> list[bytes]:
    """The rows' text, the first one's whole."""
    encoder, stream = Encoder(), zlib.decompressobj(wbits=-zlib.MAX_WBITS)
    return [stream.decompress(encoder.row(one, full=False)) for one in reports]


def row_of(plain: object) -> bytes:
    """A whole row with that text."""
    deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return deflate.compress(json.dumps(plain).encode()) + deflate.flush(zlib.Z_SYNC_FLUSH)


# A report has hundreds of fields: many drawn runs are larger than Hypothesis keeps, and left out.
@settings(max_examples=examples(40), suppress_health_check=LARGE)
@given(st.lists(REPORTS, min_size=1, max_size=3), st.sets(st.integers(0, 2)))
def test_any_run_of_reports_comes_back_exactly(reports: list[CycleReport], whole: set[int]) -> None:
    assert restored(reports, whole) == reports


LOOKS = {
    "alpha": (
        Forecast(ForecastKind.EXPECTED, "deliver", 90.5, 80.0, 120.0, why="0.9 at step 1800"),
        Forecast(ForecastKind.CROWDED, "finish", needs_cores=2.0, lacks=(("beta", 0.5),)),
    )
}
DECIDED = Decision({"alpha": Limits(0.5)}, {"alpha": "on target"})
BETA = replace(job("beta"), attained_core_s=9.0)
BOTH = (job("alpha"), job("beta"))
ACTIONS = (
    Start(job().spec, Limits(1.0), 1024, "a.yaml"),
    Remove("alpha", "id", Stop(), None, "its file was removed"),
)


@pytest.mark.parametrize(
    "reports",
    [
        # The same report twice, too: nothing that is kept of one row may be changed by the next.
        [
            report(1, *BOTH),
            report(2, *BOTH),
            report(3, job("alpha"), BETA),
            report(4, job("alpha")),
            *[report(5, job("alpha"), BETA)] * 2,
        ],
        [replace(report(1), outcomes=tuple(Outcome(action, "begun") for action in ACTIONS))],
        [replace(report(1), alarms=("\ud800 from a hostile container",))],
        [report(1, decision=DECIDED), report(2), report(3, decision=DECIDED), report(4)],
        [
            report(1, decision=DECIDED),
            report(2, decision=DECIDED),
            replace(report(3, decision=Decision(outlooks=LOOKS)), outlooks=LOOKS),
            replace(report(4, decision=Decision(outlooks=LOOKS)), outlooks=LOOKS),
        ],
    ],
    ids=["same objects", "actions", "no unicode", "no decision", "same decision"],
)
def test_these_reports_come_back_whatever_rows_are_full(reports: list[CycleReport]) -> None:
    assert restored(reports, set()) == reports
    assert restored(reports, {1, 3}) == reports


def test_gpus_cost_nothing_in_a_cycle_in_which_they_did_nothing_new() -> None:
    def with_gpus(cycle: int, count: int, busy: tuple[float, ...] = ()) -> CycleReport:
        told = report(cycle)
        used = busy or (0.37,) * count
        facts = (replace(GPU.fact, uuid=f"GPU-{n}", busy_ratio=used[n]) for n in range(count))
        views = tuple(replace(GPU, fact=fact) for fact in facts)
        node = replace(told.snapshot.node, gpus=views)
        return replace(told, snapshot=replace(told.snapshot, node=node))

    def row_bytes(count: int, busy: tuple[float, ...] = ()) -> int:
        encoder = Encoder()
        for cycle in range(1, 9):
            encoder.row(with_gpus(cycle, count), full=cycle == 1)
        return len(encoder.row(with_gpus(9, count, busy), full=False))

    assert row_bytes(8) == row_bytes(0)
    others = (0.37,) * 7
    assert row_bytes(8, (*others, 0.38)) - row_bytes(0) <= 48


def test_no_value_of_an_environment_is_kept() -> None:
    secret = replace(job().spec.container, environment=(("TOKEN", "hunter2"),))
    view = replace(job(), spec=replace(job().spec, container=secret))
    start = Outcome(Start(view.spec, Limits(1.0), 1024, "a.yaml"), "begun")
    told = replace(report(1), snapshot=replace(report(1).snapshot, jobs=(view,)), outcomes=(start,))
    (back,) = restored([told], set())
    assert back.snapshot.jobs[0].spec.container.environment == (("TOKEN", "***"),)
    assert "hunter2" not in repr(back)


def test_nothing_that_a_job_printed_is_kept() -> None:
    log = LogFact(lines=7, example="'token=hunter2'")
    told = report(1)
    view = replace(told.snapshot.jobs[0], progress=Progress(log=log, refused="'hunter2'"))
    told = replace(told, snapshot=replace(told.snapshot, jobs=(view,)))
    (back,) = restored([told], set())
    assert back.snapshot.jobs[0].progress == Progress(log=LogFact(lines=7))


def test_samples_that_slide_come_back_and_cost_only_the_new_one() -> None:
    samples = [Sample(float(i), i, (("loss", 1 / (i + 1)),)) for i in range(300)]
    reports = [
        replace(
            report(i),
            snapshot=replace(
                report(i).snapshot,
                jobs=(replace(job(), progress=Progress(samples=tuple(samples[i : i + 256]))),),
            ),
        )
        for i in range(3)
    ]

    encoder = Encoder()
    sizes = [len(encoder.row(item, full=False)) for item in reports]
    assert restored(reports, set()) == reports
    assert max(sizes[1:]) < 150 < sizes[0] / 10


def test_a_shadows_decision_comes_back_and_is_kept_for_the_next_to_differ_from() -> None:
    decided = Decision({"alpha": Limits(0.5)}, {"alpha": "on target, and so it may stay as it is"})
    asked = Shadow("fair", decided, decided.limits, decided.why)
    waits = replace(asked, decision=None)
    reports = [
        replace(report(number), shadow=shadow)
        for number, shadow in enumerate([None, asked, waits, waits, asked, None, waits])
    ]

    assert restored(reports, {3}) == reports
    assert [b"on target" in text for text in texts(reports[:5])] == [False, True, *[False] * 3]


def test_outlooks_come_back_and_are_told_once_beside_the_decision_that_made_them() -> None:
    decided = Decision({"alpha": Limits(0.5)}, outlooks=LOOKS)
    later = {"alpha": (replace(LOOKS["alpha"][0], at_s=95.25), LOOKS["alpha"][1])}
    reports = [
        report(1),
        replace(report(2, decision=decided), outlooks=LOOKS),
        replace(report(3), outlooks=LOOKS),
        replace(report(4, decision=replace(decided, outlooks=later)), outlooks=later),
        report(5, decision=replace(decided, outlooks=later)),
        report(6),
    ]
    assert restored(reports, set()) == reports
    assert restored(reports, {2, 4}) == reports
    told = texts(reports[:4])
    assert [text.count(b"step 1800") for text in told] == [0, 1, 0, 1]
    assert b"beta" not in told[3], "the other tier's is as it was"


@pytest.mark.parametrize("decoder", [Decoder(), OutlineDecoder()])
def test_a_row_in_which_nothing_changed_is_read(decoder: Decoder) -> None:
    encoder = Encoder()
    for full in (True, False, False):
        decoder.take(encoder.row(report(1), full=full), full=full)
    assert decoder.report().snapshot.now_s == report(1).snapshot.now_s


@pytest.mark.parametrize("told", [[], {}, {"policy": "dqoes", "decided": True, "decision": {}}])
def test_a_row_of_another_shape_tells_no_memory(told: object) -> None:
    decoder = Decoder()
    decoder.take(row_of(told), full=True)
    with pytest.raises(ValueError, match="not a report"):
        decoder.memories()


@pytest.mark.parametrize("body", [b"", b"no deflate stream", b"\x02\x00\x00\x00\xff\xff"])
@pytest.mark.parametrize("full", [True, False])
def test_a_damaged_row_is_a_value_error(body: bytes, full: bool) -> None:
    with pytest.raises(ValueError):
        Decoder().take(body, full=full)


def test_a_row_without_its_frame_is_a_value_error() -> None:
    encoder, decoder = Encoder(), Decoder()
    encoder.row(report(1), full=True)
    with pytest.raises(ValueError):
        decoder.take(encoder.row(report(2), full=False), full=False)
        decoder.report()


def test_memory_loads_as_it_was() -> None:
    memory = Remembered((("alpha", 0.1), ("beta", 1 / 3)), 2.5)
    [back] = restored([report(1, decision=Decision(memory=memory))], set())
    assert back.decision is not None
    assert load_memory(back.decision.memory, Remembered) == (memory, None)
    assert load_memory(None, Remembered) == (None, None)


@dataclass(frozen=True, slots=True)
class Other:
    wants: Mapping[str, float]


def test_what_a_policy_changes_inside_its_memory_is_told() -> None:
    wants = {"alpha": 0.5}
    encoder, decoder = Encoder(), Decoder()
    for cycle, cores in enumerate((0.5, 0.75), 1):
        wants["alpha"] = cores
        item = report(cycle, decision=Decision(memory=Other(wants)))
        decoder.take(encoder.row(item, full=cycle == 1), full=cycle == 1)
        assert decoder.memories() == {"dqoes": {"wants": {"alpha": cores}}}


@dataclass(frozen=True, slots=True)
class Fewer:
    interval_s: float = 1.0


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Other, "wants: Input should be a valid dictionary"),
        (Fewer, "the memory holds keys that Fewer does not know"),
        (None, "the policy remembers nothing"),
    ],
)
def test_memory_of_another_shape_is_refused_with_the_reason(
    kind: type[object] | None, reason: str
) -> None:
    plain = {"wants": [["alpha", 0.5]], "interval_s": 2.5}

    assert load_memory(plain, kind) == (None, reason)


@dataclass(frozen=True)
class Noted:
    name: str
    note: float = field(compare=False)


@dataclass(frozen=True)
class Strange:
    """What its field is said to be means nothing."""

    wants: sys.nothing_of_that_name = 1  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("first", "second"), [((Noted("a", 0.5),), (Noted("a", 0.75),)), (Strange(1), Strange(2))]
)
def test_what_a_memory_does_not_compare_or_declare_is_told_all_the_same(
    first: object, second: object
) -> None:
    runs = [
        replace(report(n), decision=Decision({}, memory=m)) for n, m in ((1, first), (2, second))
    ]
    told = restored(runs, set())[1].decision
    assert told is not None
    assert told.memory == json.loads(memory_text(second))


def test_memory_is_bounded_by_the_job() -> None:
    memory = Remembered(tuple((f"{n:04}", 0.25) for n in range(400)))
    assert 4096 < len(memory_text(memory)) < 8192

    memory_size_check(memory, 2)
    with pytest.raises(
        PolicyError, match=r"the policy's memory has \d+ bytes; with 1 jobs at most 4096"
    ):
        memory_size_check(memory, 1)


class Colour(Enum):
    RED = 1


@dataclass(frozen=True, slots=True)
class Odd:
    seen: object


@pytest.mark.parametrize("value", [{1, 2}, b"x", {(1, 2): 3}, object(), Colour.RED])
def test_memory_must_be_plain(value: object) -> None:
    with pytest.raises(PolicyError, match=r"the policy's memory cannot be kept: \w+ cannot be"):
        memory_size_check(Odd(value), 1)
