"""What is let through of a checkpoint's archive: everything in it may be hostile."""

from __future__ import annotations

import errno
import io
import os
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dlsched.runtime.docker import archives
from dlsched.runtime.docker.archives import Unfit, carried

MOST = 1 << 20
FORMATS = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)


def entry(name: str, kind: bytes = tarfile.REGTYPE, text: bytes = b"", **more: Any) -> Any:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(text)
    for key, value in {"mode": 0o640, "uid": 7, "gid": 8, "mtime": 9, **more}.items():
        setattr(info, key, value)
    return info, text


TOP = entry("ckpt", tarfile.DIRTYPE, mode=0o750)


def packed(*entries: Any, form: int = tarfile.GNU_FORMAT) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w", format=form) as tar:
        for info, text in entries:
            tar.addfile(info, io.BytesIO(text))
    return whole.getvalue()


def cut(whole: bytes, size: int = 1000) -> Iterator[bytes]:
    """In pieces that fit no block."""
    return (whole[at : at + size] for at in range(0, len(whole), size))


def through(whole: bytes, top: str = "checkpoint", most_bytes: int = MOST) -> list[Any]:
    """All entries of what is let through, with what is in them."""
    out = io.BytesIO(b"".join(carried(cut(whole), top, most_bytes)))
    with tarfile.open(fileobj=out) as tar:
        found = []
        for info in tar:
            file = tar.extractfile(info) if info.isreg() else None
            found.append((info, b"" if file is None else file.read()))
        return found


def why(whole: bytes, most_bytes: int = MOST) -> str:
    """One line on why it is refused."""
    with pytest.raises(Unfit) as caught:
        through(whole, most_bytes=most_bytes)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def refused(*entries: Any) -> str:
    return why(packed(*entries, form=tarfile.PAX_FORMAT))


@pytest.mark.parametrize("form", FORMATS)
def test_files_folders_and_links_inside_are_carried(form: int) -> None:
    whole = packed(
        TOP,
        entry("ckpt/a", text=b"x" * 1500, mode=0o755),
        entry("ckpt/sub", tarfile.DIRTYPE, mode=0o2770),
        entry("ckpt/sub/last", tarfile.SYMTYPE, linkname="../a"),
        entry("ckpt/sub/here", tarfile.SYMTYPE, linkname="./deep/down"),
        entry("ckpt/sub/same", tarfile.LNKTYPE, linkname="ckpt/a"),
        entry("ckpt/sub/" + "n" * 90, text=b"long"),
        form=form,
    )
    found = through(whole)
    names = [info.name.removeprefix("checkpoint") for info, _ in found]
    assert names == ["", "/a", "/sub", "/sub/last", "/sub/here", "/sub/same", "/sub/" + "n" * 90]
    assert [info.mode for info, _ in found[:3]] == [0o750, 0o755, 0o770]
    assert {(info.uid, info.gid, info.mtime) for info, _ in found} == {(7, 8, 9)}
    assert [found[1][1], found[6][1]] == [b"x" * 1500, b"long"]
    assert [info.linkname for info, _ in found[3:6]] == ["../a", "./deep/down", "checkpoint/a"]


@pytest.mark.parametrize("top", [".", "ckpt", "data/sub/ckpt"])
def test_the_top_folder_gets_its_name_at_the_destination(top: str) -> None:
    whole = packed(TOP, entry("ckpt/a"), entry("ckpt/b", tarfile.LNKTYPE, linkname="ckpt/a"))
    names = [os.path.normpath(info.name) for info, _ in through(whole, top)]
    assert names == [top, os.path.normpath(f"{top}/a"), os.path.normpath(f"{top}/b")]
    assert through(whole, top)[2][0].linkname == os.path.normpath(f"{top}/a")


def test_what_was_let_through_is_let_through_again_unchanged() -> None:
    once = b"".join(carried(cut(packed(TOP, entry("ckpt/a", text=b"a"))), "checkpoint", MOST))
    assert b"".join(carried(cut(once, 7), "checkpoint", MOST)) == once


