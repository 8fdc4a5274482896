"""Containers that others start, on the engine of a daemon under test."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import docker
from docker.errors import APIError

from tools.base_image import BASE


class Strangers:
    """Containers that nobody of dlsched made, on the engine of the daemon under test."""

    def __init__(self, client: docker.APIClient, instance: str) -> None:
        self.client = client
        self.instance = instance
        self._made: list[str] = []

    def run(
        self,
        command: list[str],
        labels: Mapping[str, str],
        image: str = BASE,
        instance: str | None = None,
        **host: Any,
    ) -> str:
        """`docker run -d` with these labels, and the instance's; returns the container's name."""
        name = f"stranger-{secrets.token_hex(4)}"
        own = {"dlsched.instance": instance or self.instance}
        self.named(name, command, {**own, **labels}, image, **host)
        return name

    def named(
        self,
        name: str,
        command: list[str],
        labels: Mapping[str, str] | None = None,
        image: str = BASE,
        **host: Any,
    ) -> str:
        """`docker run -d --name NAME`; returns the container's id."""
        config = self.client.create_host_config(network_mode="none", init=True, **host)
        made = self.client.create_container(
            image, command, name=name, labels=dict(labels or {}), host_config=config
        )
        self._made.append(made["Id"])
        self.client.start(made["Id"])
        return str(made["Id"])

    def limits(self, name: str) -> tuple[int, int, int, int]:
        """What inspection says: nano, quota, period, shares; what means the same is told alike."""
        host = self.client.inspect_container(name)["HostConfig"]
        quota, period, shares = host["CpuQuota"], host["CpuPeriod"], host["CpuShares"]
        return host["NanoCpus"], max(quota, 0), period or 100_000, shares or 1024

    def facts(self, name: str) -> tuple[object, ...]:
        """What no adoption may change: id, start and labels; and limits, which a drop gives
        back."""
        body = self.client.inspect_container(name)
        own = body["Id"], body["State"]["StartedAt"], body["Config"]["Labels"]
        return *own, self.limits(name)

    def remove(self, name: str) -> None:
        self.client.remove_container(name, force=True, v=True)

    def close(self) -> None:
        for container in self._made:
            with suppress(APIError):
                self.remove(container)
