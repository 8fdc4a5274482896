"""One sample an evaluation: repetitions, steps on other lines, and what all logs have in common."""

from __future__ import annotations

import itertools
import math
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.estimate.evaluations import TOGETHER_S
from dlsched.model.facts import Sample
from dlsched.model.sources import Step, When
from dlsched.runtime.progress.log_lines import (
    LogBatch,
    LogLines,
    Pattern,
    duration_s,
    number,
)
from dlsched.runtime.progress.samples import (
    KNOWN_MOST,
    Repeats,
    Samples,
)
from dlsched.runtime.progress.sources import read_sources

PATTERN, STEP, WHEN = (f"dlsched.metrics.{key}" for key in ("pattern", "step", "when"))

values = st.floats(0, 1, width=16)


def sample(step: int | None, value: float, name: str = "accuracy") -> Sample:
    return Sample(1.0, step, ((name, value),))


def test_the_same_value_at_a_step_counts_once_and_another_one_counts() -> None:
    repeats = Repeats()
    assert repeats.without(sample(5, 0.5)) == sample(5, 0.5)
    assert repeats.without(sample(5, 0.5)) is None
    assert repeats.without(sample(5, 0.6)) == sample(5, 0.6)
    assert repeats.without(sample(5, 0.5, "loss")) == sample(5, 0.5, "loss")
    assert repeats.without(Sample(1.0, 5, ())) is None, "the step alone is nothing new"
    assert repeats.without(sample(6, 0.5)) == sample(6, 0.5)
    assert repeats.without(sample(5, 0.5)) is None, "a rank that is late"
    assert repeats.without(sample(3, 0.4)) == sample(3, 0.4), "a new attempt"
    assert repeats.without(sample(5, 0.5)) == sample(5, 0.5)


def test_a_value_beside_a_repeated_one_counts() -> None:
    repeats = Repeats()
    repeats.without(sample(5, 0.5))
    both = Sample(1.0, 5, (("accuracy", 0.5), ("loss", 2.0)), (("norm", "nan"),))
    assert repeats.without(both) == Sample(1.0, 5, (("loss", 2.0),), (("norm", "nan"),))
    assert repeats.without(both) is None


@given(
    way=st.lists(st.tuples(st.integers(0, 30), values), max_size=40),
    ranks=st.integers(1, 4),
)
def test_several_ranks_count_as_one(way: list[tuple[int, float]], ranks: int) -> None:
    way.sort(key=lambda one: one[0])
    one, many = Repeats(), Repeats()
    alone = [one.without(sample(*each)) for each in way]
    together = [many.without(sample(*each)) for each in way for _ in range(ranks)]
    assert [each for each in alone if each] == [each for each in together if each]
    assert {each.step for each in alone if each} == {step for step, _ in way}


def test_what_is_remembered_is_bounded() -> None:
    repeats = Repeats()
    for step in range(3 * KNOWN_MOST):
        repeats.without(sample(step, 0.5))
    assert len(repeats._known) == KNOWN_MOST


def test_the_step_is_carried_until_the_next_and_forgotten_with_lost_lines() -> None:
    samples = Samples("carried")
    assert samples.add({"accuracy": 0.1}, 1.0) == Sample(1.0, None, (("accuracy", 0.1),))
    assert samples.add({"step": 7.0}, 2.0) == Sample(2.0, 7, ())
    assert samples.add({"accuracy": 0.2}, 3.0) == Sample(3.0, 7, (("accuracy", 0.2),))
    assert samples.add({"step": 8.0, "accuracy": 0.3}, 4.0) == Sample(4.0, 8, (("accuracy", 0.3),))
    samples.missed()
    assert samples.add({"accuracy": 0.4}, 5.0) == Sample(5.0, None, (("accuracy", 0.4),))


def test_a_metric_waits_for_the_step_that_follows() -> None:
    samples = Samples("follows")
    assert samples.add({"reward": 1.0}, 1.0) is None
    assert samples.add({"length": 22.0}, 1.0) is None
    whole = samples.add({"step": 2048.0}, 1.0)
    assert whole == Sample(1.0, 2048, (("reward", 1.0), ("length", 22.0)))
    assert samples.add({"step": 4096.0}, 2.0) == Sample(2.0, 4096, ()), "each waits once"
    samples.add({"reward": 2.0}, 3.0)
    samples.missed()
    assert samples.add({"step": 8192.0}, 4.0) == Sample(4.0, 8192, ())


