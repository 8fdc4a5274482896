"""The real cluster behind the controller: the swarm of this host's engine, and agents over
HTTPS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dlsched.cluster.certificates import Certificates
from dlsched.cluster.https_agents import HttpsAgents
from dlsched.cluster.store import ClusterStore, StoreError
from dlsched.cluster.swarm.calls import SwarmCalls
from dlsched.cluster.swarm.identity import swarm_certificates
from dlsched.cluster.swarm.store import SwarmStore
from dlsched.config.settings import Settings
from dlsched.daemon.cluster import ClusterParts, LoopClock
from dlsched.daemon.wiring import engine_options
from dlsched.model.errors import DlschedError, EngineUnavailable
from dlsched.runtime.docker.engine import Engine


def engine_of(settings: Settings) -> Engine:
    options = engine_options(settings)
    return Engine(options.host, options.timeout_s)


def store_of(settings: Settings, engine: Engine) -> SwarmStore:
    """The store of the swarm that this engine manages."""
    return SwarmStore(SwarmCalls(engine), settings.instance)


@contextmanager
def opened_store(settings: Settings) -> Iterator[ClusterStore]:
    """The store, for one command."""
    engine = engine_of(settings)
    try:
        yield store_of(settings, engine)
    finally:
        engine.close()


def in_one_line(error: StoreError) -> DlschedError:
    """The same as an error of a command."""
    if isinstance(error.__cause__, EngineUnavailable):
        return error.__cause__
    return DlschedError(str(error))


def connect(settings: Settings, clock: LoopClock) -> ClusterParts:
    """Everything that the controller needs. Raises DlschedError, also where this host
    is no manager."""
    engine = engine_of(settings)
    store = store_of(settings, engine)
    try:
        name = store.own_id()
    except StoreError as error:
        engine.close()
        raise in_one_line(error) from error
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
