"""The calls to a manager's engine that are about Swarm: nodes, and config objects as records.

A config's data never changes; its labels do, by compare-and-swap on its version. Every error is a
StoreError in one line: StaleRecord where the engine says that something else is there by now.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote

from dlsched.cluster.store import StaleRecord, StoreError
from dlsched.cluster.swarm.labels import PREFIX
from dlsched.cluster.swarm.membership import managers_text, membership, usable_address
from dlsched.model.errors import EngineUnavailable
from dlsched.runtime.docker.engine import Body, Engine, EngineRefused
from dlsched.runtime.machine.outcomes import one_line

DATA = base64.b64encode(b"a record of dlsched: see its labels\n").decode("ascii")
"""Swarm wants some."""
OUT_OF_SEQUENCE = "out of sequence"
HOST_MAX = 253


@dataclass(frozen=True, slots=True)
class Config:
    """One config object."""

    id: str
    version: int
    name: str
    labels: Mapping[str, str]
    spec: Body


@dataclass(frozen=True, slots=True)
class Node:
    """One node of the swarm."""

    id: str
    version: int
    host: str
    address: str
    """Empty: none that can be used."""
    is_ready: bool
    availability: str
    labels: Mapping[str, str]
    leads: bool
    manages: bool
    reachable: bool
    """Of a manager: by the other ones."""
    spec: Body


class SwarmCalls:
    """The calls to one manager. May be used from any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def configs(self, prefix: str) -> list[Config]:
        """All configs whose names begin like that; others are not read."""
        with _answers():
            asked = {"filters": json.dumps({"name": [prefix]})}
            found = self._engine.exchange("GET", "/configs", asked)
            return [one for one in map(_config, found) if one.name.startswith(prefix)]

    def config(self, name: str) -> Config | None:
        with _answers():
            try:
                return _config(self._engine.exchange("GET", f"/configs/{name}"))
            except EngineRefused as error:
                if error.status == 404:
                    return None
                raise

    def create(self, name: str, labels: Mapping[str, str]) -> None:
        """Raises StaleRecord where there is one of that name."""
        with _answers(name):
            body = {"Name": name, "Labels": dict(labels), "Data": DATA}
            self._engine.exchange("POST", "/configs/create", body=body)

    def relabel(self, config: Config, labels: Mapping[str, str]) -> None:
        """Labels that are nothing of dlsched's stay. Raises StaleRecord where it has changed since
        it was read."""
        others = {key: value for key, value in config.labels.items() if not key.startswith(PREFIX)}
        with _answers(config.name):
            path = f"/configs/{config.id}"
            self._update(path, config.version, config.spec, {**others, **labels})

    def remove(self, config: Config) -> None:
        """Remove that one, whatever its version; one that is gone is removed."""
        with _answers():
            try:
                self._engine.exchange("DELETE", f"/configs/{config.id}")
            except EngineRefused as error:
                if error.status != 404:
                    raise

    def nodes(self) -> list[Node]:
        with _answers():
            return [_node(one) for one in self._engine.exchange("GET", "/nodes")]

    def relabel_node(self, node: Node, labels: Mapping[str, str]) -> None:
        """Raises StaleRecord where it has changed since it was read."""
        with _answers(node.id):
            self._update(f"/nodes/{quote(node.id, safe='')}", node.version, node.spec, labels)

    def own_id(self) -> str:
        """The node id of the engine itself. Raises StoreError where it is no manager."""
        with _answers():
            found = membership(self._engine.exchange("GET", "/info"))
            if found.state != "active" or not found.is_manager:
                known = managers_text(found)
                its = f"; its managers: {known}" if known else ""
                raise StoreError(f"this engine is not a manager of a swarm{its}")
            return found.node

    def _update(self, path: str, version: int, spec: Body, labels: Mapping[str, str]) -> None:
        body = {**spec, "Labels": dict(labels)}
        self._engine.exchange("POST", f"{path}/update", {"version": str(version)}, body)


def _config(answer: Body) -> Config:
    spec = dict(answer["Spec"])
    labels = {str(key): str(value) for key, value in (spec.get("Labels") or {}).items()}
    return Config(
        str(answer["ID"]), int(answer["Version"]["Index"]), str(spec["Name"]), labels, spec
    )


def _node(answer: Body) -> Node:
    spec, manager = dict(answer["Spec"]), answer.get("ManagerStatus") or {}
    return Node(
        id=str(answer["ID"]),
        version=int(answer["Version"]["Index"]),
        host=one_line((answer.get("Description") or {}).get("Hostname", ""))[:HOST_MAX],
        address=usable_address(manager.get("Addr", ""))
        or usable_address(answer["Status"].get("Addr", "")),
        is_ready=answer["Status"]["State"] == "ready",
        availability=str(spec.get("Availability", "")),
        labels=dict(spec.get("Labels") or {}),
        leads=manager.get("Leader") is True,
        manages=bool(manager),
        reachable=manager.get("Reachability") == "reachable",
        spec=spec,
    )


@contextmanager
def _answers(about: str = "") -> Iterator[None]:
    """Turn every error of a call into a StoreError; `about`: what the call changes."""
    try:
        yield
    except EngineRefused as error:
        reason = error.reason.rpartition(" desc = ")[2]
        line = f"{about}: {reason}" if about else reason
        if error.status in (404, 409) or OUT_OF_SEQUENCE in reason:
            raise StaleRecord(line) from error
        raise StoreError(line) from error
    except EngineUnavailable as error:
        raise StoreError(str(error)) from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(
            f"the engine's answer is not that of a Swarm: {one_line(error)}"
        ) from error
