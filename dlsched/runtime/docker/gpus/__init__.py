"""GPUs of containers: how they are injected, kept, and bounded."""
