"""Set-up tooling behind the Makefile: environment, private engine, images. Nothing here is part of
the dlsched package or installed with it."""
