"""Simulated nodes: policies on generated traces, and how far the simulator can be believed."""
