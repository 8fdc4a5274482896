"""The real cluster behind the controller: the swarm of this host's engine, and agents over
HTTPS."""

from __future__ import annotations

from pathlib import Path

from dlsched.cluster.certificates import Certificates
from dlsched.cluster.https_agents import HttpsAgents
from dlsched.cluster.store import StoreError
from dlsched.cluster.swarm.calls import SwarmCalls
from dlsched.cluster.swarm.identity import swarm_certificates
from dlsched.cluster.swarm.store import SwarmStore
from dlsched.config.settings import Settings
from dlsched.daemon.cluster import ClusterParts, LoopClock
from dlsched.daemon.wiring import engine_options
from dlsched.model.errors import CannotStart
from dlsched.runtime.docker.engine import Engine


def engine_of(settings: Settings) -> Engine:
    options = engine_options(settings)
    return Engine(options.host, options.timeout_s)


def store_of(settings: Settings, engine: Engine) -> SwarmStore:
    """The store of the swarm that this engine manages."""
    return SwarmStore(SwarmCalls(engine), settings.instance)


def connect(settings: Settings, clock: LoopClock) -> ClusterParts:
    """Everything that the controller needs. Raises CannotStart, or EngineUnavailable."""
    engine = engine_of(settings)
    store = store_of(settings, engine)
    try:
        name = store.own_id()
    except StoreError as error:
        engine.close()
        raise CannotStart((f"{error}: docker swarm init, or run it on a manager",)) from error
    agents = HttpsAgents(certificates_of(settings, engine), settings.cluster.listen[1], clock.now_s)
    agents.start()

    def close() -> None:
        agents.stop()
        engine.close()

    return ClusterParts(name, store, agents, agents.members, agents.problems, store.problems, close)


def certificates_of(settings: Settings, engine: Engine) -> Certificates:
    """Those of the settings, else those of the node in its swarm. Raises EngineUnavailable."""
    tls = settings.cluster.tls
    if tls is not None:
        return Certificates(tls.ca, tls.cert, tls.key)
    return swarm_certificates(Path(str(engine.info()["DockerRootDir"])))
