"""Runs real programs and keeps extracts of what they exported or printed.

    python -m tests.stacks.making [NAME...]        (all, if none is named)

In containers of the engine that answers:

    python -m tools.engine run -- python -m tests.stacks.making
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import docker

from dlsched.model.sources import LogPattern, MetricsEndpoint
from dlsched.runtime.progress.exposition import Candidate
from dlsched.runtime.progress.log_lines import Pattern
from dlsched.runtime.progress.scrape import named
from dlsched.runtime.progress.sources import read_sources
from tests.stacks import containers, environments
from tests.stacks.containers import ProgramFailed, tail
from tests.stacks.fixture import FOLDER, Extract, lines_of, written
from tests.stacks.reading import differences
from tests.stacks.stack import Stack
from tests.stacks.table import BY_NAME, RUN
from tools.base_image import ensure_base
from tools.engine_probe import answering_host, connect
from tools.environment import BUILD
from tools.steps import SetupError, say

KEPT_LINES = 40
"""Lines of a log that are kept."""
ENGINE_TIMEOUT_S = 60

_LOCAL = re.compile(rb"://|(?:^|[\s'\"(])/(?:[\w.-]+/)+")
"""Addresses and paths, which say more of the machine than of the program."""


def run(stack: Stack, client: docker.APIClient) -> Extract:
    """Run the program in a container of that engine; all that it exported and printed. Raises
    ProgramFailed."""
    environment = environments.folder(stack.environment)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        log = containers.printed(client, environment, stack, out)
        truth = out / "truth.json"
        if not truth.is_file():
            raise ProgramFailed(f"{stack.name}: no truth: {tail(log)}")
        versions = environments.versions(environment, stack.packages)
        return Extract(
            stack=stack.name,
            made=f"{', '.join(versions)}; Python 3.11, in a container, {datetime.now(UTC).date()}",
            command=f"python {' '.join(stack.command)}",
            kept="everything",
            truth=json.loads(truth.read_text(encoding="utf-8")),
            pages=tuple(one.read_bytes() for one in sorted(out.glob("page-*.txt"))),
            log=tuple(lines_of(log)),
        )


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
        return replace(whole, kept=kept, pages=pages, log=())
    assert isinstance(source, LogPattern)
    lines = _near_matches(source.pattern, whole.log)
    kept = f"{len(lines)} of {len(whole.log)} lines"
    return replace(whole, kept=kept, pages=(), log=lines)


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
    log = [one for one in log if _matches(reader, one[1]) or not _LOCAL.search(one[1])]
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


def make(stack: Stack, folder: Path, client: docker.APIClient) -> list[str]:
    """Run it, and keep its extract in that folder if it is read rightly, whole and shortened.
    Returns what is wrong. Raises ProgramFailed."""
    whole = run(stack, client)
    short = shortened(stack, whole)
    wrong = [f"whole: {one}" for one in differences(stack, whole)]
    wrong += [f"extract: {one}" for one in differences(stack, short)]
    place = folder / f"{stack.name}.txt"
    if wrong:
        place = BUILD / "stacks" / "wrong" / place.name
        wrong.append(f"what it printed: {place}")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(written(whole if wrong else short), encoding="utf-8")
    return wrong


@contextmanager
def engine() -> Iterator[docker.APIClient]:
    """A client of the engine that answers. Raises SetupError where none does."""
    host = answering_host(os.environ)
    if host is None:
        raise SetupError("real programs run in containers, and no engine answers")
    ensure_base(host)
    with closing(connect(host, ENGINE_TIMEOUT_S)) as client:
        yield client


def main(names: Sequence[str]) -> int:
    """Make these extracts again; returns the exit code."""
    failed = 0
    with engine() as client:
        for stack in [BY_NAME[name] for name in names] or RUN:
            try:
                environments.ensure(stack.environment)
                wrong = make(stack, FOLDER, client)
            except (ProgramFailed, SetupError) as error:
                wrong = [str(error)]
            failed += bool(wrong)
            say(f"{stack.name}: {'; '.join(wrong) or 'read rightly'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
