"""What a container's threads do with their CPU time, from the kernel's counts and from samples."""
