"""Which containers are ours, and what their labels mean."""
