"""The end of containers, and giving everything back without an agent."""
