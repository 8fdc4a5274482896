"""Jobs on their way to other GPUs."""
