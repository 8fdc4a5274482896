"""The agent's part in a cluster: it follows orders on its own node and reports."""
