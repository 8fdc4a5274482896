"""CPU limits of containers: read, changed, given back."""
