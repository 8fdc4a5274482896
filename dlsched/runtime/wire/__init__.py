"""Response times of any container, measured at its TCP sockets."""
