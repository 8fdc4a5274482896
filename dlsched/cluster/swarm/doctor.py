"""Checks whether this host can work as a node or a manager of a cluster, and asks the other ones.
Changes nothing."""

from __future__ import annotations

import asyncio
import math
import os
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus

from dlsched import __version__
from dlsched.api.cluster import OLD_S, age_s
from dlsched.api.cluster_schema import ClusterStatus
from dlsched.cluster.certificates import CertificateError, Certificates, Peer
from dlsched.cluster.https import Destination, HttpsClient, NotAnswered, refusal
from dlsched.cluster.status_file import UnreadableStatus, read_status
from dlsched.cluster.store import Member, StoreError
from dlsched.cluster.swarm.membership import Membership, managers_text, membership
from dlsched.cluster.swarm.store import SwarmStore
from dlsched.cluster.wire import WHOLE_MAX
from dlsched.config.settings import Settings
from dlsched.model.errors import DaemonUnavailable, DlschedError
from dlsched.model.units import counted, plain_text, render_address, render_seconds
from dlsched.runtime.docker.doctor.engine import remedy
from dlsched.runtime.docker.engine import Engine
from dlsched.runtime.doctor.finding import Finding, State

EXPIRES_SOON_S = 86_400.0
"""Of an operator's certificate: Swarm renews its own ones."""
_MANAGERS_MAX = 5
"""Named in one line."""
_AS_ROOT = "run `dlsched cluster doctor` as root"
_JOIN = "run `docker swarm init` on the first manager, `docker swarm join` on the other hosts"
_CONTROLLER = "systemctl enable --now dlsched-cluster; journalctl -u dlsched-cluster"


