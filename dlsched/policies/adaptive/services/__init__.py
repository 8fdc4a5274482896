"""Services with a latency target, for the policy `adaptive`."""
