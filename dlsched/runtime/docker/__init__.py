"""The Docker Engine as a runtime: the only package that imports `docker`."""
