"""The policy `tradl`."""
