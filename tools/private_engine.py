"""A private engine's life: start, stop, and clearing after a crash of its caller.

It has its own data-root, containerd, mount namespace and control group, no bridge and no iptables
rules, and leaves only its data-root, for the next run. No other engine is touched.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from docker.errors import APIError, DockerException
from requests.exceptions import RequestException

from tools import debian, engine_remains
from tools.engine_probe import answers, connect
from tools.engine_slot import DAEMONS_SUFFIX, Slot, existing_slots, free_slot, locked
from tools.environment import BUILD
from tools.steps import SetupError, say, step

START_WITHIN_S = 120.0
STOP_WITHIN_S = 15.0
END_WITHIN_S = 60.0
"""An engine that ends by itself first gives its containers time to."""
POLL_S = 0.05
PREDEFINED_NETWORKS = ("none", "host", "bridge")
RELEASE = "DLSCHED_ENGINE_DEBIAN"
"""In the environment: the Debian release whose engine private engines run; else the host's."""
DOCKERD = "/usr/sbin/dockerd"
"""Debian's."""
SBIN = "/usr/local/sbin:/usr/sbin:/sbin"

# In its own mount namespace the engine sees an empty /run/containerd: it cannot take the
# system's containerd for its own, and its shims' sockets vanish together with it.
# The first arguments, up to `--`, are groups to enter, so that what the engine uses can be read;
# where one cannot be made the engine runs all the same.
START_SCRIPT = """
while [ "$1" != -- ]; do
    { mkdir -p "$1" && echo $$ >"$1/cgroup.procs"; } 2>/dev/null
    shift
done
shift
mkdir -p /run/containerd && mount -t tmpfs tmpfs /run/containerd && exec "$@"
"""

# In that namespace programs and libraries are those of another Debian's tree; all else, such as
# /run and the data-root, is the host's.
OTHER_DEBIAN_SCRIPT = 'mount --bind "$0/usr" /usr && exec "$@"'


@dataclass(frozen=True)
class Engine:
    """A Docker Engine that answers at `host`; cgroup_parent is None when it is not private."""

    host: str
    cgroup_parent: str | None = None
    restart: Callable[[], None] | None = None
    """Ends a private engine as its service manager would, and starts it again."""


@dataclass(frozen=True, kw_only=True)
class PrivateEngine(Engine):
    """An engine that was started here."""

    cgroup_parent: str
    restart: Callable[[], None]
    kill: Callable[[], None]
    """Ends its dockerd by SIGKILL, if it runs; `restart` starts it again."""
    data_root: Path


class NoEngine(SetupError):
    """No engine answers, and none can be started; the text says what to do about it."""


def require_dockerd() -> str:
    """Path of dockerd; installs Debian's where it is missing. Raises NoEngine."""
    if os.geteuid() != 0:
        raise NoEngine(
            "no Docker Engine answers and this user is not root: start one this user may use "
            "(apt-get install docker.io; adduser USER docker), or run as root"
        )
    path = f"{os.environ.get('PATH', '')}:{SBIN}"
    if shutil.which("dockerd", path=path) is None:
        try:
            debian.install(["docker.io", "iptables"], "the private Docker Engine")
        except SetupError as error:
            raise NoEngine(str(error)) from error
    dockerd = shutil.which("dockerd", path=path)
    if dockerd is None:
        raise NoEngine("no dockerd found: apt-get install --no-install-recommends docker.io")
    return dockerd


def unpacked_engine(release: int) -> Path:
    """A tree with that Debian release's Docker Engine and all that it needs, made once; nothing of
    it is installed. Raises NoEngine."""
    if os.geteuid() != 0:
        raise NoEngine(f"the Docker Engine of Debian {release} runs as root only")
    tree = BUILD / f"debian-{release}"
    if not tree.is_dir():
        BUILD.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="debian-", dir=BUILD) as folder:
            root, title = Path(folder) / "root", f"Docker Engine of Debian {release}"
            try:
                debian.bootstrap(
                    root, ["docker.io"], title, suite=debian.SUITES[release], variant="extract"
                )
            except SetupError as error:
                raise NoEngine(str(error)) from error
            root.rename(tree)
    return tree


def dockerd_command() -> list[str]:
    """The command that becomes dockerd, as RELEASE says. Raises NoEngine."""
    release = os.environ.get(RELEASE)
    if not release:
        return [require_dockerd()]
    return ["sh", "-c", OTHER_DEBIAN_SCRIPT, str(unpacked_engine(int(release))), DOCKERD]


def make_run_folder() -> Path:
    """A new folder with a short name, since socket paths have at most 108 characters."""
    parent = "/run" if os.access("/run", os.W_OK) else "/tmp"
    return Path(tempfile.mkdtemp(prefix="dlsched-engine-", dir=parent))


def accounting_mounts() -> list[Path]:
    """Mounts of control groups that count CPU time."""
    mounts = engine_remains.cgroup_mounts()
    version_1 = [mount for mount in mounts if (mount / "cpuacct.usage").exists()]
    return version_1 or [mount for mount in mounts if (mount / "cpu.stat").exists()]


