"""Runs real programs and keeps extracts of what they exported or printed.

    python -m tests.stacks.making [NAME...]        (all, if none is named)

Each runs in its environment of packages (`environments`): .build/stacks, or $DLSCHED_STACKS.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from dlsched.model.sources import LogPattern, MetricsEndpoint
from dlsched.runtime.progress.exposition import Candidate
from dlsched.runtime.progress.known import named
from dlsched.runtime.progress.pattern import Pattern
from dlsched.runtime.progress.sources import read_sources
from tests.stacks import environments
from tests.stacks.fixture import Extract, lines_of, path_of, written
from tests.stacks.reading import differences
from tests.stacks.stack import Stack
from tests.stacks.table import BY_NAME, RUN
from tools.steps import say

PROGRAMS = Path(__file__).parent / "programs"
KEPT_LINES = 40
"""Lines of a log that are kept."""
CHUNK_BYTES = 1 << 16
TAIL_BYTES = 2000


class ProgramFailed(Exception):
    """A program has not done what it is for; what it printed last."""


def run(stack: Stack, environment: Path) -> Extract:
    """Run the program as a process; all that it exported and printed. Raises ProgramFailed."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        python = str(environment / "bin" / "python")
        command = [python, str(PROGRAMS / stack.command[0]), *stack.command[1:]]
        log = _printed(command, out, stack.timeout_s)
        truth = out / "truth.json"
        if not truth.is_file():
            raise ProgramFailed(f"{stack.name}: no truth: {_tail(log)}")
        versions = environments.versions(environment, stack.packages)
        day = datetime.now(UTC).date()
        place = f"Python {environments.python_version(environment)}, as a process, {day}"
        return Extract(
            stack=stack.name,
            made=f"{', '.join(versions)}; {place}",
            command=f"python {' '.join(stack.command)}",
            kept="everything",
            truth=json.loads(truth.read_text(encoding="utf-8")),
            pages=tuple(one.read_bytes() for one in sorted(out.glob("page-*.txt"))),
            log=tuple(lines_of(log)),
        )


def _printed(command: Sequence[str], out: Path, timeout_s: float) -> list[tuple[float, bytes]]:
    """What it printed, as it arrived. Raises ProgramFailed."""
    log: list[tuple[float, bytes]] = []
    environment = {**os.environ, "STACKS_OUT": str(out), "PYTHONUNBUFFERED": "1", "COLUMNS": "120"}
    environment.pop("PYTHONPATH", None)
    environment["PYTHONPATH"] = str(PROGRAMS)
    began_s = time.monotonic()
    with subprocess.Popen(
        command,
        env=environment,
        cwd=out,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        with selectors.DefaultSelector() as ready:
            ready.register(process.stdout, selectors.EVENT_READ)
            while True:
                left_s = began_s + timeout_s - time.monotonic()
                if left_s <= 0 or not ready.select(left_s):
                    process.terminate()
                    raise ProgramFailed(f"{command[1]}: over {timeout_s:g} s: {_tail(log)}")
                chunk = os.read(process.stdout.fileno(), CHUNK_BYTES)
                if not chunk:
                    break
                log.append((time.monotonic() - began_s, chunk))
    if process.returncode:
        raise ProgramFailed(f"{command[1]}: exit code {process.returncode}: {_tail(log)}")
    return log


def _tail(log: Sequence[tuple[float, bytes]]) -> str:
    return b"".join(chunk for _, chunk in log)[-TAIL_BYTES:].decode("utf-8", "replace")


def shortened(stack: Stack, whole: Extract) -> Extract:
    """The part that is kept: of a page what the preset looks at, of a log some 40 lines."""
    (source,) = read_sources(stack.all_labels)
    if isinstance(source, MetricsEndpoint):
        names = {"process_start_time_seconds"}
        for metric in named(source, None):
            names.update(Candidate(metric).names)
            names.update(filter(None, (metric.errors,)))
        kept = f"of each page the lines of {', '.join(sorted(names))}"
        pages = tuple(_lines_with(page, names) for page in whole.pages)
        return _replaced(whole, kept, pages, ())
    assert isinstance(source, LogPattern)
    lines = _near_matches(source.pattern, whole.log)
    return _replaced(whole, f"{len(lines)} of {len(whole.log)} lines", (), lines)


def _replaced(
    whole: Extract,
    kept: str,
    pages: tuple[bytes, ...],
    log: tuple[tuple[float, bytes], ...],
) -> Extract:
    return Extract(whole.stack, whole.made, whole.command, kept, whole.truth, pages, log)


def _lines_with(page: bytes, names: set[str]) -> bytes:
    lines = page.decode().splitlines()
    return "".join(
        f"{line}\n" for line in lines if re.split(r"[{ ]", line, maxsplit=1)[0] in names
    ).encode()


def _near_matches(
    pattern: str, log: Sequence[tuple[float, bytes]]
) -> tuple[tuple[float, bytes], ...]:
    """The lines that match, and as many beside them as there is room for."""
    reader = Pattern(pattern)
    matching = [at for at, (_, line) in enumerate(log) if _matches(reader, line)]
    keep = set(matching)
    for distance in range(1, len(log)):
        beside = {at + side for at in matching for side in (-distance, distance)}
        fits = sorted(at for at in beside - keep if 0 <= at < len(log))
        keep.update(fits[: max(0, KEPT_LINES - len(keep))])
        if len(keep) >= min(KEPT_LINES, len(log)):
            break
    return tuple(log[at] for at in sorted(keep))


def _matches(reader: Pattern, line: bytes) -> bool:
    try:
        return reader.read(line.strip(b"\r\n")) is not None
    except ValueError:
        return True


def make(stack: Stack) -> list[str]:
    """Run it, and keep its extract where it is read rightly, whole and shortened. Returns what is
    wrong. Raises ProgramFailed."""
    whole = run(stack, environments.folder(stack.environment))
    short = shortened(stack, whole)
    wrong = [f"whole: {one}" for one in differences(stack, whole)]
    wrong += [f"extract: {one}" for one in differences(stack, short)]
    place = path_of(stack.name)
    if wrong:
        place = Path(tempfile.gettempdir()) / f"stacks-{stack.name}.txt"
        wrong.append(f"what it printed: {place}")
        short = whole
    place.write_text(written(short), encoding="utf-8")
    return wrong


def main(names: Sequence[str]) -> int:
    """Make these extracts again; returns the exit code."""
    failed = 0
    for stack in [BY_NAME[name] for name in names] or RUN:
        try:
            wrong = make(stack)
        except ProgramFailed as error:
            wrong = [str(error)]
        failed += bool(wrong)
        say(f"{stack.name}: {'; '.join(wrong) or 'read rightly'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
