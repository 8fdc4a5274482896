"""Records of what containers had, also where somebody meddled with them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.runtime.originals import FOLDER, EngineLimits, Original, Originals
from tests.doubles import texts

ID = "a" * 64
THEIRS = Original(
    ID,
    "theirs",
    adopted=True,
    told=EngineLimits(quota_us=30_000, shares=512),
    files={"cpu.max": "30000 100000", "cpu.weight": "20"},
    wall_time="2026-01-01T00:00:00Z",
)


def test_a_record_outlasts_the_agent_in_a_file_of_its_container(tmp_path: Path) -> None:
    Originals(tmp_path).secure(THEIRS)
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == [f"{ID}.json"]
    again = Originals(tmp_path)
    assert again.of(ID) == THEIRS
    assert again.alarms == ()
    again.lift(ID)
    assert Originals(tmp_path).all() == {}


def test_the_first_versions_record_is_read(tmp_path: Path) -> None:
    """What a container had is restored, whichever version noted it. Byte for byte as it did."""
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / f"{ID}.json").write_text(
        '{"adopted": true, "ceiling_cores": null, "container_id": "'
        + ID
        + '", "files": {"cpu.max":'
        ' "30000 100000", "cpu.weight": "20"}, "given_back": false, "job": "theirs", "told":'
        ' {"memory_bytes": 0, "memory_swap_bytes": 0, "nano_cpus": 0, "period_us": 0, "quota_us":'
        ' 30000, "shares": 512}, "wall_time": "2026-01-01T00:00:00Z"}\n'
    )
    assert Originals(tmp_path).of(ID) == THEIRS


words = st.integers(-1, 1 << 40)


@given(
    st.builds(
        Original,
        container_id=st.just(ID),
        job=st.text(),
        adopted=st.booleans(),
        told=st.builds(EngineLimits, words, words, words, words, words, words),
        files=st.dictionaries(st.text(), st.text(), max_size=4),
        ceiling_cores=st.none() | st.floats(0, 1e4),
        wall_time=st.text(),
        given_back=st.booleans(),
    )
)
def test_any_record_reads_back_the_same(
    tmp_path_factory: pytest.TempPathFactory, original: Original
) -> None:
    folder = tmp_path_factory.mktemp("state")
    Originals(folder).secure(original)
    assert Originals(folder).of(ID) == original


def test_what_it_goes_back_to() -> None:
    assert THEIRS.cpu_cores == 0.3
    assert replace(THEIRS, told=EngineLimits(quota_us=30_000, period_us=50_000)).cpu_cores == 0.6
    assert replace(THEIRS, told=EngineLimits(nano_cpus=370_000_000)).cpu_cores == 0.37
    assert replace(THEIRS, told=EngineLimits(quota_us=-1)).cpu_cores is None
    assert replace(THEIRS, adopted=False, ceiling_cores=2.0).cpu_cores == 2.0
    assert (THEIRS.kernel.quota_us, THEIRS.kernel.weight) == (30_000, 20)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        json.dumps({"container_id": ID}),
        json.dumps({"container_id": "b" * 64, "job": "x", "adopted": True}),
        json.dumps({"container_id": ID, "job": "x", "adopted": "yes"}),
        json.dumps({"container_id": ID, "job": "x", "adopted": True, "files": {"cpu.max": 3}}),
        "[" * 100_000,
    ],
)
def test_a_broken_record_is_moved_aside_told_and_remembered_as_lost(
    tmp_path: Path, text: str
) -> None:
    Originals(tmp_path).secure(THEIRS)
    file = tmp_path / FOLDER / f"{ID}.json"
    file.write_text(text)
    found = Originals(tmp_path)
    assert found.of(ID) is None
    (line,) = texts(found.alarms)
    assert line.startswith(str(file)) and "limits are not changed" in line and "\n" not in line
    for again in (found, Originals(tmp_path)):
        assert again.lost(ID) == file.with_name(f"{ID}.json.broken")
        assert again.all_lost() == (ID,)
    assert found.lost("b" * 64) is None


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    for name in ("README", "short.json", f"{'z' * 64}.json", f"{ID}.json.broken.bak"):
        (tmp_path / FOLDER / name).write_text("x")
    found = Originals(tmp_path)
    assert (found.all(), found.alarms, found.all_lost()) == ({}, (), ())
    assert len(list((tmp_path / FOLDER).iterdir())) == 4


def test_an_id_that_is_none_never_becomes_a_path(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot name a record"):
        Originals(tmp_path).secure(replace(THEIRS, container_id="../../etc/x"))
