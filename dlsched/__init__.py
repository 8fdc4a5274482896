"""dlsched: target-driven CPU scheduling for deep-learning containers on one Docker host."""

__version__ = "0.2.0"
