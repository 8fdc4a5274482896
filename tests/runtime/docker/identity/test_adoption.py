"""What labels ask for, in a job file's words and bounds; and labels that are wrong or hostile."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.config.job import parse_spec
from dlsched.model.errors import SpecError
from dlsched.model.spec import AccuracyTarget, Bounds, ContainerSpec, JobSpec, LatencyTarget
from dlsched.runtime.docker.identity.adoption import (
    LABELS_MAX,
    LINE_CHARACTERS,
    VALUE_CHARACTERS,
    NotAdoptable,
    spec_of,
)

ENABLED = {"dlsched.enable": "true"}
CONTAINER = ContainerSpec("model:1", memory_bytes=1 << 30)


def adopted(
    labels: Mapping[str, str], came_with_cores: float | None = None, name: str = "web"
) -> JobSpec:
    return spec_of(name, {**ENABLED, **labels}, CONTAINER, came_with_cores)


def refused(labels: Mapping[str, str], came_with_cores: float | None = None) -> str:
    with pytest.raises(NotAdoptable) as refusal:
        adopted(labels, came_with_cores)
    return str(refusal.value)


def test_a_label_that_asks_for_the_least_floor_promises_it() -> None:
    assert adopted({"dlsched.cpus.min": "0.01"}, 2.0).bounds == Bounds(0.01, 2.0, promised=True)
    assert adopted({}, 2.0).bounds == Bounds(0.01, 2.0)


def test_labels_say_what_a_job_file_says() -> None:
    spec = adopted(
        {
            "dlsched.instance": "lab",
            "dlsched.target.latency": "50ms",
            "dlsched.target.quantile": "p95",
            "dlsched.cpus.min": "0.1",
            "dlsched.cpus.max": "2",
            "dlsched.weight": "3",
            "dlsched.metrics.path": "/tmp/m.jsonl",
        }
    )
    assert spec.name == "web"
    assert spec.target == LatencyTarget(0.05, 0.95)
    assert (spec.bounds, spec.weight) == (Bounds(0.1, 2.0), 3.0)
    assert spec.container is CONTAINER
    learned = adopted(
        {
            "dlsched.target.metric": "accuracy",
            "dlsched.target.deliver": "0.9",
            "dlsched.target.finish": "0.97",
            "dlsched.target.deadline": "2h",
        }
    )
    assert learned.target == AccuracyTarget("accuracy", 0.9, 0.97, 7200.0)


def test_a_label_puts_a_container_into_the_background() -> None:
    assert adopted({"dlsched.background": "true"}) == JobSpec("web", CONTAINER, background=True)


def test_to_be_enabled_is_enough() -> None:
    assert adopted({}) == JobSpec("web", CONTAINER)


@pytest.mark.parametrize(
    ("labels", "came_with_cores", "bounds"),
    [
        ({}, None, Bounds(0.01, None)),
        ({}, 0.5, Bounds(0.01, 0.5)),
        ({"dlsched.cpus.max": "2"}, 0.5, Bounds(0.01, 2.0)),
        ({"dlsched.cpus.min": "0.5"}, 0.5, Bounds(0.5, 0.5)),
    ],
)
def test_the_ceiling_is_the_labels_else_what_it_came_with(
    labels: dict[str, str], came_with_cores: float | None, bounds: Bounds
) -> None:
    assert adopted(labels, came_with_cores).bounds == bounds


@pytest.mark.parametrize(
    ("labels", "line"),
    [
        (
            {"dlsched.target.latency": "50"},
            "label dlsched.target.latency: '50' has no unit: write 50s or 50ms",
        ),
        (
            {"dlsched.target.latency": "2h"},
            "label dlsched.target.latency: '2h' is out of bounds: 100 us to 1 h",
        ),
        (
            {"dlsched.target.quantile": "p95"},
            "label dlsched.target: needs `latency`, or `metric`, `deliver` and `finish`",
        ),
        (
            {"dlsched.cpus.min": "3", "dlsched.cpus.max": "1"},
            "label dlsched.cpus: min 3 cores is above max 1 core",
        ),
        ({"dlsched.cpus.max": "lots"}, "label dlsched.cpus.max: 'lots' is not a number"),
        (
            {"dlsched.background": "yes"},
            "label dlsched.background: 'yes' is neither true nor false",
        ),
        (
            {"dlsched.background": "true", "dlsched.target.latency": "50ms"},
            (
                "label dlsched.background: a background job cannot have a target: leave out "
                "either `background` or `target`"
            ),
        ),
        (
            {"dlsched.weight": "0"},
            "label dlsched.weight: 0 is out of bounds: above 0, at most 1000",
        ),
        (
            {"dlsched.cpus.max": ""},
            "label dlsched.cpus.max: has no value: give one, or leave the key out",
        ),
        (
            {"dlsched.target.latencyy": "5ms"},
            "label 'dlsched.target.latencyy' is unknown; did you mean dlsched.target.latency?",
        ),
        ({"dlsched.weight": "0", "dlsched.wait": "1"}, "did you mean dlsched.weight? (and 1 more)"),
        (
            {"dlsched.x": "1"},
            (
                "label 'dlsched.x' is unknown; known are background, cpus.max, cpus.min, enable, "
                "instance, memory.max, memory.min, metrics, metrics.*, "
                "target.deadline, target.deliver, target.finish, target.latency, "
                "target.max_failed, target.metric, target.of, "
                "target.quantile, weight, wire"
            ),
        ),
        (
            {"dlsched.cpus.max": "9" * 300},
            "99999... has 300 characters, at most 256",
        ),
    ],
)
def test_a_wrong_label_is_one_line_with_label_value_and_bound(
    labels: dict[str, str], line: str
) -> None:
    assert refused(labels).endswith(line)


def test_a_floor_above_the_limit_that_it_came_with_is_refused() -> None:
    assert refused({"dlsched.cpus.min": "2"}, 1.0) == (
        "label dlsched.cpus.min: 2 cores is above the container's own limit, 1 core: "
        "give dlsched.cpus.max too"
    )


@pytest.mark.parametrize("name", ["x", "a" * 64, "_web", "", "web\x1b[2J"])
def test_a_name_that_no_job_can_have_is_refused(name: str) -> None:
    with pytest.raises(NotAdoptable, match="is not a job's name") as refusal:
        adopted({}, name=name)
    assert str(refusal.value).isprintable()


def test_capitals_of_a_name_become_small_letters() -> None:
    assert adopted({}, name="Web_2").name == "web_2"


@pytest.mark.long
def test_a_million_labels_are_one_line() -> None:
    many = {f"dlsched.x{number}": "1" for number in range(1_000_000)}
    assert refused(many) == f"more than {LABELS_MAX} labels begin with dlsched."


# ---------------------------------------------------------------------- properties

words = st.sampled_from(
    [
        *("50ms", "2h", "0", "1", "0.5", "-1", "1e3", "010", "1:30", "no", "true", "p95", "mean"),
        *("accuracy", "loss", "nan", ".inf", "0.9", "0.97", "1_000", "p50", "p99.95", "5000"),
    ]
)
KEYS = {
    "target": ("latency", "quantile", "metric", "deliver", "finish", "deadline"),
    "cpus": ("min", "max"),
}
asked = st.fixed_dictionaries(
    {},
    optional={
        "weight": words,
        **{f"{outer}.{inner}": words for outer, keys in KEYS.items() for inner in keys},
    },
)


@given(asked)
def test_the_same_values_mean_the_same_in_labels_and_in_a_job_file(values: dict[str, str]) -> None:
    lines = ["name: web", "image: model:1"]
    lines += [f"weight: {values['weight']}"] if "weight" in values else []
    for outer, keys in KEYS.items():
        inner = [
            f"  {key}: {values[f'{outer}.{key}']}" for key in keys if f"{outer}.{key}" in values
        ]
        lines += [f"{outer}:", *inner] if inner else []
    try:
        filed = parse_spec("\n".join(lines) + "\n", "web.yaml")
    except SpecError:
        filed = None
    labels = {f"dlsched.{key}": value for key, value in values.items()}
    try:
        labelled = adopted(labels)
    except NotAdoptable:
        labelled = None
    if filed is None or labelled is None:
        assert filed is labelled
    else:
        assert (labelled.target, labelled.bounds, labelled.weight) == (
            filed.target,
            filed.bounds,
            filed.weight,
        )


hostile = st.text(
    st.characters() | st.sampled_from("\0\x1b\n\r\u202e\ud800.0123456789pms{}[]&*!|>'\"%@`"),
    max_size=VALUE_CHARACTERS + 20,
)
known = st.sampled_from(
    ["weight", *(f"{outer}.{inner}" for outer, keys in KEYS.items() for inner in keys)]
)


@given(
    st.dictionaries(
        st.one_of(known, hostile).map(lambda key: f"dlsched.{key}"), hostile, max_size=80
    ),
    st.none() | st.floats(0.001, 512),
    hostile,
)
def test_hostile_labels_give_a_spec_within_bounds_or_one_printable_line(
    labels: dict[str, str], came_with_cores: float | None, name: str
) -> None:
    for called in ("web", name):
        try:
            spec = spec_of(called, {**labels, **ENABLED}, CONTAINER, came_with_cores)
        except NotAdoptable as refusal:
            line = str(refusal)
            assert line.isprintable()
            assert 0 < len(line) <= LINE_CHARACTERS
        else:
            assert 0.01 <= spec.bounds.floor_cores <= (spec.bounds.ceiling_cores or 4096.0)
            assert 0 < spec.weight <= 1000


def test_memory_is_raised_only_up_to_a_label_from_its_own_limit_on() -> None:
    plain, raised = adopted({}), adopted({"dlsched.memory.max": "4GiB"})
    assert (plain.container.memory_bytes, plain.memory_max_bytes) == (1 << 30, None)
    assert (raised.container.memory_bytes, raised.memory_max_bytes) == (1 << 30, 4 << 30)
    higher = adopted({"dlsched.memory.max": "4GiB", "dlsched.memory.min": "2GiB"})
    assert (higher.container.memory_bytes, higher.memory_max_bytes) == (2 << 30, 4 << 30)


@pytest.mark.parametrize(
    ("labels", "line"),
    [
        ({"max": "512MiB"}, "max: 512 MiB is below the container's own limit, 1 GiB"),
        (
            {"min": "512MiB", "max": "2GiB"},
            "min: 512 MiB is below the container's own limit, 1 GiB",
        ),
        ({"min": "2GiB"}, "min: give dlsched.memory.max too"),
        ({"min": "3GiB", "max": "2GiB"}, ": min 3 GiB is above max 2 GiB"),
        ({"max": "much"}, "max: 'much' is not a size such as 512MiB or 1GiB"),
    ],
)
def test_bounds_of_memory_that_cannot_hold_are_one_line(labels: dict[str, str], line: str) -> None:
    told = refused({f"dlsched.memory.{key}": value for key, value in labels.items()})
    assert told.removeprefix("label dlsched.memory").removeprefix(".") == line


@pytest.mark.parametrize("labels", [{"max": "512MiB"}, {"min": "512MiB", "max": "600MiB"}])
def test_limit_that_its_owner_raised_above_the_bound_does_not_end_the_adoption(
    labels: dict[str, str],
) -> None:
    theirs = {**ENABLED, **{f"dlsched.memory.{key}": value for key, value in labels.items()}}
    container = ContainerSpec("model:1", memory_bytes=1 << 30)
    spec = spec_of("web", theirs, container, None, changed=True)
    assert spec.container.memory_bytes == 1 << 30
    with pytest.raises(NotAdoptable):
        spec_of("web", theirs, container, None)


def test_without_a_memory_limit_there_is_none_to_raise() -> None:
    with pytest.raises(NotAdoptable, match=r"dlsched\.memory\.max: the container has no memory l"):
        spec_of("web", {**ENABLED, "dlsched.memory.max": "4GiB"}, ContainerSpec("model:1"), None)
