"""The host's checks, for `dlsched doctor`."""