def test_evaluations_are_counted_and_what_is_printed_again_soon_is_the_same_one() -> None:
    samples = Samples("evaluations")
    told = [samples.add({"accuracy": 0.9}, at_s) for at_s in (0.0, 0.1, TOGETHER_S, 100.0, 100.1)]
    assert [one and one.step for one in told] == [1, None, None, 2, None]
    another = Sample(100.2, 3, (("accuracy", 0.91),), again=True)
    assert samples.add({"accuracy": 0.91}, 100.2) == another
    nan = [samples.add({"accuracy": math.nan}, at_s) for at_s in (200.0, 200.1)]
    assert nan == [Sample(200.0, 4, (), (("accuracy", "nan"),)), None]


@pytest.mark.parametrize("source", [None, "evaluations"])
def test_different_values_of_several_ranks_are_one_evaluation(source: Step | None) -> None:
    samples = Samples(source)
    ranks = ((0.0, 0.951), (0.1, 0.962), (TOGETHER_S, 0.957), (60.0, 0.97), (60.1, 0.96))
    found = [samples.add({"accuracy": value}, at_s) for at_s, value in ranks]
    assert [one and one.again for one in found] == [False, True, True, False, True]


def test_quick_evaluations_without_a_step_go_on_being_counted() -> None:
    samples = Samples("evaluations")
    found = [samples.add({"accuracy": tenth / 100}, tenth / 10) for tenth in range(100)]
    assert sum(one is not None and not one.again for one in found) == 5


@given(
    numbers=st.lists(
        st.dictionaries(
            st.sampled_from(("step", "accuracy", "loss", "at", "of")),
            st.integers(0, 9).map(float) | st.just(math.nan),
            max_size=4,
        ).map(lambda one: {k: v for k, v in one.items() if k != "step" or math.isfinite(v)}),
        max_size=30,
    ),
    source=st.sampled_from((None, *get_args(Step))),
    only=st.sampled_from((None, ("at", "of"))),
    apart_s=st.sampled_from((0.01, 60.0)),
)
def test_samples_of_any_numbers(
    numbers: list[dict[str, float]], source: Step | None, only: When | None, apart_s: float
) -> None:
    """Each is new, has values that were printed, and the step that was asked for."""
    samples = Samples(source, only)
    counted = 0
    known: set[tuple[object, ...]] = set()
    latest = -1
    for i, each in enumerate(numbers):
        found = samples.add(each, apart_s * i)
        if found is None:
            continue
        assert all(math.isfinite(value) for _, value in found.metrics)
        if only is not None:
            assert not {"at", "of"} & dict(found.metrics).keys()
            assert each.get("at", 0.0) == each.get("of", 0.0) or len({*only} & {*each}) < 2
        if source == "evaluations":
            counted += 1
            assert found.step == counted
        if source == "follows":
            assert found.step is not None
        if found.step is not None:
            if found.step < latest:
                known = {one for one in known if one[0] < found.step}
            latest = found.step
            for one in (*found.metrics, *found.diverged):
                assert (found.step, *one) not in known
                known.add((found.step, *one))


def read(log: bytes, cuts: list[int], pattern: str, step: Step | None) -> list[Sample]:
    """The samples of a log that arrives cut into pieces, all at the same time."""
    lines, batch = LogLines(pattern, step), LogBatch()
    edges = sorted({0, len(log), *(cut % (len(log) + 1) for cut in cuts)})
    for begin, end in itertools.pairwise(edges):
        lines.take(log[begin:end], lines.parsed(log[begin:end]), 1.0, batch)
    return batch.samples


PRINTED: dict[Step | None, tuple[str, str]] = {
    None: ("epoch {0} acc {1}", r"epoch (?P<step>\d+) acc (?P<acc>\S+)"),
    "carried": ("epoch {0}\nacc {1}", r"epoch (?P<step>\d+)|acc (?P<acc>\S+)"),
    "follows": ("acc {1}\nepoch {0}", r"epoch (?P<step>\d+)|acc (?P<acc>\S+)"),
}


@given(
    values=st.lists(values | st.just(math.nan), min_size=1, max_size=12),
    step=st.sampled_from(tuple(PRINTED)),
    redraws=st.integers(1, 4),
    noise=st.sampled_from(("", "100%|###| 9/9\r", "\r\n", "INFO: loaded\n", "\xff\x1b[0m\n")),
    cuts=st.lists(st.integers(0, 10_000), max_size=8),
)
def test_a_curve_is_the_same_however_it_is_printed_redrawn_and_cut(
    values: list[float], step: Step | None, redraws: int, noise: str, cuts: list[int]
) -> None:
    form, pattern = PRINTED[step]
    drawn = [
        (form.format(epoch, value) + "\r" + noise) * redraws
        for epoch, value in enumerate(values, 1)
    ]
    found = read("".join(drawn).encode("latin-1"), cuts, pattern, step)
    curve = [(one.step, *one.metrics, *one.diverged) for one in found if one != bare(one)]
    assert curve == [
        (epoch, ("acc", "nan" if math.isnan(value) else value))
        for epoch, value in enumerate(values, 1)
    ]


