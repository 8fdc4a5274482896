"""A simulated cluster: nodes with their own controllers, agents that can fail, one store."""
