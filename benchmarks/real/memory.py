"""Memory limits that dlsched raises, on real containers, beside `max` from the start.

Twelve drawn mixes of leaks, steps, peaks and page cache beside a small service. Each runs twice:
with `memory: {min, max}` and with `memory: max`. Counted are kills by the kernel, raises, and the
service's p95.

    python -m benchmarks run memory-real     writes benchmarks/results/memory-real.json
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.options import options, stage
from benchmarks.publish import results
from dlsched.store.journal.reader import JournalReader
from tools.base_image import BASE, ensure_base
from tools.session import JOURNAL, Session, session, wait_for

NAME = "memory-real"
PROGRAM = Path(__file__).parent / "programs" / "memory.py"
SEEDS = tuple(range(12))
LASTS_S = 40.0
WITHIN_RATIO = 1.1
"""The figure: neighbours' p95, of that with `max` from the start."""
SERVICE = "service"
WAYS = ("raised", "oracle")
MIB = 1 << 20


@dataclass(frozen=True)
class Load:
    """One container of a mix, in MiB."""

    name: str
    kind: str
    min_mib: int
    max_mib: int
    words: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """One container in one run."""

    seed: int
    way: str
    name: str
    killed: bool
    raises: int
    limit_mib: int
    """Its last limit."""
    p95_s: float | None = None
    """Of the service."""


def drawn(seed: int) -> list[Load]:
    """The containers of a mix: two that grow, and one with page cache."""
    chance = random.Random(f"memory {seed}")
    loads = []
    for number in range(2):
        kind = chance.choice(("leak", "steps", "peaks"))
        least = chance.choice((96, 128, 192))
        most = round(least * chance.uniform(2.0, 3.5))
        end = round(most * chance.uniform(0.6, 0.88))
        pace, every_s = chance.uniform(4, 40), chance.uniform(4, 9)
        words = (str(least // 3), str(end), f"{pace:.1f}", f"{every_s:.1f}")
        loads.append(Load(f"{kind}-{number}", kind, least, most, (kind, *words)))
    loads.append(Load("cache", "cache", 96, 288, ("cache", "40", "200")))
    return loads


def job(name: str, words: Sequence[str], memory: str) -> str:
    """A job file."""
    command = json.dumps(["python", "/memory.py", *words])
    lines = [f"name: {name}", f"image: {BASE}", f"command: {command}", "network: none"]
    lines += [f"volumes: ['{PROGRAM}:/memory.py:ro']", f"memory: {memory}", "stop: {grace: 1s}"]
    return "\n".join(lines) + "\n"


def run(seed: int, way: str) -> list[Row]:
    """One mix under one way."""
    loads = drawn(seed)
    with session() as one:
        one.start("none")
        one.drop(SERVICE, job(SERVICE, ["serve"], "64MiB"))
        for load in loads:
            least = load.max_mib if way == "oracle" else load.min_mib
            memory = f"{{min: {least}MiB, max: {load.max_mib}MiB}}"
            one.drop(load.name, job(load.name, load.words, memory))
        wait_for(lambda: len(one.client.jobs()["jobs"]) == len(loads) + 1, 60, "the jobs")
        names = [load.name for load in loads]
        wait_for(lambda: all(_state(one, name) != "starting" for name in names), 120, "their start")
        time.sleep(LASTS_S)
        rows = [_row(one, seed, way, name) for name in (*names, SERVICE)]
        one.stop()
    return rows


def _state(one: Session, name: str) -> str:
    rows = {row["name"]: row["state"] for row in one.client.jobs()["jobs"]}
    found = rows.get(name, "starting")
    return "starting" if found in ("waiting", "pulling") else str(found)


def _row(one: Session, seed: int, way: str, name: str) -> Row:
    container = one.engine.containers.get(f"dlsched-{one.instance}-{name}")
    with JournalReader(one.state_dir / JOURNAL) as reader:
        made = [change for change in reader.last_changes(name, 500) if change.kind == "memory"]
    raises = sum(_grows(change.changed) for change in made if change.status == "done")
    p95_s = None
    if name == SERVICE:
        lines = container.logs().decode().split()
        took = sorted(float(line) for line in lines[20:])
        p95_s = took[int(0.95 * len(took))] if took else None
    attrs = container.attrs
    return Row(
        seed=seed,
        way=way,
        name=name,
        killed=bool(attrs["State"]["OOMKilled"]),
        raises=raises,
        limit_mib=attrs["HostConfig"]["Memory"] // MIB,
        p95_s=p95_s,
    )


def _grows(changed: str) -> bool:
    """Whether that text of a change says that the limit was raised."""
    before, _, after = changed.removeprefix("limit of memory ").partition(" -> ")
    return _bytes(after) > _bytes(before)


def _bytes(text: str) -> float:
    number, _, unit = text.partition(" ")
    return float(number) * {"KiB": 1 / 1024, "MiB": 1.0, "GiB": 1024.0}.get(unit, 0.0)


def table(rows: Sequence[Row]) -> list[dict[str, object]]:
    """A row a mix."""
    found = []
    for seed, mine in results.grouped(rows, lambda one: one.seed).items():
        by_way = {way: [one for one in mine if one.way == way] for way in WAYS}
        p95 = {way: next(one.p95_s for one in by_way[way] if one.name == SERVICE) for way in WAYS}
        ratio = None
        if p95["raised"] is not None and p95["oracle"]:
            ratio = round(p95["raised"] / p95["oracle"], 2)
        found.append(
            {
                "mix": seed,
                "containers": ", ".join(one.name for one in by_way["raised"]),
                **{f"killed, {way}": sum(one.killed for one in by_way[way]) for way in WAYS},
                "raises": sum(one.raises for one in by_way["raised"]),
                "of page cache": sum(one.raises for one in by_way["raised"] if one.name == "cache"),
                "service's p95, of the oracle's": ratio,
            }
        )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    asked = options(__doc__, arguments, mixes=(len(SEEDS), "how many of the twelve"))
    ensure_base(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"))
    facts, rows = results.engine_facts(), list[Row]()
    for seed in SEEDS[: asked.mixes]:
        stage(f"mix {seed}")
        for way in WAYS:
            rows += run(seed, way)
    shown = table(rows)
    worse = sum(
        one.killed
        and not any(
            other.killed
            for other in rows
            if (other.seed, other.name, other.way) == (one.seed, one.name, "oracle")
        )
        for one in rows
        if one.way == "raised"
    )
    ratios = [one["service's p95, of the oracle's"] for one in shown]
    within = sum(isinstance(one, float) and one <= WITHIN_RATIO for one in ratios)
    headline = (
        f"In {len(shown)} mixes of real containers {worse} were killed that lived with `max` from "
        f"the start; page cache raised {sum(int(str(one['of page cache'])) for one in shown)} "
        f"limits; the service's p95 was at most {WITHIN_RATIO:g} of that with `max` from the start "
        f"in {within}."
    )
    whole = asked.mixes == len(SEEDS)
    results.finish(
        NAME, facts, SEEDS, rows, {"Memory limits that are raised": shown}, [headline], whole=whole
    )
    return 0
