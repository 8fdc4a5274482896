"""The real cluster behind the controller: the swarm of this host's engine, and agents over
HTTPS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dlsched.cluster.https_agents import HttpsAgents
from dlsched.cluster.store import ClusterStore, StoreError
from dlsched.cluster.swarm.store import SwarmStore
from dlsched.config.settings import Settings
from dlsched.control.ports import Clock
from dlsched.daemon.cluster import ClusterParts
from dlsched.daemon.cluster_agent import certificates_of
from dlsched.daemon.wiring import engine_options
from dlsched.model.errors import DlschedError, EngineUnavailable
from dlsched.runtime.docker.engine import Engine


def engine_of(settings: Settings) -> Engine:
    options = engine_options(settings)
    return Engine(options.host, options.timeout_s)


@contextmanager
def opened_store(settings: Settings) -> Iterator[SwarmStore]:
    """The store, for one command."""
    engine = engine_of(settings)
    try:
        yield SwarmStore(engine, settings.instance)
    finally:
        engine.close()


@contextmanager
def opened_manager(settings: Settings) -> Iterator[tuple[str, ClusterStore]]:
    """The name of this host's manager, and the store, for one command. Raises DlschedError where
    this host is no manager."""
    with opened_store(settings) as store:
        try:
            name = store.own_id()
        except StoreError as error:
            raise in_one_line(error) from error
        yield name, store


def in_one_line(error: StoreError) -> DlschedError:
    """The same as an error of a command."""
    if isinstance(error.__cause__, EngineUnavailable):
        return error.__cause__
    return DlschedError(str(error))


def connect(settings: Settings, clock: Clock) -> ClusterParts:
    """Everything that the controller needs. Raises DlschedError, also where this host
    is no manager."""
    engine = engine_of(settings)
    store = SwarmStore(engine, settings.instance)
    try:
        name = store.own_id()
    except StoreError as error:
        engine.close()
        raise in_one_line(error) from error
    agents = HttpsAgents(
        certificates_of(settings, engine.host), settings.cluster.listen[1], clock.now_s
    )
    agents.start()

    def close() -> None:
        agents.stop()
        engine.close()

    return ClusterParts(name, store, agents, agents.members, agents.problems, store.problems, close)
