"""The nodes' agents over HTTPS. A thread asks them, so that no node delays a round of the
controller, or another node.

The controller's thread and that one share no lock: what one of them writes and the other reads is
replaced as a whole.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from http import HTTPStatus

from dlsched.cluster.certificates import Certificates
from dlsched.cluster.core.records import Order
from dlsched.cluster.core.reports import NodeReport
from dlsched.cluster.core.snapshot import Evaluation
from dlsched.cluster.https import (
    PORT,
    Destination,
    HttpsClient,
    LoopThread,
    NotAnswered,
    refusal,
)
from dlsched.cluster.store import Member
from dlsched.cluster.wire import (
    LINE_CHARACTERS,
    REPORT_BYTES,
    ReportRequest,
    WireError,
    order_bytes,
    read_report,
    request_bytes,
)
from dlsched.model.units import plain_text

log = logging.getLogger(__name__)

ANSWER_S = 2.0
"""Timeout of a whole request, with its connection and its answer."""
RECENT_S = 10.0
"""An older answer is none."""
ASK_AGAIN_S = 3.0
"""A node is asked when a round wants its report, and again after this time, as rounds in which
nothing is under way are further apart than an answer is recent."""
WANTED_S = 30.0
"""Without a round for so long no node is asked, as a request is the sign that a controller is
there."""
PROBLEM_S = 60.0
"""The controller repeats an order that matters, so an older problem is gone."""
_ERROR_BYTES = 64 << 10


class HttpsAgents:
    """The port Agents, for the controller's thread. `members` says where the nodes are; others have
    no answer."""

    def __init__(
        self,
        certificates: Certificates,
        port: int = PORT,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`now_s`: the controller's clock."""
        self._client = HttpsClient(certificates)
        self._port, self._now_s = port, now_s
        self._thread = LoopThread("cluster-agents")
        self.start, self.stop = self._thread.start, self._thread.stop
        self._nodes: dict[str, _Node] = {}

    def members(self, members: Mapping[str, Member]) -> None:
        """Ask these nodes from now on, at these addresses. Each one learns of all of them."""
        addresses = {name: one.address for name, one in sorted(members.items())}
        for name in self._nodes.keys() - addresses.keys():
            self._nodes.pop(name).end()
        for name, address in addresses.items():
            if not address:
                continue
            if name not in self._nodes:
                self._nodes[name] = _Node(name, self._client, self._thread, self._now_s)
            self._nodes[name].found(Destination(name, address, self._port), addresses)

    def report(self, node: str, placed: Mapping[str, int]) -> NodeReport | None:
        """The node's last report, if it is recent; it is asked for the next one now."""
        known = self._nodes.get(node)
        return None if known is None else known.report(placed)

    def send(self, order: Order) -> None:
        """Send it in the background, after those to the same node that still wait."""
        known = self._nodes.get(order.node)
        if known is not None:
            known.send(order)

    def problems(self) -> Mapping[str, str]:
        """What is wrong, in one line by node: it does not answer, or refuses an order."""
        found = {name: one.problem() for name, one in self._nodes.items()}
        return {name: line for name, line in found.items() if line}


