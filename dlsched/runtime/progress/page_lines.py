"""Takes the wanted lines out of a Prometheus page while it arrives, with bounds.

A page counts whole or not at all: the first wanted line that cannot be read refuses it.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

LINE_BYTES = 2048
"""Longer lines are not parsed."""
MOST_LINES = 16_384
"""Lines of one page that are kept at most: a histogram of 40 bounds for 380 series. They take about
6 MiB, and a page of them 60 ms."""

MOST_NAMED = 256
"""Names of other metrics kept of one page, to choose the closest from."""

LABELS_MAX = 64
"""Labels of one line: short ones take twenty times their bytes once parsed."""

DIGITS = 6
"""Significant digits that C's `%g` and C++ streams print, without zeros at the end."""

_HEADS_BYTES = 1 << 20
"""Bytes of the heads whose parsed form is kept: those of a large page."""
_SHOWN_CHARACTERS = 40
_SERIES_LABELS = ("le", "quantile")

_LABEL = rb'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\.)*"'
_NAME = rb"[a-zA-Z_:][a-zA-Z0-9_:]*"
_HEAD = re.compile(rb"(%b)(?:\{((?:%b,)*(?:%b)?)\})?" % (_NAME, _LABEL, _LABEL))
_PAIR = re.compile(rb'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(rb"\\(.)")
_NUMBER = re.compile(rb"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?")

Labels = tuple[tuple[str, str], ...]
"""A series' labels, sorted, without `le` and `quantile`."""


@dataclass(frozen=True, slots=True)
class Head:
    """Everything of a line but its value, and mostly its bound: the same on every page."""

    name: str
    labels: Labels
    le: str | None = None
    quantile: str | None = None


class Line(NamedTuple):
    head: Head
    value: float
    le: str | None = None
    """The upper bound of a histogram's bucket."""
    off: float = 0.0
    """How far its value may be off, since it is printed with few digits."""


class PageFilter:
    """Cuts the wanted lines out of one page while it arrives; the rest of it is never kept."""

    def __init__(self, wanted: re.Pattern[bytes], names: re.Pattern[bytes] | None = None) -> None:
        """`wanted` matches a line with the newline before it; `names` one that names a metric, in
        its first group."""
        self._wanted = wanted
        self._names = names
        self.named: set[str] = set()
        """Names of the page's metrics, at most `MOST_NAMED`."""
        self.lines: list[bytes] = []
        self._rest = b"\n"
        self.refused: str | None = None
        """Why the page cannot be read, in one line; nothing after that line is looked at."""

    def feed(self, chunk: bytes) -> None:
        cut = chunk.rfind(b"\n")
        if cut < 0:
            # What is too long stays too long; no more of it is kept.
            self._rest = (self._rest + chunk)[: LINE_BYTES + 2]
            return
        head, newline, tail = chunk[:cut].partition(b"\n")
        self._take((self._rest + head)[: LINE_BYTES + 2] + newline + tail)
        self._rest = b"\n" + chunk[cut + 1 :][: LINE_BYTES + 1]

    def end(self) -> list[bytes]:
        """The lines that are kept. A page that ends within a wanted line was cut: digits may be
        missing, so it is refused."""
        if self.refused is None and (cut := self._wanted.search(self._rest)) is not None:
            self.refused = f"the page ends within a line: {_shown(cut.group()[1:])}"
        self._rest = b""
        return self.lines

    def _take(self, block: bytes) -> None:
        if self._names is not None:
            for found in self._names.finditer(block):
                if len(self.named) >= MOST_NAMED:
                    break
                self.named.add(found[1].decode())
        if self.refused is not None:
            return
        try:
            for match in self._wanted.finditer(block):
                line = match.group()[1:]
                if len(line) > LINE_BYTES:
                    self.refused = f"a line has more than {LINE_BYTES} bytes: {_shown(line)}"
                    return
                self._keep(line)
        except ValueError as why:
            self.refused = str(why)

    def _keep(self, line: bytes) -> None:
        """Keep it. Raises ValueError where it cannot be read, or is one too many."""
        if len(self.lines) >= MOST_LINES:
            raise ValueError(
                f"more than {MOST_LINES} of the page's lines are of latency metrics, so none is "
                "read: let the program expose fewer series (sets of labels) of them"
            )
        self.lines.append(line)


class PageReading(PageFilter):
    """The same, with each line parsed."""

    def __init__(
        self, wanted: re.Pattern[bytes], parser: LineParser, names: re.Pattern[bytes] | None
    ) -> None:
        super().__init__(wanted, names)
        self._parser = parser
        self._kept = 0
        self.by_name: defaultdict[str, list[Line]] = defaultdict(list)
        self.left_out: set[str] = set()
        """Names of lines that the filters leave out."""

    def _keep(self, line: bytes) -> None:
        parsed = self._parser.parse(line)
        if isinstance(parsed, str):
            self.left_out.add(parsed)
        elif parsed is not None:
            self._kept += 1
            if self._kept > MOST_LINES:
                raise ValueError(f"the page has more than {MOST_LINES} lines of one metric")
            self.by_name[parsed.head.name].append(parsed)


def names_of(types: Iterable[str]) -> re.Pattern[bytes]:
    """Matches each line by which a page gives the type of a metric, if it is one of these; without
    metrics of the program's runtime."""
    return re.compile(
        rb"\n# TYPE (?!(?:python|process|go|jvm)_)([a-zA-Z_:][a-zA-Z0-9_:]{0,63}) (?:%b)(?=[\r\n])"
        % "|".join(types).encode()
    )


def wanted_lines(names: Iterable[str]) -> re.Pattern[bytes]:
    """Matches each line of these sample names, with the newline before it."""
    spelled = b"|".join(re.escape(name).encode() for name in sorted(names, reverse=True))
    return re.compile(rb"\n(?:%b)(?=[{ \t])[^\n]*" % spelled)


class LineParser:
    """Parses lines; remembers their heads, since the next page has the same ones. The lines of one
    histogram's series differ in their bounds, so that they share a head."""

    def __init__(self, keeps: Callable[[Head], bool], gauges: Collection[str] = ()) -> None:
        """`keeps`: whether a line with this head is wanted; it is asked once as long as the head is
        remembered. Of `gauges` alone a value may be nan or inf: a training that diverged."""
        self._keeps = keeps
        self._gauges = gauges
        self._heads: dict[bytes, tuple[Head, bool]] = {}
        self._heads_bytes = 0
        self._is_exact = False
        """Whether a number with an exponent had more digits than C's streams print."""

    def parse(self, line: bytes) -> Line | str | None:
        """The line; its name alone if it is not wanted; None for a summary's value that is NaN.
        Raises ValueError, in one line, where it cannot be read."""
        head_bytes, _, number = line.rpartition(b" ")
        key, bound = _apart(head_bytes)
        known = self._heads.get(key)
        if known is None and bound is not None:
            known = self._heads.get(head_bytes)
            bound = bound if known is None else None
        if known is not None and not known[1]:
            return known[0].name  # most lines of a large page with filters
        off = 0.0
        is_number = _NUMBER.fullmatch(number)
        if known is None and is_number:
            known, bound = self._read_head(line, head_bytes, key, bound)
        if known is None or not is_number:
            head, value = self._whole(line)
            known = head, self._keeps(head)
        else:
            value = float(number) if known[1] else 0.0
            if b"e+" in number:
                off = self._off(number)
        head, kept = known
        if not kept:
            return head.name
        if math.isnan(value) and head.quantile is not None:
            return None  # a summary without recent requests
        gauge = head.name in self._gauges and head.quantile is None
        if not math.isfinite(value) and not gauge:
            raise ValueError(f"a line has no finite number: {_shown(line)}")
        le = head.le if bound is None else bound.decode("latin-1")
        return Line(head, value, le, off)

    def _off(self, number: bytes) -> float:
        """Half of the last digit of a number with an exponent, if it may be rounded."""
        digits, _, power = number.partition(b"e+")
        self._is_exact = self._is_exact or len(digits.replace(b".", b"").lstrip(b"+-")) > DIGITS
        return 0.0 if self._is_exact else float(f"5e{int(power) - DIGITS}")

    def _read_head(
        self, line: bytes, head_bytes: bytes, key: bytes, bound: bytes | None
    ) -> tuple[tuple[Head, bool] | None, bytes | None]:
        """The head of a line as clients write it, and its bound where that is apart from it."""
        _check_labels(line)
        match = _HEAD.fullmatch(head_bytes)
        if match is None:
            return None, None
        try:
            pairs = [(k.decode(), _value(v)) for k, v in _PAIR.findall(match[2] or b"")]
        except UnicodeDecodeError:
            raise ValueError(f"not a sample: {_shown(line)}") from None
        head = _head(match[1].decode(), pairs)
        if bound is not None and head.le == bound.decode("latin-1"):
            head = replace(head, le=None)
        else:
            key, bound = head_bytes, None
        known = head, self._keeps(head)
        self._heads_bytes += len(key)
        if self._heads_bytes > _HEADS_BYTES:
            self._heads.clear()
            self._heads_bytes = len(key)
        self._heads[key] = known
        return known, bound

    def _whole(self, line: bytes) -> tuple[Head, float]:
        """Blanks in odd places, time stamps, NaN: Prometheus' own parser knows them."""
        _check_labels(line)
        try:
            (metric,) = text_string_to_metric_families(line.decode())
            (sample,) = metric.samples
            value = float(sample.value)
        except Exception:  # noqa: BLE001 - whatever the parser makes of a container's bytes
            raise ValueError(f"not a sample: {_shown(line)}") from None
        return _head(sample.name, list(sample.labels.items())), value


def _apart(head_bytes: bytes) -> tuple[bytes, bytes | None]:
    """A bucket's head without its bound, which other buckets of the series have too, and the bound.
    A label whose name or value only ends in `le` has none: the whole head, and None."""
    before, found, after = head_bytes.rpartition(b'le="')
    if not found or before[-1:] not in (b"{", b","):
        return head_bytes, None
    bound, _, behind = after.partition(b'"')
    return (before + behind, bound) if bound else (head_bytes, None)


def _check_labels(line: bytes) -> None:
    if line.count(b'"') > 2 * LABELS_MAX:
        raise ValueError(f"a line has more than {LABELS_MAX} labels: {_shown(line)}")


def _value(quoted: bytes) -> str:
    if b"\\" in quoted:
        quoted = _ESCAPED.sub(lambda one: b"\n" if one[1] == b"n" else one[1], quoted)
    return quoted.decode()


def _head(name: str, pairs: list[tuple[str, str]]) -> Head:
    given = dict(pairs)
    labels = tuple(sorted(pair for pair in given.items() if pair[0] not in _SERIES_LABELS))
    return Head(name, labels, given.get("le"), given.get("quantile"))


def _shown(line: bytes) -> str:
    text = ascii(line.decode(errors="replace"))
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
