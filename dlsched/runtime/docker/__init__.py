"""The Docker Engine as a runtime: the only package that imports `docker`."""

from dlsched.runtime.docker.options import DockerOptions
from dlsched.runtime.docker.runtime import DockerRuntime

__all__ = ["DockerOptions", "DockerRuntime"]