def test_large_owners_and_late_times_are_kept_and_odd_times_bounded() -> None:
    whole = packed(
        TOP,
        entry("ckpt/a", uid=archives.MOST_ID, mtime=1 << 40),
        entry("ckpt/b", mtime=-5.5),
        entry("ckpt/c", mtime=1700000000.75),
        form=tarfile.PAX_FORMAT,
    )
    found = [info for info, _ in through(whole)]
    assert found[1].uid == archives.MOST_ID
    assert [info.mtime for info in found[1:]] == [(1 << 32) - 1, 0, 1700000000]


HOSTILE = {
    "a device": (entry("ckpt/x", tarfile.CHRTYPE), "'x' is a device"),
    "a block device": (entry("ckpt/x", tarfile.BLKTYPE), "'x' is a device"),
    "a pipe": (entry("ckpt/x", tarfile.FIFOTYPE), "'x' is a named pipe"),
    "another kind": (entry("ckpt/x", b"Z"), "of an unknown kind"),
    "contiguous": (entry("ckpt/x", tarfile.CONTTYPE), "of an unknown kind"),
    "setuid": (entry("ckpt/x", mode=0o4755), "with setuid or setgid"),
    "setgid": (entry("ckpt/x", mode=0o2755), "with setuid or setgid"),
    "absolute": (entry("/ckpt/x"), "absolute"),
    "upwards": (entry("ckpt/../x"), "leads upwards"),
    "upwards first": (entry("../x"), "leads upwards"),
    "beside": (entry("other"), "is outside the archive's folder, 'ckpt'"),
    "the top twice": (entry("ckpt/.", tarfile.DIRTYPE), "in the archive twice"),
    "the top as a link": (entry("ckpt", tarfile.SYMTYPE, linkname="/"), "in the archive twice"),
    "no folder": (entry("ckpt/sub/x"), "before its folder"),
    "a long part": (entry("ckpt/" + "x" * 256), "longer than 255 bytes"),
    "a folder with content": (entry("ckpt/x", tarfile.DIRTYPE, b"x"), "is not a file"),
    "link to a root": (entry("ckpt/x", tarfile.SYMTYPE, linkname="/etc"), "may be outside"),
    "link out": (entry("ckpt/x", tarfile.SYMTYPE, linkname=".."), "may be outside"),
    "link over the top": (entry("ckpt/x", tarfile.SYMTYPE, linkname="../ckpt/a"), "outside"),
    "link up later": (entry("ckpt/x", tarfile.SYMTYPE, linkname="a/../b"), "may be outside"),
    "link nowhere": (entry("ckpt/x", tarfile.SYMTYPE, linkname=""), "may be outside"),
    "hard link out": (entry("ckpt/x", tarfile.LNKTYPE, linkname="/etc/shadow"), "absolute"),
    "hard link up": (entry("ckpt/x", tarfile.LNKTYPE, linkname="ckpt/../x"), "upwards"),
    "hard link to nothing": (
        entry("ckpt/x", tarfile.LNKTYPE, linkname="ckpt/y"),
        "no earlier file",
    ),
    "hard link to a folder": (entry("ckpt/x", tarfile.LNKTYPE, linkname="ckpt"), "no earlier file"),
    "owner": (entry("ckpt/x", uid=1 << 32), "belongs to user 4294967296"),
    "pax sparse": (entry("ckpt/x", pax_headers={"GNU.sparse.size": "9"}), "sparse"),
    "pax size": (entry("ckpt/x", pax_headers={"size": "-1"}), "has the size '-1'"),
    "pax owner": (entry("ckpt/x", pax_headers={"uid": "1e9"}), "has the uid '1e9'"),
    "large attributes": (entry("ckpt/x", pax_headers={"a": "x" * 70_000}), "longer than 65536"),
    "a nul": (entry("ckpt/x", pax_headers={"path": "ckpt/x\0y"}), "is not a valid file name"),
    "global": (entry("ckpt/x", tarfile.XGLTYPE), "of an unknown kind"),
}


