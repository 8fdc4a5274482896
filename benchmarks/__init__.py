"""What prints the tables that the README quotes, on real containers of this host."""
