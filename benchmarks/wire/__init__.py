"""What the wire measures beside clients that know the truth, what it costs, what it survives."""
