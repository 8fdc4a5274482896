"""dlsched: target-driven CPU scheduling for deep-learning containers on one Docker host."""

__version__ = "0.1.0"
