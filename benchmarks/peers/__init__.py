"""Policies of others, to measure `adaptive` by; each is named `benchmarks.peers.MODULE:CLASS`.

They are reconstructed from what is known of them, on CPU ceilings alone: none is a replica.
"""
