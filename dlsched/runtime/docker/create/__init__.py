"""From a job's spec to a running container."""
