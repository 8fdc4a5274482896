"""A simulated node: the Runtime port over a world of services and trainings, without an engine.

Owns what a workload does with the cores that it gets. It must not decide who gets them, and reads
no clock: time comes with every call, and nothing here rounds it to a cycle.
"""

from dlsched.simulation.node.runtime import SimulatedRuntime

__all__ = ["SimulatedRuntime"]
