"""Records as labels: read as written, or not at all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dlsched.cluster.core.records import Record, RecordState, Saved
from dlsched.cluster.swarm.labels import PREFIX, VERSION, Names, read_record, record_labels

NODES = st.from_regex(r"[a-z0-9]{1,25}", fullmatch=True)
JOBS = st.from_regex(r"[a-z0-9][a-z0-9_.-]{1,62}", fullmatch=True)
DIGESTS = st.sampled_from(["", "0123456789abcdef" * 4])
COUNTS = st.integers(0, 2**53)
FILES = st.sampled_from(["", "/ckpt/7.pt", "/" + "c" * 1023])


@st.composite
def records(draw: st.DrawFn) -> Record:
    state = draw(st.sampled_from(RecordState))
    epoch = draw(st.integers(1, 2**53))
    moved = state in (RecordState.MOVING, RecordState.UNDOING, RecordState.RETURNING)
    return Record(
        job=draw(JOBS),
        state=state,
        on=draw(NODES),
        epoch=epoch,
        digest=draw(DIGESTS),
        first=draw(st.integers(1, epoch)),
        target=draw(NODES) if state is RecordState.LEAVING else None,
        source=draw(NODES) if moved else None,
        saved=draw(st.none() | st.builds(Saved, COUNTS, DIGESTS, COUNTS, FILES)),
        moves=draw(COUNTS),
        exit_code=draw(st.none() | st.integers(-(2**31), 2**31)),
        why=draw(st.from_regex(r"([a-z]{1,9} ){0,9}[a-z]", fullmatch=True)),
    )


@given(records())
def test_a_record_is_read_as_it_was_written(record: Record) -> None:
    assert read_record(record_labels(record, "lab"), "lab") == record


NUMBERS = ["0", "1", "-1", "+1", "01", "1.0", " 1", "1\n", "\u0661"]
VALUES = st.sampled_from(["", *NUMBERS, "placed", "PLACED", "moving", VERSION, "x" * 70])


@given(records(), st.data())
def test_an_edited_record_is_never_guessed(record: Record, data: st.DataObject) -> None:
    labels = record_labels(record, "lab")
    key = data.draw(st.sampled_from(sorted(labels.keys() - {f"{PREFIX}why"})))
    value = data.draw(st.none() | VALUES)
    edited = {name: text for name, text in labels.items() if name != key}
    if value is not None:
        edited[key] = value
    try:
        read = read_record(edited, "lab")
    except ValueError as error:
        assert "\n" not in str(error)
        assert len(str(error)) < 200
    else:
        # Only another valid value may pass; optional ones may also be absent.
        assert record_labels(read, "lab") == edited


@given(JOBS, JOBS, JOBS, JOBS)
def test_names_fit_and_differ(instance: str, other: str, job: str, another: str) -> None:
    names = Names(instance)
    both = [names.record(job), names.submission(job)]
    assert all(len(name) <= 64 and name[-1].isalnum() for name in both)
    assert (names.record(job) == names.record(another)) is (job == another)
    assert names.record(job).startswith(Names(other).prefix) is (instance == other)
