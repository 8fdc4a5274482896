"""The Docker Engine as a runtime: the only package that imports `docker`."""

from dlsched.runtime.docker.runtime import DockerOptions, DockerRuntime

__all__ = ["DockerOptions", "DockerRuntime"]
