"""Cuts chunks of bytes into lines of bounded length."""

from __future__ import annotations

from collections.abc import Iterator


class Lines:
    """Cuts one stream of bytes into lines."""

    def __init__(self, most_bytes: int, *, amid: bool = False) -> None:
        """A line of `most_bytes` or more is dropped. `amid`: the stream begins within a line, which
        is dropped, too."""
        self._most_bytes = most_bytes
        self._partial = b""
        self._left_out = amid

    def cut(self, chunk: bytes) -> Iterator[bytes | None]:
        """The lines that end in this chunk, without newline; None for each that was too long."""
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            if self._left_out:
                self._left_out = False
            elif len(self._partial) + len(line) >= self._most_bytes:
                yield None
            else:
                yield self._partial + line
            self._partial = b""
        if self._left_out:
            return
        self._partial += rest
        if len(self._partial) >= self._most_bytes:
            yield None
            self._partial, self._left_out = b"", True
