"""Recognizes block-buffered output: lines that arrive in bursts of full buffers. Pure."""

from __future__ import annotations

BLOCK_BYTES = 4096
"""Buffers of C's stdio and of Python hold this for a pipe, or twice as much."""

APART_S = 0.5
"""Silence that ends a burst. One write of a program arrives within a few milliseconds."""

LONGEST_S = 1.0
"""What arrives for longer without silence is a constant flow, not a burst."""

BURSTS = 3
"""Consecutive bursts of full buffers: a program's own blocks seldom have that size so often."""

SLACK_BYTES = 256
"""A burst ends with a whole line, so it is a line longer or shorter than the buffer; longer lines
than this would make any size fit."""


class Bursts:
    """The sizes of the bursts in one log."""

    def __init__(self) -> None:
        self._began_s = self._last_s = float("-inf")
        self._bytes = 0
        self._line_bytes = 0
        """Length of the longest line so far."""
        self._first = True
        """Whether the present burst is the first, which may be all that was printed before."""
        self._full = 0
        """Number of consecutive bursts of full buffers."""

    @property
    def buffered(self) -> bool:
        """Whether the last bursts were full buffers."""
        return self._full >= BURSTS

    def add(self, at_s: float, chunk: bytes) -> None:
        if at_s - self._last_s > APART_S:
            self._judge()
            self._began_s, self._bytes = at_s, 0
        self._last_s = at_s
        self._bytes += len(chunk)
        longest = max(len(line) for line in chunk.split(b"\n")) + 1
        self._line_bytes = max(self._line_bytes, min(longest, SLACK_BYTES))

    def missed(self) -> None:
        """Some of the log is lost, so the present burst's size is unknown."""
        self._first, self._bytes, self._full = True, 0, 0

    def _judge(self) -> None:
        if not self._bytes:
            return
        if self._first:
            self._first = False
            return
        blocks = round(self._bytes / BLOCK_BYTES)
        off_bytes = abs(self._bytes - blocks * BLOCK_BYTES)
        quick = self._last_s - self._began_s <= LONGEST_S
        fits = blocks > 0 and quick and off_bytes <= self._line_bytes
        self._full = self._full + 1 if fits else 0
