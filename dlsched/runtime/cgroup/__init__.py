"""The kernel's control groups: what is counted there, and what limits them."""
