"""Tests of the agent's part in a cluster."""
