"""Takes the wanted lines out of a Prometheus page while it arrives, with bounds."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

LINE_BYTES = 2048
"""Longer lines are not parsed."""
MOST_LINES = 2048
"""Wanted lines parsed of one page at most: a histogram of 20 bounds for 100 series."""

MOST_NAMED = 256
"""Names of other metrics kept of one page, to choose the closest from."""

LABELS_MAX = 64
"""Labels of one line: short ones take twenty times their bytes once parsed."""

_HEADS_BYTES = 1 << 20
"""Bytes of the heads whose parsed form is kept: those of a large page."""
_SHOWN_CHARACTERS = 40
_SERIES_LABELS = ("le", "quantile")

_LABEL = rb'[a-zA-Z_][a-zA-Z0-9_]*="[^"\\\n]*"'
_HEAD = re.compile(rb"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:%b,)*(?:%b)?)\})?" % (_LABEL, _LABEL))
_PAIR = re.compile(rb'([a-zA-Z_][a-zA-Z0-9_]*)="([^"\\]*)"')
_NUMBER = re.compile(rb"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?")

Labels = tuple[tuple[str, str], ...]
"""A series' labels, sorted, without `le` and `quantile`."""


@dataclass(frozen=True, slots=True)
class Head:
    """Everything of a line but its value: the same on every page."""

    name: str
    labels: Labels
    le: str | None = None
    quantile: str | None = None


@dataclass(frozen=True, slots=True)
class Line:
    head: Head
    value: float


class RefusedLines:
    """Counts refused lines, and keeps the first reason."""

    def __init__(self) -> None:
        self.lines = 0
        self.why: str | None = None

    def add(self, why: str) -> None:
        self.lines += 1
        self.why = self.why or why


class PageFilter:
    """Cuts the wanted lines out of one page; the rest of it is never kept."""

    def __init__(
        self,
        wanted: re.Pattern[bytes],
        refused: RefusedLines,
        names: re.Pattern[bytes] | None = None,
    ) -> None:
        """`wanted` matches a line with the newline before it; `names` a line that names a metric,
        in its first group. None: names are not wanted."""
        self._wanted = wanted
        self._names = names
        self.named: set[str] = set()
        """Names of the page's metrics, at most `MOST_NAMED`."""
        self.refused = refused
        self._rest = b"\n"
        self.lines: list[bytes] = []

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
        self._take(self._rest)
        return self.lines

    def _take(self, block: bytes) -> None:
        if self._names is not None:
            for found in self._names.finditer(block):
                if len(self.named) >= MOST_NAMED:
                    break
                self.named.add(found[1].decode())
        if len(self.lines) >= MOST_LINES:
            return
        for match in self._wanted.finditer(block):
            if len(self.lines) >= MOST_LINES:
                self.refused.add(f"more than {MOST_LINES} lines of one metric")
                return
            line = match.group()
            if len(line) > LINE_BYTES + 1:
                self.refused.add(f"a line of more than {LINE_BYTES} bytes")
            else:
                self.lines.append(line[1:])


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
    """Parses lines; remembers their heads, since the next page has the same ones."""

    def __init__(self) -> None:
        self._heads: dict[bytes, Head] = {}
        self._heads_bytes = 0

    def parsed(
        self, lines: Iterable[bytes], refused: RefusedLines, gauges: Collection[str] = ()
    ) -> Iterator[Line]:
        """The lines, without those that are refused, and summaries' values that are NaN. Of
        `gauges` alone a value may be nan or inf: a training that diverged."""
        for line in lines:
            if line.count(b'"') > 2 * LABELS_MAX:
                refused.add(f"more than {LABELS_MAX} labels: {_shown(line)}")
                continue
            head_bytes, _, number = line.rpartition(b" ")
            head = self._heads.get(head_bytes)
            if head is None or not _NUMBER.fullmatch(number):
                head, value = self._whole(line, head_bytes, number, refused)
                if head is None:
                    continue
            else:
                value = float(number)
            if math.isnan(value) and head.quantile is not None:
                continue  # a summary without recent requests
            gauge = head.name in gauges and head.quantile is None
            if not math.isfinite(value) and not gauge:
                refused.add(f"not a finite number: {_shown(line)}")
                continue
            yield Line(head, value)

    def _whole(
        self, line: bytes, head_bytes: bytes, number: bytes, refused: RefusedLines
    ) -> tuple[Head | None, float]:
        match = _HEAD.fullmatch(head_bytes)
        if match is not None and _NUMBER.fullmatch(number):
            try:
                pairs = [(k.decode(), v.decode()) for k, v in _PAIR.findall(match[2] or b"")]
            except UnicodeDecodeError:
                refused.add(f"not a sample: {_shown(line)}")
                return None, 0.0
            head = _head(match[1].decode(), pairs)
            self._keep(head_bytes, head)
            return head, float(number)
        # Escapes, blanks in odd places, time stamps, NaN: Prometheus' own parser knows them.
        try:
            (metric,) = text_string_to_metric_families(line.decode())
            (sample,) = metric.samples
            value = float(sample.value)
        except Exception:  # noqa: BLE001 - whatever the parser makes of a container's bytes
            refused.add(f"not a sample: {_shown(line)}")
            return None, 0.0
        return _head(sample.name, list(sample.labels.items())), value

    def _keep(self, head_bytes: bytes, head: Head) -> None:
        self._heads_bytes += len(head_bytes)
        if self._heads_bytes > _HEADS_BYTES:
            self._heads.clear()
            self._heads_bytes = len(head_bytes)
        self._heads[head_bytes] = head


def _head(name: str, pairs: list[tuple[str, str]]) -> Head:
    given = dict(pairs)
    labels = tuple(sorted(pair for pair in given.items() if pair[0] not in _SERIES_LABELS))
    return Head(name, labels, given.get("le"), given.get("quantile"))


def _shown(line: bytes) -> str:
    text = ascii(line.decode(errors="replace"))
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
