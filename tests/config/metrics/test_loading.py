"""Preset files: those of the package are right, and what is wrong in another's is one line each."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dlsched.config.inbox import files
from dlsched.config.metrics.keys import MetricsKeys
from dlsched.config.metrics.loading import (
    FILES_MAX,
    PRESETS_MAX,
    SIZE_MAX_BYTES,
    PresetError,
    load_presets,
    package_presets,
)
from dlsched.model.sources import Metric, MetricsEndpoint

PACKAGED = package_presets()


@pytest.mark.parametrize("name", sorted(PACKAGED.by_name))
def test_a_packaged_preset_gives_a_source(name: str) -> None:
    keys = PACKAGED.by_name[name].keys
    named = {"via": "proxy"} if keys.via is True else {}
    sources = PACKAGED.sources(MetricsKeys(base=name, **named))  # type: ignore[arg-type]
    assert len(sources) == 1


def test_an_operators_preset_joins_and_replaces(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(
        "asr: {base: fastapi, port: 9000}\nvllm: {port: 1, name: other_seconds}\n"
    )
    presets = load_presets(tmp_path)
    (asr,) = presets.sources(MetricsKeys(base="asr"))
    (vllm,) = presets.sources(MetricsKeys(base="vllm"))
    assert isinstance(asr, MetricsEndpoint) and asr.ports == (9000,)
    assert asr.metrics[0].where and asr.metrics[0].name == "http_request_duration_seconds"
    assert vllm == MetricsEndpoint((1,), metrics=(Metric(name="other_seconds"),))
    assert load_presets(tmp_path / "absent") == PACKAGED


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: {port: 0}", "1:11: a.port: '0' is not a port, 1 to 65535"),
        ("a: {port: '020'}", "1:11: a.port: '020' is not a port, 1 to 65535"),
        ("a:\n  port: 1\n  nmae: x", "3:3: a.nmae: unknown key; did you mean name?"),
        ("a: {base: b}", "1:11: a.base: 'b' is not a preset; `dlsched presets` lists them"),
        ("a: {base: vlm}", "1:11: a.base: 'vlm' is not a preset; did you mean vllm?"),
        ("a: {base: b}\nb: {base: a}", "1:11: a.base: b -> a -> b is a circle"),
        ("A: {port: 1}", "1:1: A: 'A' is not a preset's name"),
        ("a: {port: 1, total: t}", "a.total: needs count too: a ratio has total and count"),
        ("a: {port: 1, kind: ratio}", "a.kind: the kind ratio needs `total` and `count`"),
        ("a: {port: 1, name: x, total: t, count: c}", "a.name: is given beside total or count"),
        ("a: {kind: log}", "a.kind: the kind log needs a `pattern`"),
        ("a: {name: x}", "a.name: has no effect without the key `port`"),
        ("a: {pattern: 'x'}", "a.pattern: 'x' must have 1 to "),
        ("a: {pattern: '(?P<a>.)', when: a == b}", "a.when: the pattern has no group 'b'"),
        ("a: {port: 1, where: {h: '('}}", "a.where.h: '(' is not a regular expression of RE2"),
        ("a: {port: 1, unit: min}", "a.unit: 'min' is not one of s, ms, us"),
        ("a: {port: [1, 2, 3, 4, 5, 6, 7, 8, 9]}", "a.port: has 9 entries, the limit is 8"),
        ("a: {}", "a: needs port, path, pattern, or a preset's name"),
        ("a: &x {port: 1}", "the anchor &x is not supported"),
        ("[1]", "a list is given where a mapping is expected"),
        ("".join(f"a{n}: {{port: 1}}\n" for n in range(PRESETS_MAX + 1)), f"is {PRESETS_MAX}"),
        ("", "the file is empty"),
    ],
)
def test_what_is_wrong_is_a_line_with_its_place(tmp_path: Path, text: str, line: str) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(text)
    with pytest.raises(PresetError) as raised:
        load_presets(tmp_path)
    first = str(raised.value).splitlines()[0]
    assert first.startswith(f"{file}:") and line in first and first.isprintable()


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_what_others_than_the_operator_may_change_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "presets.d"
    folder.mkdir()
    file = folder / "own.yaml"
    file.write_text("asr: {port: 9000}")
    for path in (file, folder):
        path.chmod(mode | (path.stat().st_mode & 0o111))
        with pytest.raises(PresetError) as raised:
            load_presets(folder)
        assert str(raised.value).startswith(f"{path}: others than root may change the file (")
        path.chmod(0o755)
    assert "asr" in load_presets(folder).by_name


def test_another_users_presets_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "is_operator", lambda _: False)
    with pytest.raises(
        PresetError, match=r"others than root may change the file \(belongs to uid \d+, mode 0"
    ):
        load_presets(tmp_path)


def test_what_is_no_file_of_bounded_size_is_said(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    os.mkfifo(file)
    with pytest.raises(PresetError, match=r"own.yaml: is not a regular file"):
        load_presets(tmp_path)
    file.unlink()
    file.write_text("#" * (SIZE_MAX_BYTES + 1))
    with pytest.raises(PresetError, match=r"own.yaml: has more than 64 KiB"):
        load_presets(tmp_path)
    file.unlink()
    file.write_bytes(b"\xff")
    with pytest.raises(PresetError, match=r"own.yaml:1:1: the byte 0xff is not UTF-8"):
        load_presets(tmp_path)
    for number in range(FILES_MAX + 1):
        (tmp_path / f"{number}.yaml").touch()
    with pytest.raises(PresetError, match=f"at most {FILES_MAX}"):
        load_presets(tmp_path)
