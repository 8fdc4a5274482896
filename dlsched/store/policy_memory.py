"""A policy's memory as plain JSON, within its bound, and back."""

from __future__ import annotations

import json
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from dlsched.model.decision import PolicyMemory
from dlsched.model.errors import PolicyError
from dlsched.policies.gpu_node import PerDevice, PerDeviceMemory, memory_kind
from dlsched.policies.protocol import Policy
from dlsched.store.journal.coding import json_text, plain_value

MEMORY_BYTES_PER_JOB = 4096

Kind = TypeVar("Kind")


def memory_text(memory: object) -> str:
    """A policy's memory as JSON. Raises TypeError for a value that is not plain."""
    return json_text(plain_value(memory))


def memory_size_check(memory: object, jobs: int) -> None:
    """Raise PolicyError for a memory that is not plain, or larger than 4 KiB for each of `jobs`."""
    try:
        size_bytes = len(memory_text(memory))
    except (TypeError, ValueError, RecursionError) as error:
        raise PolicyError(f"the policy's memory cannot be kept: {error}") from error
    bound_bytes = MEMORY_BYTES_PER_JOB * max(1, jobs)
    if size_bytes > bound_bytes:
        raise PolicyError(
            f"the policy's memory has {size_bytes} bytes; with {jobs} jobs at most {bound_bytes}"
            f" ({MEMORY_BYTES_PER_JOB} a job)"
        )


def load_memory(plain: object, kind: type[Kind] | None) -> tuple[Kind | None, str | None]:
    """The memory as that type, or None and the reason why it no longer loads."""
    if plain is None:
        return None, None
    if kind is None:
        return None, "the policy remembers nothing"
    try:
        memory = TypeAdapter(kind).validate_python(plain)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return None, f"{where}: {first['msg']}" if where else first["msg"]
    if not _holds(json.loads(memory_text(memory)), plain):
        return None, f"the memory holds keys that {kind.__name__} does not know"
    return memory, None


def _holds(whole: object, part: object) -> bool:
    """Whether all of `part` is in `whole`, which may have more fields: they are new."""
    if isinstance(whole, dict) and isinstance(part, dict):
        return all(key in whole and _holds(whole[key], one) for key, one in part.items())
    if isinstance(whole, list) and isinstance(part, list):
        return len(whole) == len(part) and all(map(_holds, whole, part))
    return whole == part


def recalled(policy: Policy, plain: object) -> tuple[PolicyMemory | None, str | None]:
    """That policy's memory; None and the reason where it no longer loads."""
    memory, why = load_memory(plain, memory_kind(policy, plain))
    if isinstance(memory, PerDeviceMemory) and not isinstance(policy, PerDevice):
        return memory.cores.memory, why  # it no longer divides GPUs
    return memory, why
