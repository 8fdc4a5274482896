"""Creates and starts a job's container."""
