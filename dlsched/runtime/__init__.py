"""Adapters between the core and the world: the engine, the kernel's cgroups, the sidecar files."""