@pytest.mark.parametrize(("bad", "problem"), HOSTILE.values(), ids=HOSTILE)
def test_what_is_hostile_is_refused_in_one_line(bad: Any, problem: str) -> None:
    assert problem in refused(TOP, bad)


def test_nothing_lies_behind_a_link() -> None:
    link = entry("ckpt/x", tarfile.SYMTYPE, linkname="sub")
    sub = entry("ckpt/sub", tarfile.DIRTYPE)
    assert "before its folder" in refused(TOP, sub, link, entry("ckpt/x/y"))
    assert "in the archive twice" in refused(TOP, sub, link, entry("ckpt/x", tarfile.DIRTYPE))
    assert "in the archive twice" in refused(
        TOP, sub, entry("ckpt/sub", tarfile.SYMTYPE, linkname="elsewhere")
    )


@pytest.mark.parametrize(
    "first", [entry("ckpt"), entry("ckpt", tarfile.SYMTYPE, linkname="x"), entry("a/b")]
)
def test_a_folder_comes_first(first: Any) -> None:
    assert "must begin with a folder" in refused(first)


def test_a_sparse_file_of_gnu() -> None:
    whole = bytearray(packed(TOP, entry("ckpt/x")))
    whole[512 + 156] = ord("S")
    assert "a sparse file" in why(signed(whole, 512))


def signed(whole: bytearray, at: int) -> bytes:
    """With the header's checksum set right."""
    block = whole[at : at + 512]
    block[148:156] = b" " * 8
    whole[at + 148 : at + 156] = b"%06o\0 " % sum(block)
    return bytes(whole)


@pytest.mark.parametrize("size", [b"\xff" * 12, b"\x80" + b"\xff" * 11])
def test_sizes_that_no_file_has(size: bytes) -> None:
    whole = bytearray(packed(TOP, entry("ckpt/x")))
    whole[512 + 124 : 512 + 136] = size
    assert re.search("below zero|larger than", why(signed(whole, 512)))


def test_long_names_are_bounded_before_they_are_read() -> None:
    whole = bytearray(packed(TOP, entry("ckpt/" + "x" * 200)))
    whole[512 + 124 : 512 + 136] = b"%011o\0" % (1 << 30)
    assert "longer than 65536" in why(signed(whole, 512))


@pytest.mark.parametrize("text", [b"9 a=b\n", b"x a=b\n", b"6 a b\n", b"6 a=bc", b"0 a=b\n", b"-6"])
def test_attributes_that_are_malformed(text: bytes) -> None:
    assert "attributes are not understood" in why(
        packed(TOP, entry("x", tarfile.XHDTYPE, text), entry("ckpt/x"))
    )


WHOLE = packed(TOP, entry("ckpt/a", text=b"\0" * 3000))


@pytest.mark.parametrize("size", [0, 100, 512, 600, 1024, 1500, 4000, 4096, 4608])
def test_cut_archive_is_refused(size: int) -> None:
    assert "ends in the middle" in why(WHOLE[:size])


@pytest.mark.parametrize(
    ("whole", "problem"),
    [
        (b"\0" * 1024, "is empty"),
        (WHOLE[:512] + b"\0" * 512 + WHOLE[512:], "no end mark"),
        (b"x" * 1024, "not understood"),
    ],
    ids=["empty", "two ends", "noise"],
)
def test_odd_archive_is_refused(whole: bytes, problem: str) -> None:
    assert problem in why(whole)


