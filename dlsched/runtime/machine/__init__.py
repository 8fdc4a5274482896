"""What happens to containers, as values: see `container`."""
