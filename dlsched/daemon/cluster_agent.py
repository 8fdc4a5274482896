"""The daemon's part in a cluster: jobs beside the watch folder's, an HTTPS server, and fetches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dlsched.cluster.agent.agent import ClusterAgent
from dlsched.cluster.agent.assignments import FOLDER
from dlsched.cluster.agent.contact import Contact
from dlsched.cluster.agent.fetching import HttpsCheckpoints
from dlsched.cluster.agent.ports import NodeImages, NodeJobs
from dlsched.cluster.agent.server import AgentServer
from dlsched.cluster.certificates import CertificateError, Certificates
from dlsched.cluster.swarm.membership import swarm_certificates
from dlsched.config.settings import Settings
from dlsched.control.ports import Clock, DesiredSource
from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.runtime.clock import since_boot_s
from dlsched.runtime.docker.engine import Engine


class ClusterPart:
    """What of the daemon belongs to a cluster; a source of desired jobs."""

    def __init__(
        self,
        settings: Settings,
        certificates: Certificates,
        inner: DesiredSource,
        node: NodeJobs,
        images: NodeImages,
        clock: Clock,
        policy: Callable[[], str],
    ) -> None:
        """`inner`: the watch folder; `policy`: the name of the node's present policy. Raises
        OSError. The certificates may be missing: the jobs are kept, and managers get no answer."""
        cluster = settings.cluster
        self._enabled = cluster.enabled
        self._checkpoints = HttpsCheckpoints(
            certificates, self._address, cluster.checkpoint_max_bytes, cluster.listen[1]
        )
        self._agent = ClusterAgent(
            settings.state_dir,
            cluster.checkpoint_max_bytes,
            inner,
            node,
            images,
            self._checkpoints,
            clock,
            policy,
            Contact(settings.state_dir / FOLDER / "contact.json", _boot(), since_boot_s),
        )
        self.scan, self.step = self._agent.scan, self._agent.step
        self._certificates = certificates
        self._server = AgentServer(
            self._agent, certificates, cluster.listen, clock.now_s, settings.instance
        )

    def start(self) -> None:
        """Answer managers, if the setting says so. Raises SocketUnusable."""
        if not self._enabled:
            return
        self._checkpoints.start()
        self._server.start()

    def stop(self) -> None:
        self._server.stop()
        self._checkpoints.stop()

    def alarms(self) -> tuple[Alarm, ...]:
        problem = self._problem()
        return () if problem is None else (Alarm("cluster", AlarmKey.CLUSTER_DOWN, problem),)

    def _problem(self) -> str | None:
        if not self._enabled:
            jobs = ", ".join(self._agent.running())
            return (
                f"cluster.enabled is false, but jobs of the cluster still run here: {jobs}"
                if jobs
                else None
            )
        try:
            self._certificates.own()
        except CertificateError as error:
            return (
                "this node cannot answer the managers, as its certificate cannot be used: "
                f"{error}; join the swarm (`docker swarm join`) or correct cluster.tls: `dlsched "
                "cluster doctor` says which"
            )
        return self._server.problem

    def _address(self, node: str) -> str:
        return self._server.address(node)


def certificates_of(settings: Settings, engine_host: str) -> Certificates:
    """The operator's certificates, or those of the engine's swarm. Raises EngineUnavailable."""
    tls = settings.cluster.tls
    if tls is not None:
        return Certificates(tls.ca, tls.cert, tls.key)
    engine = Engine(engine_host, settings.engine.timeout_s)
    try:
        return swarm_certificates(Path(str(engine.info()["DockerRootDir"])))
    finally:
        engine.close()


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