class _Node:
    """One node: its last answer, and the orders that wait. One task asks, another one sends."""

    def __init__(
        self, name: str, client: HttpsClient, thread: LoopThread, now_s: Callable[[], float]
    ) -> None:
        self._name, self._client, self._now_s = name, client, now_s
        self._loop = thread.loop
        self._destination: Destination | None = None
        self._request = ReportRequest({}, {})
        self._answered: tuple[NodeReport, float] | None = None
        """Its last report, and when it was asked for it."""
        self._heard_s: float | None = None
        """The node's clock in its last report."""
        self._wanted_s = -math.inf
        self._clock_offset_s: float | None = None
        """Of the controller's clock from the node's."""
        self._no_report = ""
        self._refused: dict[str, tuple[float, str]] = {}
        """Problems of orders, by job."""
        self._orders: dict[tuple[str, str], Order] = {}
        """By job and verb: the controller repeats them, and only the last one counts."""
        self._wants_report, self._has_orders = asyncio.Event(), asyncio.Event()
        self._tasks: list[Future[None]] = [
            thread.begin(self._ask()),
            thread.begin(self._deliver()),
        ]

    # ------------------------------------------------------------------ for the controller

    def end(self) -> None:
        for task in self._tasks:
            task.cancel()

    def found(self, destination: Destination, nodes: Mapping[str, str]) -> None:
        self._destination = destination
        self._request = replace(self._request, nodes=nodes)

    def report(self, placed: Mapping[str, int]) -> NodeReport | None:
        now_s, answered = self._now_s(), self._answered
        self._request = replace(self._request, placed=dict(placed))
        self._wanted_s = now_s
        self._call(self._wants_report.set)
        if answered is None:
            return None
        report, asked_s = answered
        # Counted from the request: the report is not older than that.
        age_s = now_s - asked_s
        return replace(report, age_s=report.age_s + age_s) if age_s <= RECENT_S else None

    def send(self, order: Order) -> None:
        self._call(self._queue, order)

    def problem(self) -> str:
        now_s, refused, no_report = self._now_s(), self._refused, self._no_report
        lines = [no_report] if no_report else []
        lines += [line for at_s, line in refused.values() if now_s - at_s < PROBLEM_S]
        if not lines:
            return ""
        return lines[0] if len(lines) == 1 else f"{lines[0]} (and {len(lines) - 1} more)"

    def _call(self, act: Callable[..., object], *given: object) -> None:
        """Do that in the thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act, *given)

    # ------------------------------------------------------------------ in the thread

    async def _ask(self) -> None:
        while True:
            await _wait(self._wants_report, ASK_AGAIN_S)
            now_s, to = self._now_s(), self._destination
            if to is None or now_s - self._wanted_s > WANTED_S:
                continue
            answered, problem = self._answered, ""
            try:
                answered = await self._asked(to, self._request), now_s
            except WireError as error:
                # Nor is an earlier report believed of an agent that is broken, or lies.
                answered, problem = None, str(error)
            except (NotAnswered, TimeoutError) as error:
                problem = str(error) or f"no answer within {ANSWER_S:g} s"
            except Exception as error:  # the other nodes' reports go on
                log.exception("asking %s for its report failed", self._name)
                answered, problem = None, type(error).__name__
            # In this order: where a problem shows, no report is believed that it refutes.
            self._answered = answered
            self._no_report = f"no report: {problem}" if problem else ""

    async def _asked(self, to: Destination, request: ReportRequest) -> NodeReport:
        """Raises WireError, NotAnswered or TimeoutError."""
        request = replace(request, heard_s=self._heard_s)
        status, body = await self._exchange(to, "report", request_bytes(request), REPORT_BYTES)
        if status != HTTPStatus.OK:
            raise NotAnswered(refusal(status, body))
        try:
            report = read_report(body)
        except WireError as error:
            raise WireError(f"the report is refused: {error}") from None
        if report.name != self._name:
            raise WireError(f"the report is refused: it is from node {report.name}")
        self._heard_s = report.now_s
        return self._on_own_clock(report)

    async def _deliver(self) -> None:
        while True:
            await self._has_orders.wait()
            self._has_orders.clear()
            while self._orders:
                await self._send(self._orders.pop(next(iter(self._orders))))

    def _queue(self, order: Order) -> None:
        self._orders[order.job, order.verb] = order
        self._has_orders.set()

    async def _send(self, order: Order) -> None:
        to = self._destination
        if to is None:
            return
        try:
            status, body = await self._exchange(to, "order", order_bytes(order), _ERROR_BYTES)
            problem = "" if status == HTTPStatus.ACCEPTED else refusal(status, body)
        except WireError as error:
            problem = f"the order {order.verb}: {error}"
        except (NotAnswered, TimeoutError):
            # Its report says why. Those that wait would wait as long again, and the controller
            # repeats them.
            self._orders.clear()
            return
        except Exception as error:  # the next order may go
            log.exception("sending %s an order failed", self._name)
            problem = type(error).__name__
        now_s = self._now_s()
        refused = {
            job: (at_s, line)
            for job, (at_s, line) in self._refused.items()
            if job != order.job and now_s - at_s < PROBLEM_S
        }
        if problem:
            line = f"{order.job}: {plain_text(problem[:LINE_CHARACTERS])}"
            refused[order.job] = (now_s, line)
        self._refused = refused

    async def _exchange(
        self, to: Destination, path: str, body: bytes, most_bytes: int
    ) -> tuple[int, bytes]:
        async with (
            asyncio.timeout(ANSWER_S),
            self._client.ask(to, "POST", f"/v1/cluster/{path}", body) as answer,
        ):
            return answer.status, await answer.body(most_bytes)

    def _on_own_clock(self, report: NodeReport) -> NodeReport:
        """The report with times on the controller's clock. The distance of the clocks is kept, so
        that the same evaluation has the same time in each report; it is known within the time that
        an answer takes, and changes when the node starts again."""
        offset_s = self._now_s() - report.now_s
        if self._clock_offset_s is None or abs(offset_s - self._clock_offset_s) > ANSWER_S:
            self._clock_offset_s = offset_s
        shift_s = self._clock_offset_s
        return replace(
            report,
            jobs=tuple(
                replace(
                    job,
                    evaluations=tuple(
                        Evaluation(one.at_s + shift_s, one.value) for one in job.evaluations
                    ),
                )
                for job in report.jobs
            ),
        )


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        pass
    event.clear()
