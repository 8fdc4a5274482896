"""`python -m benchmarks run fuzz`: a million inputs for each reader of what strangers write.

Each target runs in a process of its own, so that a crash, a hang and a growing memory are seen.
Input number n of a seed is always the same bytes. Prints the table and each finding, writes
`results/fuzz.json`; exit code 1 when there is one.
"""

from __future__ import annotations

import codecs
import mmap
import multiprocessing
import os
import pwd
import resource
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.options import options
from benchmarks.publish import results
from benchmarks.robustness.fuzzing.trial import Target, tried
from dlsched.config.metrics.loading import package_presets

_FUZZING = "benchmarks.robustness.fuzzing"
TARGETS = {
    "spec": f"{_FUZZING}.job_files:spec",
    "sidecar": f"{_FUZZING}.sidecar_file:sidecar",
    "labels": f"{_FUZZING}.labels:labels",
    "pages": f"{_FUZZING}.served:pages",
    "lines": f"{_FUZZING}.served:lines",
    "probe": f"{_FUZZING}.served:probe",
    "api": f"{_FUZZING}.http_bytes:api",
    "wire-talks": f"{_FUZZING}.wire:talks",
    "wire-bytes": f"{_FUZZING}.wire:blocks",
}
"""What makes each target: a worker loads its own alone."""
ONE_IN = {"wire-talks": 10}
"""Of so many inputs of a run that target tries one: each is a whole conversation."""
INPUTS = 1_000_000
QUOTED_FROM = 100_000
"""A run of fewer inputs says nothing that could be quoted, and is not saved."""

WARM_UP = 0.1
"""Part of the inputs after which memory may no longer grow."""
GROWTH_MAX_BYTES = 16 << 20
MEMORY_MAX_BYTES = 4 << 30
"""Of address space, for a worker: a bomb ends it and not the host."""
AGAIN = 64
"""Of so many inputs one is asked again at the end: it must get the same answer."""
AGAIN_MAX = 2000
KINDS_MAX = 20
"""Ways to break a promise that are reported of one target."""
SILENT_S = 120.0
"""A worker that reports nothing for so long hangs."""
POLL_S = 0.5
REPORTED_S = 5.0
"""So often a worker sends its tally, and with each finding."""
TOLD_EVERY = 100_000
_KINDS_BYTES = 1 << 20
_CODECS = ("utf-8-sig", "idna", "latin-1", "unicode_escape")
"""Loaded on first use, as presets are, from where nobody may not be allowed to read."""
_spawn = multiprocessing.get_context("spawn")
_stopped = threading.Event()
"""Somebody wants the run to end: workers are ended, and nothing is left behind."""


@dataclass(slots=True)
class Tally:
    """What came of one target."""

    target: str
    executions: int = 0
    spent_s: float = 0.0
    slowest_s: float = 0.0
    slowest_input: int = 0
    first: dict[str, int] = field(default_factory=dict)
    """What the process held after the warm-up."""
    last: dict[str, int] = field(default_factory=dict)
    """The same at the end; empty until then."""
    answers: int = 0
    """Answers of different kinds: how much of a reader the inputs reach."""
    found: list[tuple[str, str, str]] = field(default_factory=list)
    """Of each finding what it is, the input in hexadecimal, and more."""

    def row(self) -> dict[str, object]:
        held = {"first": self.first, "last": self.last}
        return {
            "target": self.target,
            "executions": self.executions,
            "findings": len(self.found),
            "CPU s": round(self.spent_s, 1),
            "us an input": round(1e6 * self.spent_s / max(1, self.executions)),
            "slowest ms": round(1000 * self.slowest_s, 1),
            **{f"RSS {w} MiB": round(one.get("RSS", 0) / 2**20, 1) for w, one in held.items()},
            **{f"descriptors {w}": one.get("descriptors", 0) for w, one in held.items()},
            "kinds of answer": self.answers,
        }

    def find(self, what: str, data: bytes = b"", detail: str = "") -> None:
        """One more way in which a promise was broken."""
        what = f"{self.target}: {what.removeprefix(f'{self.target}: ')}"
        self.found.append((what, data.hex(), detail))


