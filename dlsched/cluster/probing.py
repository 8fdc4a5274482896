"""Asks nodes whether their agent answers, and changes nothing there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from dlsched.cluster.bounds import WHOLE_MAX
from dlsched.cluster.certificates import Certificates
from dlsched.cluster.https import Destination, HttpsClient, NotAnswered, refusal

TIMEOUT_S = 2.0
CONCURRENT = 50
"""Nodes that are asked at the same time."""
_TARGET = f"/v1/cluster/jobs/doctor/checkpoint?epoch={WHOLE_MAX}"
"""All nodes may ask for a checkpoint; no job has that epoch."""
_EXPECTED = (HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN)
"""FORBIDDEN: for the agent, this node is not yet a member."""
_BODY_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Probe:
    """What came of asking one node."""

    node: str
    problem: str = ""
    """Why there is no answer, in one line; empty: both sides' certificates were accepted."""
    version: str = ""
    """Of its dlsched; empty: it did not say."""
    instance: str = ""


def probe(certificates: Certificates, nodes: Iterable[Destination]) -> Sequence[Probe]:
    """Ask all of them, in their order. Never raises for a node."""
    return asyncio.run(_probe(HttpsClient(certificates), list(nodes)))


async def _probe(client: HttpsClient, nodes: Sequence[Destination]) -> Sequence[Probe]:
    free = asyncio.Semaphore(CONCURRENT)

    async def one(to: Destination) -> Probe:
        async with free:
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    return await _asked(client, to)
            except TimeoutError:
                return Probe(to.node, f"no answer within {TIMEOUT_S:g} s")
            except NotAnswered as error:
                return Probe(to.node, str(error))

    return await asyncio.gather(*map(one, nodes))


async def _asked(client: HttpsClient, to: Destination) -> Probe:
    """Raises NotAnswered."""
    async with client.ask(to, "GET", _TARGET) as answer:
        body = await answer.body(_BODY_BYTES)
        problem = "" if answer.status in _EXPECTED else refusal(answer.status, body)
        return Probe(to.node, problem, answer.version, answer.instance)
