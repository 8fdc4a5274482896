"""What the engine is like, for `dlsched doctor`."""
