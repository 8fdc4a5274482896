"""`python -m dlsched` is the command `dlsched`."""

from dlsched.cli import main

main()
