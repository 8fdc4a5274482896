"""GPUs of containers: how they get there, stay there, and are bounded."""