def start_dockerd(
    dockerd: Sequence[str], slot: Slot, run_folder: Path, enter: Sequence[str] = ()
) -> subprocess.Popen[bytes]:
    """Start the slot's dockerd, detached from the terminal, and do not wait for it. `enter`: the
    command that runs another one in the namespaces that it is to be in."""
    # The machine's own /etc/docker/daemon.json is about the machine's own engine.
    settings = run_folder / "daemon.json"
    settings.write_text("{}", encoding="ascii")
    arguments = [
        *dockerd,
        f"--config-file={settings}",
        f"--data-root={slot.data_root}",
        f"--exec-root={run_folder}/exec",
        f"--pidfile={run_folder}/dockerd.pid",
        f"--host=unix://{run_folder}/engine.sock",
        "--bridge=none",
        "--iptables=false",
        "--ip6tables=false",
        "--ip-forward=false",
        "--exec-opt=native.cgroupdriver=cgroupfs",
        f"--cgroup-parent=/{slot.cgroup_parent}",
    ]
    isolate = ["unshare", "--mount", "--propagation", "slave", "--", "sh", "-c", START_SCRIPT, "sh"]
    groups = [str(mount / f"{slot.cgroup_parent}{DAEMONS_SUFFIX}") for mount in accounting_mounts()]
    with slot.log.open("wb") as log:
        return subprocess.Popen(
            [*enter, *isolate, *groups, "--", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "PATH": f"{os.environ.get('PATH', '')}:{SBIN}"},
        )


def wait_until_ready(process: subprocess.Popen[bytes], host: str, slot: Slot) -> None:
    """Wait until the engine answers. Raises NoEngine when it ends or takes too long."""
    deadline_s = time.monotonic() + START_WITHIN_S
    while not answers(host):
        code = process.poll()
        if code is None and time.monotonic() < deadline_s:
            time.sleep(POLL_S)
            continue
        for line in slot.log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]:
            say(f"         | {line}")
        how = "did not answer in time" if code is None else f"ended with code {code}"
        raise NoEngine(f"the private Docker Engine {how} (see above, and {slot.log})")


def empty(host: str) -> None:
    """Remove all containers, networks and volumes of a private engine; images stay."""
    with closing(connect(host, timeout_s=120)) as client:
        for container in client.containers(all=True):
            with suppress(APIError):
                client.remove_container(container["Id"], force=True, v=True)
        for network in client.networks():
            if network["Name"] not in PREDEFINED_NETWORKS:
                with suppress(APIError):
                    client.remove_network(network["Id"])
        for volume in client.volumes()["Volumes"] or ():
            with suppress(APIError):
                client.remove_volume(volume["Name"], force=True)


def stop(slot: Slot, run_folder: Path) -> None:
    """Stop the slot's engine, alive or crashed, and clear what is left of it. The caller holds the
    slot. Says so when something resists; the next run tries again."""
    host = f"unix://{run_folder}/engine.sock"
    if answers(host):
        with suppress(DockerException, RequestException):
            empty(host)
    engine_remains.end_dockerd(run_folder, STOP_WITHIN_S)
    left = engine_remains.clear(slot, run_folder)
    if left.daemons or left.groups:
        say(f"warning: left of the private engine: {left}")


def clear_crashed(engines: Path) -> int:
    """Clear what dead callers have left under `engines`; returns how many others live."""
    living = 0
    for slot in existing_slots(engines):
        with locked(slot) as held:
            living += not held
            run_folder = slot.recorded_run_folder() if held else None
            if run_folder is not None:
                with step("clearing what a crashed run's private engine left"):
                    stop(slot, run_folder)
    return living


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Keep a second Ctrl-C from interrupting the clean-up; all of it has deadlines."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [(number, signal.signal(number, signal.SIG_IGN)) for number in signals]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


@contextmanager
def private_engine(engines: Path, enter: Sequence[str] = ()) -> Iterator[PrivateEngine]:
    """A private engine in the first free slot under `engines`, after clearing dead callers' slots,
    in the namespaces that `enter` enters. Raises NoEngine."""
    dockerd = dockerd_command()
    clear_crashed(engines)
    with free_slot(engines) as slot:
        run_folder = make_run_folder()
        slot.remember(run_folder)
        # The swarm of an earlier run; its other members are gone.
        shutil.rmtree(slot.data_root / "swarm", ignore_errors=True)
        host = f"unix://{run_folder}/engine.sock"
        process: subprocess.Popen[bytes] | None = None

        def restart() -> None:
            nonlocal process
            assert process is not None
            process.terminate()
            process.wait(END_WITHIN_S)
            engine_remains.end_containerd(run_folder, STOP_WITHIN_S)
            process = start_dockerd(dockerd, slot, run_folder, enter)
            wait_until_ready(process, host, slot)

        def kill() -> None:
            assert process is not None
            process.kill()  # without effect on one that has ended
            process.wait(END_WITHIN_S)

        try:
            with step("starting a private Docker Engine"):
                process = start_dockerd(dockerd, slot, run_folder, enter)
                wait_until_ready(process, host, slot)
                # A crashed run's containers come back with their data-root.
                empty(host)
            yield PrivateEngine(
                host=host,
                cgroup_parent=f"/{slot.cgroup_parent}",
                restart=restart,
                kill=kill,
                data_root=slot.data_root,
            )
        finally:
            with uninterrupted(), step("stopping the private Docker Engine"):
                stop(slot, run_folder)
                if process is not None:
                    process.wait(END_WITHIN_S)
