"""Tests of dlsched.simulation.review."""
