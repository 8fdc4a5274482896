"""`dlsched run` and `dlsched cluster run` in which every step of a move between hosts is a point.

At a point the process itself can be killed, or another one; see `tests.torture.points`. What is
wrapped are the writes of records and of the agents' files, the orders, and what is done to
containers. The product knows nothing of it.

    python -m benchmarks.robustness.cluster_points ORDERS run|cluster ...
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from dlsched.cli import main
from dlsched.cluster.agent.assignments import Assignment
from dlsched.cluster.https import Answer
from dlsched.cluster.https_agents import _Node
from dlsched.cluster.swarm.store import SwarmStore
from dlsched.runtime.docker.carrying import Arrivals
from dlsched.runtime.docker.engine import Engine
from dlsched.runtime.docker.engine_calls import EngineCalls
from dlsched.store.records import Records
from tests.torture.points import Points

MOVES = ("ask", "set_aside", "end", "pack", "remove", "bring_back")
ENGINE = ("create", "start", "remove")
CHECKPOINT_BYTES = 1 << 20
"""A longer answer is a checkpoint."""

_phase: ContextVar[str | None] = ContextVar("phase", default=None)


def program(orders: Path) -> Callable[[str], Sequence[str | Path]]:
    """The command that runs these, by their first word, and looks for orders below that folder."""

    def command(word: str) -> Sequence[str | Path]:
        (orders / word).mkdir(parents=True, exist_ok=True)
        return sys.executable, "-m", "benchmarks.robustness.cluster_points", orders / word

    return command


def wrap(points: Points) -> None:
    """From now on each of them is a point, for a process that does nothing else."""
    _wrap(points, Records, "secure", _file)
    _wrap(points, SwarmStore, "put", lambda _, record, *__: f"record {record.state}")
    for name in MOVES:
        _wrap(points, EngineCalls, name, lambda *_, name=name, **__: f"move: {name}")
    for name in ENGINE:
        _wrap(points, Engine, name, lambda *_, name=name, **__: f"engine: {name}")
    _wrap(points, Arrivals, "fill", lambda *_: "volume filled")
    _wrap_orders(points)
    _wrap_checkpoints(points)


def _file(files: Records[Any], one: object) -> str:
    """What is written, for a point's name."""
    if not isinstance(one, Assignment):
        return f"file of {type(one).__name__}"
    before = files.of(one.job)
    confirms = before is not None and before.phase is one.phase and not before.confirmed
    return f"file {one.phase}" + (", confirmed" if confirms and one.confirmed else "")


def _wrap(points: Points, kind: type, name: str, action: Callable[..., str]) -> None:
    call = getattr(kind, name)

    def wrapped(self: Any, *rest: Any, **more: Any) -> Any:
        with points.around(action(self, *rest, **more), ""):
            return call(self, *rest, **more)

    setattr(kind, name, wrapped)


def _wrap_orders(points: Points) -> None:
    """The inside of an order: it is sent, and its answer not read yet."""
    send, begin = _Node._send, Answer.begin

    async def sending(self: _Node, order: Any) -> None:
        with points.around(f"order {order.verb}", "", has_inside=True) as phase:
            _phase.set(phase)
            await send(self, order)
            _phase.set(None)

    async def beginning(self: Answer) -> None:
        if _phase.get() == "inside":
            points.die()
        await begin(self)

    _Node._send = sending  # type: ignore[method-assign]
    Answer.begin = beginning  # type: ignore[method-assign]


def _wrap_checkpoints(points: Points) -> None:
    """Each block of a checkpoint that is packed, comes, or is unpacked."""
    blocks, archive, unpack = Answer.blocks, Engine.archive, Engine.unpack

    def chunks(action: str, found: Iterable[bytes]) -> Generator[bytes]:
        for chunk in found:
            with points.around(action, ""):
                pass
            yield chunk

    def packing(self: Engine, container: str, path: str) -> Generator[bytes]:
        with closing(archive(self, container, path)) as found:
            yield from chunks("packed block", found)

    def unpacking(self: Engine, container: str, path: str, found: Iterator[bytes]) -> None:
        unpack(self, container, path, chunks("unpacked block", found))

    Engine.archive, Engine.unpack = packing, unpacking  # type: ignore[method-assign]

    async def coming(self: Answer) -> AsyncIterator[bytes]:
        async for block in blocks(self):
            if (self.size_bytes or 0) < CHECKPOINT_BYTES:
                yield block
                continue
            with points.around("fetched block", ""):
                pass
            yield block

    Answer.blocks = coming  # type: ignore[method-assign]


if __name__ == "__main__":
    orders, *words = sys.argv[1:]
    wrap(Points(Path(orders)))
    sys.exit(main(words, prog_name="dlsched"))
