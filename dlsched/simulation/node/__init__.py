"""A simulated node: the Runtime port over a world of services and trainings. Time comes with every
call, and is not rounded to cycles."""

from dlsched.simulation.node.runtime import SimulatedRuntime

__all__ = ["SimulatedRuntime"]