def test_sizes_and_numbers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [entry(f"ckpt/{n}", text=b"x" * 600) for n in range(5)]
    whole = packed(TOP, *files)
    exactly = 512 + 5 * 3 * 512
    assert len(through(whole, most_bytes=exactly)) == 6
    assert "the archive is larger than 8 KiB" in why(whole, most_bytes=exactly - 1)
    monkeypatch.setattr(archives, "MOST_ENTRIES", 6)
    assert len(through(whole)) == 6
    monkeypatch.setattr(archives, "MOST_ENTRIES", 5)
    assert "more than 5 entries" in why(whole)
    monkeypatch.setattr(archives, "MOST_ENTRIES", 100)
    monkeypatch.setattr(archives, "MOST_NAMES_BYTES", 10)
    assert "the archive's names are longer" in why(whole)


def test_a_chain_of_names_before_no_entry_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_ENTRIES", 5)
    names = [entry("x", tarfile.GNUTYPE_LONGNAME, b"ckpt/y\0") for _ in range(50)]
    assert "more than 5 entries" in why(packed(TOP, *names))


PARTS = st.sampled_from(["ckpt", "a", "b", "..", ".", "", "etc"])
PATHS = st.lists(PARTS, min_size=1, max_size=5).map("/".join)
KINDS = st.sampled_from(
    [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE]
)
ENTRIES = st.builds(
    lambda name, kind, link, mode: entry(
        name, kind, b"x" if kind == tarfile.REGTYPE else b"", linkname=link, mode=mode
    ),
    PATHS.map(lambda path: f"ckpt/{path}"),
    KINDS,
    PATHS,
    st.integers(0, 0o7777),
)


@given(entries=st.lists(ENTRIES, max_size=8), form=st.sampled_from(FORMATS[1:]))
@example(
    entries=[entry("ckpt/ckpt", tarfile.SYMTYPE, linkname="ckpt//ckpt")], form=tarfile.GNU_FORMAT
)
def test_whatever_is_let_through_stays_below_its_folder(
    tmp_path_factory: pytest.TempPathFactory, entries: list[Any], form: int
) -> None:
    try:
        found = through(packed(TOP, *entries, form=form), "top")
    except Unfit:
        return
    stays_below(found, tmp_path_factory.mktemp("root").resolve())


def stays_below(found: list[Any], folder: Path) -> None:
    """Unpack as an engine would, without any care, and look where everything is."""
    for info, _ in found:
        place = folder / info.name
        assert place.parent.resolve().is_relative_to(folder)
        assert not info.mode & 0o6000
        if info.isdir():
            place.mkdir()
        elif info.isreg():
            place.touch()
        elif info.issym():
            place.symlink_to(info.linkname)
        else:
            assert info.islnk()
            place.hardlink_to(folder / info.linkname)
    for place in folder.rglob("*"):
        if not loops(place):
            assert Path(os.path.realpath(place)).is_relative_to(folder / "top")


def loops(place: Path) -> bool:
    """Whether it leads nowhere, round and round. Of such a link realpath returns what is left to
    follow: `/ckpt` for `ckpt -> ckpt//ckpt`, as if that were outside."""
    try:
        place.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


@given(st.binary(max_size=3000), st.integers(0, 3000))
def test_bytes_of_any_sort_raise_nothing_else(noise: bytes, at: int) -> None:
    whole = packed(TOP, entry("ckpt/a", text=b"a" * 700), entry("ckpt/" + "n" * 120))
    for text in (noise, whole[:at] + noise, whole[:at] + noise + whole[at + len(noise) :]):
        try:
            through(text)
        except Unfit:
            continue


@given(st.data())
def test_a_header_of_any_sort_raises_nothing_else(data: st.DataObject) -> None:
    whole = bytearray(packed(TOP, entry("ckpt/a", text=b"a" * 700, pax_headers={"x": "y"})))
    at = data.draw(st.integers(0, len(whole) // 512 - 1)) * 512
    place = data.draw(st.integers(0, 511))
    noise = data.draw(st.binary(max_size=min(60, 512 - place)))
    whole[at + place : at + place + len(noise)] = noise
    try:
        through(signed(whole, at))
    except Unfit:
        return
