"""What the host is like, for `dlsched doctor`."""