@dataclass(frozen=True, slots=True)
class ClusterDoctor:
    """Everything that is to be examined."""

    settings: Settings
    engine: Engine
    host: str
    """The engine's address."""
    certificates: Callable[[], Certificates]
    """Raises DlschedError."""

    def findings(self) -> Iterator[Finding]:
        """Check by check; blocks on the engine, and for two seconds on the nodes."""
        try:
            info = self.engine.exchange("GET", "/info")
            member = membership(info)
        except DlschedError as error:
            yield Finding("engine", "fail", str(error), remedy(self.host))
            return
        except (AttributeError, KeyError, TypeError, ValueError):
            yield Finding("engine", "fail", f"{self.host}: the engine reports no swarm", _JOIN)
            return
        yield _swarm(member)
        if member.state != "active":
            if info.get("LiveRestoreEnabled"):
                line = "live-restore is set: Docker lets no such host into a swarm"
                remove = "remove live-restore from daemon.json, and restart Docker"
                yield Finding("restart", "fail", line, remove)
            return
        yield Finding(
            "restart",
            "warn",
            "no live-restore in a swarm: a restart of the engine ends this host's containers",
            f"before a restart run `dlsched cluster drain {member.node}`",
        )
        yield self._agent()
        certificates, own = None, None
        try:
            certificates = self.certificates()
            own, until_s = certificates.own(), certificates.valid_until()
            renewed = self.settings.cluster.tls is None
            yield _certificate(own, member, math.inf if renewed else until_s)
        except DlschedError as error:
            yield Finding("tls", "fail", str(error), _tls_remedy(error))
        store = SwarmStore(self.engine, self.settings.instance)
        members: Mapping[str, Member] = {}
        if member.is_manager:
            try:
                members = store.nodes()
                yield _managers(store, members)
            except StoreError as error:
                yield Finding(
                    "managers", "fail", str(error), "start managers until more than half are up"
                )
        if own is None or certificates is None:
            yield Finding(
                "nodes", "warn", "nodes were not asked: this host has no certificate to ask with"
            )
        else:
            yield from self._nodes(certificates, member, members)
        if member.is_manager:
            yield self._controller()

    def _agent(self) -> Finding:
        if self.settings.cluster.enabled:
            return Finding("agent", "ok", "cluster.enabled is true: this host takes jobs")
        line = "cluster.enabled is false: this host takes no jobs of the cluster"
        return Finding(
            "agent", "warn", line, "set cluster.enabled to true if this host is to take jobs"
        )

    # ------------------------------------------------------------------ the other nodes

    def _nodes(
        self, certificates: Certificates, own: Membership, members: Mapping[str, Member]
    ) -> Iterator[Finding]:
        """Managers ask all nodes; others themselves and the managers."""
        if not members:
            addresses = {**own.managers, own.node: own.address}
            members = {name: Member(name, address=at) for name, at in addresses.items()}
        asked = []
        for name, one in members.items():
            label = one.host or name
            if not one.up:
                line = f"{label}: down, as Swarm reports; no other node gets its jobs"
                yield Finding(
                    "node", "warn", line, f"start {label}, or run `dlsched cluster forget {label}`"
                )
            elif not one.address:
                line = f"{label}: Swarm knows no address of this node"
                yield Finding("node", "fail", line, f"see `docker node inspect {name}`")
            else:
                asked.append(Destination(name, one.address, self.settings.cluster.listen[1]))
        for to, found in zip(asked, probe(certificates, asked), strict=True):
            yield self._node(to, found, members[to.node].host or to.node)

    def _node(self, to: Destination, found: Probe, label: str) -> Finding:
        where = f"{label}: {render_address(to.address, to.port)}"
        if found.problem:
            state: State = "warn" if isinstance(found.cause, ConnectionRefusedError) else "fail"
            return Finding("node", state, f"{label}: {found.problem}", _node_remedy(found, to.port))
        if found.instance and found.instance != self.settings.instance:
            line = f"{where} answers for instance {found.instance}, not {self.settings.instance}"
            return Finding("node", "fail", line, "set `instance` to the same value on all hosts")
        if found.version and found.version != __version__:
            line = f"{where} answers with dlsched {found.version}, this host has {__version__}"
            return Finding("node", "warn", line, "install the same version on all hosts")
        said = f" with dlsched {found.version}" if found.version else ""
        return Finding("node", "ok", f"{where} answers{said}")

    def _controller(self) -> Finding:
        try:
            return _status(read_status(self.settings.run_dir))
        except (DaemonUnavailable, UnreadableStatus) as error:
            return Finding("status", "warn", str(error), _CONTROLLER)
        except OSError as error:
            return Finding("status", "warn", f"{error.filename}: {error.strerror}", _AS_ROOT)


def _swarm(member: Membership) -> Finding:
    error = f": {plain_text(member.error[:200])}" if member.error else ""
    if member.state == "locked":
        return Finding("swarm", "fail", f"locked (autolock){error}", "docker swarm unlock")
    if member.state != "active":
        line = f"this engine is in no swarm: {plain_text(member.state[:20])}{error}"
        return Finding("swarm", "fail", line, _JOIN)
    if member.is_manager:
        return Finding("swarm", "ok", f"active; this host is a manager, node {member.node}")
    known = managers_text(member) or "none known"
    return Finding("swarm", "ok", f"active; this host is a worker, its managers: {known}")


def _certificate(own: Peer, member: Membership, until_s: float) -> Finding:
    """`until_s`: when it expires, unless Swarm renews it."""
    if own.name != member.node:
        line = f"the certificate is for node {own.name}, but this node is {member.node}"
        name_it = "give a certificate in cluster.tls whose CN is the node's id"
        return Finding("tls", "fail", line, name_it)
    if member.is_manager and not own.is_manager:
        line = f"the certificate of {own.name} is not a manager's: its OU is not swarm-manager"
        make_it = "give managers a certificate in cluster.tls whose OU is swarm-manager"
        return Finding("tls", "fail", line, make_it)
    if until_s - time.time() < EXPIRES_SOON_S:
        day = datetime.fromtimestamp(until_s, UTC).isoformat(timespec="minutes")
        line = f"the certificate of {own.name} is valid until {day} only"
        return Finding("tls", "warn", line, "replace the files of cluster.tls")
    return Finding("tls", "ok", f"the certificate is valid and is for this node, {own.name}")


