"""Options for policies, engine, ledger and guards from the settings, and users' restrictions. Used
at start and at reload."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dlsched.config.inbox.files import is_operator
from dlsched.config.settings import Settings, kept_out
from dlsched.config.users import Rules, allowed_roots, owner_of, resolve
from dlsched.control.decider import NamedPolicy
from dlsched.control.gpus.placement import PlacementOptions
from dlsched.control.guards import GuardOptions
from dlsched.control.ledger.cpu import divide_cpu
from dlsched.control.ledger.ledger_options import LedgerOptions
from dlsched.model.spec import JobSpec
from dlsched.policies.registry import load, unused_options
from dlsched.runtime.cgroup.enclosing import Surroundings
from dlsched.runtime.confinement import Confinement
from dlsched.runtime.docker.gpus.injection import GpuOptions
from dlsched.runtime.docker.instance import DockerOptions
from dlsched.runtime.host import available_cpu, physical_cores

_AT_START = (
    "instance",
    "state_dir",
    "run_dir",
    "watch",
    "engine",
    "journal",
    "group_weight",
    "status_group",
    "control_group",
    "listen",
    "cluster",
)
_GPUS_AT_START = ("injection", "device_folder")
"""Settings that a reload cannot change. Other settings of GPUs it can."""


def reloaded(old: Settings, new: Settings) -> tuple[Settings, tuple[str, ...]]:
    """The new settings, where changes that need a restart are undone, and the names of those."""
    kept = _changed(old, new, _AT_START)
    kept_gpus = _changed(old.gpus, new.gpus, _GPUS_AT_START)
    settings = replace(new, **kept, gpus=replace(new.gpus, **kept_gpus))
    return settings, (*kept, *(f"gpus.{name}" for name in kept_gpus))


def _changed(old: object, new: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(old, name) for name in names if getattr(old, name) != getattr(new, name)}


def policies_of(settings: Settings) -> tuple[NamedPolicy, NamedPolicy | None]:
    """The acting policy, and the shadow if there is one. Raises PolicyError."""
    acting = NamedPolicy(settings.policy, load(settings.policy, settings.policy_options))
    if settings.shadow is None:
        return acting, None
    return acting, NamedPolicy(settings.shadow, load(settings.shadow, settings.shadow_options))


def policies_text(settings: Settings) -> str:
    text = f"policy {settings.policy}{_unused(settings.policy, settings.policy_options)}"
    if settings.shadow is None:
        return text
    return f"{text}, shadow {settings.shadow}{_unused(settings.shadow, settings.shadow_options)}"


def _unused(policy: str, options: Mapping[str, object]) -> str:
    unused = ", ".join(unused_options(policy, options))
    return f" (policy_options {unused} are another policy's: not used)" if unused else ""


def engine_options(settings: Settings) -> DockerOptions:
    return DockerOptions(
        instance=settings.instance,
        state_dir=settings.state_dir,
        host=settings.engine.host or os.environ.get("DOCKER_HOST") or DockerOptions().host,
        timeout_s=settings.engine.timeout_s,
        config_file=settings.engine.config_file,
        group_weight=settings.group_weight,
        cgroup_under=settings.engine.cgroup_parent or "",
        gpus=gpu_options(settings),
        wire=settings.wire,
    )


def gpu_options(settings: Settings) -> GpuOptions:
    return GpuOptions(settings.gpus.injection, settings.gpus.device_folder)


def ledger_options(settings: Settings) -> LedgerOptions:
    capacity = settings.capacity
    if capacity == "cores":
        capacity = float(physical_cores())
    kept = settings.reserve.cpu_cores
    if kept == "auto" and isinstance(settings.capacity, float):
        kept = 0.0  # the operator has said how many cores jobs get
    return LedgerOptions(
        capacity_cores=capacity if isinstance(capacity, float) else None,
        reserve_cores=kept if isinstance(kept, float) else None,
        reserve_memory_bytes=settings.reserve.memory_bytes,
        max_jobs=settings.max_jobs,
        window_s=settings.window_s,
        tier_evaluations=settings.tier_evaluations,
        blind_after_s=settings.blind_after_s,
        max_failed_ratio=settings.max_failed_ratio,
        idle_class=settings.idle_class,
        gpu_idle_after_s=settings.gpus.idle_after_s,
        gpus=placement_options(settings),
        ceilings_of=resolve(settings.tenants).ceilings_of,
    )


def cpu_text(settings: Settings) -> str:
    """How this host's CPU is divided while no container runs, in one line."""
    options = ledger_options(settings)
    cpu = available_cpu(Surroundings().read(settings.engine.cgroup_parent or "", ()))
    kept = options.reserve_cores
    return str(divide_cpu(cpu.cores, options.capacity_cores, kept, cpu.jobs_cores))


def confinement(spec: JobSpec, settings: Settings) -> Confinement | None:
    """Restrictions of a user's container; None: it is the operator's."""
    if spec.owner is None or is_operator(spec.owner):
        return None
    rules = resolve(settings.tenants).rules_of(spec.owner) or Rules()
    roots = allowed_roots(rules, owner_of(spec.owner))
    return Confinement(rules.pids, roots, kept_out(settings), rules.cpu_cores)


def placement_options(settings: Settings) -> PlacementOptions:
    return PlacementOptions(
        prefer=settings.gpus.prefer,
        reserved=frozenset(settings.gpus.reserved),
        foreign=settings.gpus.foreign,
        on_loss=settings.gpus.on_loss,
        move=settings.gpus.move,
    )


def guard_options(settings: Settings) -> GuardOptions:
    return GuardOptions(
        settings.dead_band_ratio,
        settings.cooldown_s,
        settings.burst_ratio,
        resolve(settings.tenants).ceilings_of,
        placement_options(settings),
    )
