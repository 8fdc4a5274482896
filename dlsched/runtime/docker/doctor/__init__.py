"""Checks of the engine, for `dlsched doctor`."""
