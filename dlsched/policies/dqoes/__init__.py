"""The policy `dqoes`."""