def mark(seen: bytearray, text: str) -> None:
    """Note a text among many, in memory that does not grow: a few percent share their place."""
    place, bit = divmod(int.from_bytes(_digest(text)), 8)
    seen[place % len(seen)] |= 1 << bit


def load(maker: str, *, powerless: bool = False) -> Target:
    """The target that `module:function` makes, to be tried and closed.

    `powerless`: as nobody from then on, so that no input can harm the host.
    """
    name, _, function = maker.partition(":")
    module = import_module(name)
    if powerless and os.geteuid() == 0:
        for codec in _CODECS:
            codecs.lookup(codec)
        package_presets()
        nobody = pwd.getpwnam("nobody")
        os.setgroups([])
        os.setgid(nobody.pw_gid)
        os.setuid(nobody.pw_uid)
    made: Target = getattr(module, function)()
    return made


def input_of(target: Target, seed: int, number: int) -> bytes:
    """The bytes of that input; the same for ever, while `make` is the same."""
    return target.make(Random(f"{seed}:{target.name}:{number}"))


# ------------------------------------------------------------------ the worker


def work(target: Target, seed: int, last: int, tally: Tally, now: Any = None) -> Iterator[None]:
    """Try all inputs up to `last` that the tally does not have yet; yields where it has news.

    `now`: shared memory for the number of the input that is tried.
    """
    kinds = bytearray(_KINDS_BYTES)
    known = {what for what, _, _ in tally.found}
    again: list[tuple[int, bytes]] = []
    first = tally.executions
    every = max(AGAIN, (last - first) // AGAIN_MAX)
    warm = first + max(1, int(WARM_UP * (last - first)))
    reported_s = time.monotonic()
    yield
    for number in range(first, last):
        data = input_of(target, seed, number)
        if now is not None:
            now.value = number
        answer, finding, took_s = tried(target, data)
        tally.executions, tally.spent_s = number + 1, tally.spent_s + took_s
        if took_s > tally.slowest_s:
            tally.slowest_s, tally.slowest_input = took_s, number
        if answer is not None:
            mark(kinds, "".join("#" if char.isdigit() else char for char in answer[:400]))
            if number % every == 0:
                again.append((number, _digest(answer)))
        if number + 1 == warm:
            for large in target.largest() if last - first >= QUOTED_FROM else ():
                tried(target, large)
            tally.first = tally.first or _own_use()
        news = time.monotonic() - reported_s > REPORTED_S
        if finding is not None and finding.what not in known and len(tally.found) < KINDS_MAX:
            news = True
            known.add(finding.what)
            tally.find(finding.what, finding.data, finding.detail)
        if news:
            reported_s = time.monotonic()
            tally.answers = max(tally.answers, int.from_bytes(kinds).bit_count())
            yield
    tally.answers = max(tally.answers, int.from_bytes(kinds).bit_count())
    tally.last = _own_use()
    yield
    for number, digest in again:
        data = input_of(target, seed, number)
        answer, _, _ = tried(target, data)
        if answer is None or _digest(answer) != digest:
            tally.find("another answer to the same input", data, f"input {number}")
            break
    yield


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _own_use() -> dict[str, int]:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    descriptors = sum(1 for _ in Path("/proc/self/fd").iterdir())
    return {"RSS": pages * mmap.PAGESIZE, "descriptors": descriptors}


def _be_worker(
    maker: str, seed: int, inputs: int, tally: Tally, now: Any, scratch: str, telling: Connection
) -> None:
    """Sends the tally at its beginning, with each news, and at its end."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX_BYTES, MEMORY_MAX_BYTES))
    tempfile.tempdir = scratch
    for _ in work(load(maker, powerless=True), seed, inputs, tally, now):
        telling.send(tally)


# ------------------------------------------------------------------ the parent


def run(
    name: str,
    seed: int,
    inputs: int,
    tell: Callable[[str], None],
    *,
    maker: str | None = None,
    silent_s: float = SILENT_S,
) -> Tally:
    """All inputs of one target; a worker that crashes is replaced by one that goes on after it.

    `maker`: of a target that is none of TARGETS.
    """
    maker = maker or TARGETS[name]
    tally, now = Tally(name), _spawn.Value("Q", lock=False)
    with _scratch() as scratch:
        while tally.executions < inputs and len(tally.found) < KINDS_MAX:
            told, telling = _spawn.Pipe(duplex=False)
            words = (maker, seed, inputs, tally, now, scratch, telling)
            worker = _spawn.Process(target=_be_worker, args=words)
            worker.start()
            telling.close()
            try:
                tally = _followed(told, tally, tell, silent_s)
                worker.join()
            except TimeoutError:
                pass  # it hangs
            finally:
                worker.kill()
                worker.join()
            if worker.exitcode == 0 or _stopped.is_set():
                break
            target = load(maker)
            tally.find(
                "the process ended, or hung",
                input_of(target, seed, now.value),
                f"input {now.value}",
            )
            target.close()
            tally.executions = now.value + 1
    grown = {what: tally.last[what] - tally.first[what] for what in tally.last if tally.first}
    if grown.get("RSS", 0) > GROWTH_MAX_BYTES:
        tally.find(f"memory grew by {grown['RSS'] >> 20} MiB after warm-up")
    if grown.get("descriptors", 0) > 0:
        tally.find(f"{grown['descriptors']} descriptors were left open")
    for what, data, detail in tally.found:
        tell(f"{what}: {bytes.fromhex(data)[:200]!r}\n{detail}")
    return tally


def _followed(
    told: Connection, tally: Tally, tell: Callable[[str], None], silent_s: float
) -> Tally:
    """Watch one worker until it ends: its last tally. Raises TimeoutError where it says nothing for
    too long, and RuntimeError where it could not begin."""
    silent_polls, begun = 0, False
    # Counted in polls: while all of it is paused, nobody is late.
    while silent_polls * POLL_S <= (silent_s if begun else SILENT_S) and not _stopped.is_set():
        silent_polls += 1
        try:
            if not told.poll(POLL_S):
                continue
            before, tally = tally.executions, told.recv()
        except EOFError:
            if not begun:
                raise RuntimeError(f"{tally.target}: the worker could not begin") from None
            return tally
        silent_polls, begun = 0, True
        if tally.executions // TOLD_EVERY > before // TOLD_EVERY:
            tell(f"{tally.target}: {tally.executions} inputs, {len(tally.found)} findings")
    raise TimeoutError


@contextmanager
def _scratch() -> Iterator[str]:
    """A folder for whatever workers write, in memory where the host has such a place."""
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="dlsched-fuzz-", dir=place) as folder:
        Path(folder).chmod(0o777)  # they are nobody
        yield folder


def main(arguments: list[str] | None = None) -> int:
    chosen = options(
        __doc__,
        arguments,
        inputs=(INPUTS, "of each target"),
        only=(tuple(TARGETS), "targets, such as spec,api"),
        seed=(1, "of all inputs"),
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: _stopped.set())
    tell = partial(print, flush=True)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as lanes:
        tried_out = lanes.map(
            lambda one: run(one, chosen.seed, chosen.inputs // ONE_IN.get(one, 1), tell),
            chosen.only,
        )
        tallies = list(tried_out)
    title, table = "Fuzzing: executions and findings of each reader", [one.row() for one in tallies]
    rows = [
        {
            **row,
            "slowest input": tally.slowest_input,
            "found": [[what, data] for what, data, _ in tally.found],
        }
        for row, tally in zip(table, tallies, strict=True)
    ]
    whole = chosen.only == tuple(TARGETS) and chosen.inputs >= QUOTED_FROM
    whole = whole and not _stopped.is_set()
    results.finish("fuzz", "none", [chosen.seed], rows, {title: table}, whole=whole)
    return 1 if any(tally.found for tally in tallies) else 0
