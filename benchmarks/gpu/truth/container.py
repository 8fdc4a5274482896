"""What becomes of a container's GPU when its CPU limit is updated, where an engine answers."""

from __future__ import annotations

import io
import os
import secrets
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.gpu.truth.asked import Asked, NotRun, Tell, daemon, output

NODES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm")
REHEARSED = ("/dev/loop-control",)
MODES: Mapping[str, tuple[str, ...]] = {
    "device nodes": (),
    "CDI": ("--device=nvidia.com/gpu=all",),
    "NVIDIA runtime": ("--runtime=nvidia", "--env=NVIDIA_VISIBLE_DEVICES=all"),
    "legacy hook": ("--gpus=all",),
}
"""How a container gets its GPU; the nodes are named where there is no option for it."""
START_S = 15.0
_PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib64")
"""The host's, bound into containers: no image can be pulled."""


def engine() -> tuple[str, str]:
    """The client of an engine that answers, and the engine's version. Raises `NotRun`."""
    docker = shutil.which("docker")
    if docker is None:
        raise NotRun("docker is missing, and no packages of an engine were given (--debs)")
    try:
        return docker, output(docker, "version", "--format={{.Server.Version}}").strip()
    except RuntimeError as error:
        raise NotRun(f"no engine answers: {error}") from None


@contextmanager
def carried(debs: Path) -> Iterator[None]:
    """An engine from a folder with Debian packages, for this process. Raises `NotRun`."""
    packages = sorted(debs.glob("*.deb"))
    if not packages:
        raise NotRun(f"no Debian packages in {debs}")
    with tempfile.TemporaryDirectory(prefix="engine", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        root, socket = folder / "root", f"unix://{folder / 'docker.sock'}"
        for package in packages:
            output("dpkg-deb", "-x", str(package), str(root))
        paths = [f"{root}/{each}" for each in ("usr/sbin", "usr/bin", "sbin", "bin")]
        libraries = [*map(str, root.glob("usr/lib/*-linux-gnu")), os.getenv("LD_LIBRARY_PATH", "")]
        os.environ["PATH"] = os.pathsep.join([*paths, os.environ["PATH"]])
        os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, libraries))
        os.environ["DOCKER_HOST"] = socket
        places = {"data-root": "data", "exec-root": "exec", "pidfile": "pid"}
        command = [
            *("dockerd", f"--host={socket}", "--storage-driver=vfs", "--bridge=none"),
            *("--iptables=false", "--ip6tables=false"),
            *(f"--{option}={folder / place}" for option, place in places.items()),
        ]
        with daemon(command, folder / "docker.sock", START_S, dict(os.environ)):
            yield


def container(asked: Asked, tell: Tell) -> None:
    """For each way to give a GPU: whether the container can open it, before and after an update."""
    with ExitStack() as stack:
        if asked.debs is not None:
            stack.enter_context(carried(asked.debs))
        docker, version = engine()
        tell(engine_version=version)
        nodes = NODES if asked.device == "cuda" else REHEARSED
        nodes = tuple(node for node in nodes if Path(node).exists())
        if not nodes:
            raise NotRun("there is no device node of a GPU")
        image = _image(docker)
        stack.callback(_quietly, docker, "rmi", "--force", image)
        found = {}
        for mode, options in MODES.items():
            chosen = options or tuple(f"--device={node}" for node in nodes)
            found[mode] = tried(docker, image, chosen, nodes)
            tell(modes=found)


def _image(docker: str) -> str:
    """An image with nothing in it but empty folders."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path in (*_PROGRAMS, "/dev", "/proc", "/tmp"):
            folder = tarfile.TarInfo(path.lstrip("/"))
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(folder)
    name = f"dlsched-gpu-truth-{secrets.token_hex(4)}"
    subprocess.run(
        [docker, "import", "-", name],
        input=packed.getvalue(),
        check=True,
        capture_output=True,
        timeout=30,
    )
    return name


def tried(
    docker: str, image: str, options: tuple[str, ...], nodes: tuple[str, ...]
) -> dict[str, Any]:
    """One container with these options: which nodes it can open, before and after an update."""
    name = f"dlsched-gpu-truth-{secrets.token_hex(4)}"
    binds = [f"--volume={path}:{path}:ro" for path in _PROGRAMS if Path(path).exists()]
    running = (*binds, "--network=none", image, "sleep", "600")
    try:
        output(docker, "run", "--detach", f"--name={name}", *options, *running)
        before = _opened(docker, name, nodes)
        output(docker, "update", "--cpu-period=100000", "--cpu-quota=50000", name)
        return {"opened_before": before, "opened_after": _opened(docker, name, nodes)}
    except RuntimeError as error:
        return {"reason": str(error)[:300]}
    finally:
        _quietly(docker, "rm", "--force", name)


def _opened(docker: str, name: str, nodes: tuple[str, ...]) -> list[str]:
    found = []
    for node in nodes:
        with suppress(RuntimeError):
            output(docker, "exec", name, "sh", "-c", f": < {node}")
            found.append(node)
    return found


def _quietly(*command: str) -> None:
    with suppress(RuntimeError):
        output(*command)
