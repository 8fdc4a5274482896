"""A swarm without an engine: configs and nodes with the answers of Docker Engine 20.10."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from threading import Lock
from typing import Any

from dlsched.model.errors import EngineUnavailable
from dlsched.runtime.docker.engine import Body, EngineRefused

CONFIG_NAME = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9_.-]*[a-zA-Z0-9])?")


class PlayedSwarm:
    """One swarm; `exchange` is an engine's. Everything can be changed by hand."""

    def __init__(self) -> None:
        self.configs: dict[str, Body] = {}
        self.nodes: dict[str, Body] = {}
        self.info: Body = {"LocalNodeState": "active", "ControlAvailable": True, "NodeID": "node1"}
        self.facts: Body = {}
        """What else the engine says of itself."""
        self.calls: list[str] = []
        self.is_cut_off = False
        self.fail_at: dict[str, Exception] = {}
        """Raised in the place of an answer, by method and the path's beginning."""
        self._index = 10
        self._lock = Lock()

    def add_node(self, name: str, **more: Any) -> None:
        self.nodes[name] = {
            "ID": name,
            "Version": {"Index": self._next()},
            "Spec": {"Role": "manager", "Availability": "active", "Labels": {}},
            "Description": {"Hostname": f"host-of-{name}"},
            "Status": {"State": "ready", "Addr": "10.0.0.1"},
            **more,
        }

    def labels(self, name: str) -> dict[str, str]:
        """Of the config of that name, to be changed as a person would."""
        labels: dict[str, str] = self._named(name)["Spec"]["Labels"]
        return labels

    def edited(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Change labels as a person would; None: without it."""
        found = self._named(name)
        for key, value in changes.items():
            if value is None:
                del found["Spec"]["Labels"][key]
            else:
                found["Spec"]["Labels"][key] = value
        found["Version"]["Index"] = self._next()

    def exchange(
        self,
        method: str,
        path: str,
        asked: Mapping[str, str] | None = None,
        body: Body | None = None,
    ) -> Any:
        with self._lock:
            self.calls.append(f"{method} {path}")
            if self.is_cut_off:
                raise EngineUnavailable("no answer from the Docker Engine at played: timed out")
            for begin, error in self.fail_at.items():
                if f"{method} {path}".startswith(begin):
                    raise error
            return copy.deepcopy(self._answer(method, path.split("/")[1:], asked or {}, body))

    def _answer(
        self, method: str, words: list[str], asked: Mapping[str, str], body: Body | None
    ) -> Any:
        match method, words, body:
            case "GET", ["info"], None:
                return {"Swarm": self.info, **self.facts}
            case "GET", ["nodes"], None:
                return list(self.nodes.values())
            case "GET", ["configs"], None:
                (prefix,) = json.loads(asked["filters"])["name"]
                every = self.configs.values()
                return [one for one in every if one["Spec"]["Name"].startswith(prefix)]
            case "GET", ["configs", name], None:
                return self._named(name)
            case "POST", ["configs", "create"], dict():
                return self._create(body)
            case "POST", [kind, name, "update"], dict():
                objects = self.configs if kind == "configs" else self.nodes
                return self._update(objects, name, int(asked["version"]), body)
            case "DELETE", ["configs", name], None:
                if name not in self.configs:
                    raise EngineRefused(404, f"config {name} not found")
                del self.configs[name]
                return None
        raise AssertionError(f"{method} {words}: no such call")

    def _create(self, body: Body) -> Body:
        name = body["Name"]
        if len(name) > 64 or not CONFIG_NAME.fullmatch(name):
            raise EngineRefused(400, "rpc error: code = InvalidArgument desc = invalid name")
        if any(one["Spec"]["Name"] == name for one in self.configs.values()):
            text = f"rpc error: code = AlreadyExists desc = config {name} already exists"
            raise EngineRefused(409, text)
        index = self._next()
        self.configs[f"id{index}"] = {
            "ID": f"id{index}",
            "Version": {"Index": index},
            "Spec": copy.deepcopy(body),
        }
        return {"ID": f"id{index}"}

    def _update(self, objects: dict[str, Body], name: str, version: int, body: Body) -> None:
        if name not in objects:
            raise EngineRefused(404, f"{name} not found")
        if objects[name]["Version"]["Index"] != version:
            raise EngineRefused(500, "rpc error: code = Unknown desc = update out of sequence")
        objects[name]["Spec"] = copy.deepcopy(body)
        objects[name]["Version"]["Index"] = self._next()

    def _named(self, name: str) -> Body:
        for one in self.configs.values():
            if name in (one["Spec"]["Name"], one["ID"]):
                return one
        raise EngineRefused(404, f"config {name} not found")

    def _next(self) -> int:
        self._index += 1
        return self._index
