"""Which job gets which GPUs, when, and which moves make room."""