def bare(one: Sample) -> Sample:
    return Sample(one.received_s, one.step, ())


@given(text=st.text(max_size=200))
def test_any_condition_or_source_is_read_or_refused_in_one_line(text: str) -> None:
    for label in (STEP, WHEN):
        try:
            read_sources({PATTERN: "(?P<a>.)(?P<b>.)(?P<c>.)", label: text})
        except ValueError as why:
            assert str(why).isprintable() and len(str(why)) < 200


@pytest.mark.parametrize(
    ("pattern", "keys", "why"),
    [
        ("(?P<acc>.)", {STEP: "carried"}, "step: carried needs a group named step in the pattern"),
        ("(?P<acc>.)", {STEP: "follows"}, "step: follows needs a group named step in the pattern"),
        (
            "(?P<acc>.)(?P<step>.)",
            {STEP: "evaluations"},
            "step: the pattern has a group named step: leave `step: evaluations` out",
        ),
        ("(?P<acc>.)", {WHEN: "at == of"}, "when: the pattern has no group 'at'"),
        (
            "(?P<at>.)(?P<of>.)",
            {WHEN: "at == of"},
            "when: the pattern has no group of a metric beside these two",
        ),
    ],
)
def test_a_pattern_that_lacks_a_group_is_refused(
    pattern: str, keys: dict[str, str], why: str
) -> None:
    with pytest.raises(ValueError) as raised:
        read_sources({PATTERN: pattern, **keys})
    assert str(raised.value) == f"dlsched.metrics.{why}"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("143ms", 0.143),
        ("1m2s", 62.0),
        ("1h2m3s", 3723.0),
        ("2h", 7200.0),
        ("1m", 60.0),
        ("1m2.5s", 62.5),
        ("154.3\u00b5s", 154.3e-6),
        ("154.3\u03bcs", 154.3e-6),
        ("12us", 12e-6),
        ("350ns", 350e-9),
        ("0s", 0.0),
    ],
)
def test_durations_as_go_prints_them(text: str, seconds: float) -> None:
    assert duration_s(text.encode()) == pytest.approx(seconds)
    assert Pattern(r"took (?P<latency>\S+)").read(f"took {text}".encode()) == {
        "latency": pytest.approx(seconds)
    }


@pytest.mark.parametrize("text", ["", "12", "1.5.2s", "s", "1m2", "m", "1s2m", "-1s", "1" * 40])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration with units, such as 143ms or 1m2s"):
        duration_s(text.encode())


@given(data=st.binary(max_size=40))
def test_any_bytes_are_a_number_or_refused_in_one_line(data: bytes) -> None:
    for reader in (number, duration_s):
        try:
            reader(data)
        except ValueError as why:
            assert str(why).isprintable() and len(str(why)) < 150


def test_a_group_may_stand_for_the_targets_metric() -> None:
    pattern, batch = r"Acc@1 (?P<acc1>[0-9.]+)", LogBatch()
    lines = LogLines(pattern, names={"acc1": "accuracy"})
    lines.take(b"", lines.parsed(b"Acc@1 76.2\nAcc@1 nan\n"), 1.0, batch)
    assert [(one.metrics, one.diverged) for one in batch.samples] == [
        ((("accuracy", 76.2),), ()),
        ((), (("accuracy", "nan"),)),
    ]


def test_a_pattern_that_never_matches_says_so_with_the_first_line() -> None:
    lines, batch = LogLines("accuracy=(?P<accuracy>[0-9.]+)"), LogBatch()

    def take(chunk: bytes) -> None:
        lines.take(chunk, lines.parsed(chunk), 1.0, batch)

    take(b"\n  \nacc: \x1b[31m0.5\nacc: 0.6\n")
    assert (lines.fact.lines, lines.fact.matched) == (2, 0)
    assert lines.fact.example == r"'acc: \x1b[31m0.5'"
    take(b"x" * 5000 + b"\n" + b"y" * 300 + b"\n")
    assert (lines.fact.lines, lines.fact.matched) == (4, 0)
    assert lines.fact.example is not None and len(lines.fact.example) <= 60
    take(b"accuracy=0.5\naccuracy=1.2.3\n")
    assert (lines.fact.lines, lines.fact.matched, lines.fact.example) == (6, 2, None)
    assert batch.bad_lines == 2