def _tls_remedy(error: DlschedError) -> str:
    if not isinstance(error, CertificateError):
        return "see `dlsched doctor`"
    if "autolock" in str(error):
        return (
            "set cluster.tls to certificates of your own, or run `docker swarm update "
            "--autolock=false`"
        )
    if os.geteuid() != 0:
        return _AS_ROOT
    if "expired" in str(error):
        return (
            "run `docker swarm ca --rotate` on a manager, or put a new certificate in cluster.tls"
        )
    return "run `docker swarm join` again, or correct cluster.tls"


def _managers(store: SwarmStore, members: Mapping[str, Member]) -> Finding:
    """How many can be lost: a majority must be left."""
    managers = store.managers()
    count, spare = len(managers), (len(managers) - 1) // 2
    lost = sorted(members[name].host or name for name, reached in managers.items() if not reached)
    line = f"{counted(count, 'manager')}: "
    if lost:
        line += f"{', '.join(lost[:_MANAGERS_MAX])} not reached"
        return Finding(
            "managers", "warn", line, "start that manager, or remove it by `docker node demote`"
        )
    if not spare:
        line += "when one is lost, nothing is placed or moved; jobs run on"
        return Finding(
            "managers",
            "warn",
            line,
            "make a third manager by `docker node promote`: with three the cluster outlives the "
            "loss of one",
        )
    return Finding("managers", "ok", f"{line}the cluster can lose {spare} of them")


def _node_remedy(found: Probe, port: int) -> str:
    if isinstance(found.cause, ConnectionRefusedError):
        return "if that node is to take jobs: set cluster.enabled: true there, and start dlsched"
    if isinstance(found.cause, ssl.SSLError | CertificateError):
        return "run `dlsched cluster doctor` on that host"
    return f"open port {port} between the nodes, then run `dlsched cluster doctor` on that host"


def _status(status: ClusterStatus) -> Finding:
    old_s = age_s(status.written_at, time.time())
    if old_s is None:
        return Finding(
            "status",
            "warn",
            "the controller on this host has not completed its first round yet",
            _CONTROLLER,
        )
    if old_s > OLD_S:
        line = f"the status is {render_seconds(old_s)} old: the controller has ended, or hangs"
        return Finding("status", "fail", line, _CONTROLLER)
    if status.alarms:
        more = len(status.alarms) - 1
        rest = f" (and {more} more)" if more else ""
        line = f"{plain_text(status.alarms[0][:200])}{rest}"
        return Finding("status", "warn", line, "see `dlsched cluster status`")
    leads = "leads" if status.leader == status.manager else "follows the leading one"
    return Finding(
        "status", "ok", f"the controller {leads}; its status is {render_seconds(old_s)} old"
    )


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
    cause: BaseException | None = None
    """What broke the connection; None: nothing did, or it took too long."""


def probe(certificates: Certificates, nodes: Iterable[Destination]) -> Sequence[Probe]:
    """Ask all of them, in their order. Never raises for a node."""
    return asyncio.run(_probe(HttpsClient(certificates), list(nodes)))


async def _probe(client: HttpsClient, nodes: Sequence[Destination]) -> Sequence[Probe]:
    free = asyncio.Semaphore(CONCURRENT)

    async def one(to: Destination) -> Probe:
        try:
            async with free, asyncio.timeout(TIMEOUT_S), client.ask(to, "GET", _TARGET) as answer:
                body = await answer.body(_BODY_BYTES)
        except TimeoutError:
            return Probe(to.node, f"no answer within {TIMEOUT_S:g} s")
        except NotAnswered as error:
            return Probe(to.node, str(error), cause=error.__cause__)
        problem = "" if answer.status in _EXPECTED else refusal(answer.status, body)
        return Probe(to.node, problem, answer.version, answer.instance)

    return await asyncio.gather(*map(one, nodes))
