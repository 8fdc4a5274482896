"""Checks of the host: kernel, CPUs, open files, folders and sockets."""

from __future__ import annotations

import grp
import os
import resource
from collections.abc import Iterator
from pathlib import Path

from dlsched.control.ledger.cpu import divide_cpu
from dlsched.runtime.cgroup.enclosing import Around, Surroundings, cpu_list
from dlsched.runtime.cgroup.read import PROC, hierarchies
from dlsched.runtime.doctor.finding import Finding
from dlsched.runtime.host import CPUS, available_cpu, physical_cores, threads
from dlsched.runtime.threads.places import NotAllowed, Thread

DESCRIPTORS_A_JOB = 20
"""Typically fourteen; a group in others with a limit, a log and a page take more."""
DESCRIPTORS_BESIDE = 256


def kernel(proc: Path = PROC) -> Iterator[Finding]:
    """CFS burst, the idle class and pressure."""
    try:
        mounts = [
            one for one in hierarchies(proc) if not one.controllers or "cpu" in one.controllers
        ]
    except OSError as error:
        yield Finding("burst", "fail", f"cgroup mounts: {error.strerror}", "mount /sys/fs/cgroup")
        return
    v1 = any("cpu" in one.controllers for one in mounts)

    def has(name: str) -> bool:
        # On cgroup v2 only the root's children have the file.
        return any(next(one.mount.glob(at), None) for one in mounts for at in (name, f"*/{name}"))

    name = "cpu.cfs_burst_us" if v1 else "cpu.max.burst"
    if has(name):
        yield Finding("burst", "ok", f"the kernel has CFS burst ({name})")
    else:
        line = "the kernel has no CFS burst: short requests under a quota have a long tail"
        yield Finding("burst", "warn", line, "use Linux 5.14 or later")
    if has("cpu.idle"):
        yield Finding("idle", "ok", "the kernel has the idle class (cpu.idle)")
    else:
        line = "the kernel has no idle class: low-priority jobs keep others' threads from cores"
        yield Finding("idle", "warn", line, "use Linux 5.15 or later")
    if v1:
        if (proc / "self" / "schedstat").exists():
            line = (
                "cgroup v1 reports no CPU pressure of containers; dlsched reads from services' "
                "threads how long they wait for CPU"
            )
            yield Finding("pressure", "ok", line)
        else:
            line = (
                "neither cgroup v1 nor the kernel's threads show how long containers wait for CPU"
            )
            remedy = "boot with systemd.unified_cgroup_hierarchy=1 (cgroup v2)"
            yield Finding("pressure", "warn", line, remedy)
    elif (proc / "pressure" / "cpu").exists():
        line = "the kernel reports the CPU pressure of each container (cpu.pressure)"
        yield Finding("pressure", "ok", line)
    else:
        yield Finding("pressure", "warn", "the kernel reports no CPU pressure", "boot with psi=1")


def spinning() -> Finding:
    """Whether threads that spin can be recognised."""
    try:
        Thread(os.getpid()).close()
    except (NotAllowed, OSError) as error:
        line = f"threads of containers that spin are not recognised: {error}"
        remedy = "on x86-64 give dlsched CAP_PERFMON and the call perf_event_open, as its unit does"
        return Finding("threads", "warn", line, remedy)
    return Finding("threads", "ok", "threads of containers that spin are recognised")


def capacity(
    capacity_cores: float | None,
    reserve_cores: float | None,
    engine_cpus: int | None,
    cpus: Path = CPUS,
    around: Around | None = None,
) -> Finding:
    """The cores that jobs can get, by the ledger's options. `around` is what bounds containers;
    None: what bounds this process."""
    if around is None:
        around = Surroundings().own()
    there, cores, cpu = threads(), physical_cores(cpus), available_cpu(around)
    division = divide_cpu(cpu.cores, capacity_cores, reserve_cores, cpu.jobs_cores)
    line = f"{division}; {there:g} threads on {cores} physical cores"
    if cpu.bound_by is not None:
        line += f"; bounded by the {cpu.bound_by}"
    if offline := cpu_list(_text(cpus / "present")) - cpu_list(_text(cpus / "online")):
        line += f"; {len(offline)} more CPUs are offline"
    if division.divided_cores <= division.host_cores:
        return Finding("capacity", "fail", line, "lower reserve.cpus")
    if capacity_cores is not None and capacity_cores > there:
        remedy = "set capacity to threads, cores, or at most the number of threads"
        line += f"; the setting capacity says {capacity_cores:g} cores, more than there are threads"
        return Finding("capacity", "warn", line, remedy)
    if around.outside_s:
        so_far = f"the host was throttled from outside for {around.outside_s:.1f} s since boot"
        remedy = (
            "dlsched cannot see the CPU quota, which is outside this host: ask the host's provider "
            "for it, then set capacity"
        )
        return Finding("capacity", "warn", f"capacity unknown: {so_far}; {line}", remedy)
    if around.parts:
        (names, quota), *_ = around.parts
        line += f"; the {quota} applies to {', '.join(names)} alone; the capacity ignores it"
        return Finding("capacity", "warn", line, "raise that quota, or set capacity to it")
    if around.cpus is None and engine_cpus is not None and engine_cpus != there:
        line += f"; the engine's containers have {engine_cpus} CPUs, and this process {there:g}"
        remedy = "give dlsched the same CPUs (affinity, cpuset), or set capacity to a number"
        return Finding("capacity", "warn", line, remedy)
    if capacity_cores is None and cores < there and cpu.bound_by is None:
        line += "; two threads of one core do less than two cores: `capacity: cores` counts cores"
    return Finding("capacity", "ok", line)


def descriptors(max_jobs: int) -> Finding:
    """Whether the limit of open files suffices."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_BESIDE + DESCRIPTORS_A_JOB * max_jobs
    line = f"dlsched may open {most} files; {max_jobs} jobs need up to {wanted}"
    if most == resource.RLIM_INFINITY:
        line = f"dlsched may open any number of files; {max_jobs} jobs need up to {wanted}"
    elif most < wanted:
        remedy = f"raise the limit of open files (LimitNOFILE={wanted}), or lower max_jobs"
        return Finding("files", "warn", line, remedy)
    return Finding("files", "ok", line)


def folder(what: str, path: Path) -> Finding:
    """Whether a folder of the daemon's can be used or created."""
    yours = f"set {what}_dir (--{what}-dir) to a folder of yours"
    remedy = yours if os.geteuid() == 0 else f"run as root, or {yours}"
    if path.is_dir():
        if os.access(path, os.W_OK | os.X_OK):
            return Finding(what, "ok", f"{path} is writable")
        return Finding(what, "fail", f"{path} cannot be written by this user", remedy)
    parent = next(above for above in path.absolute().parents if above.exists())
    if parent.is_dir() and os.access(parent, os.W_OK | os.X_OK):
        return Finding(what, "ok", f"{path} will be created")
    return Finding(
        what, "fail", f"{path} does not exist, and cannot be created in {parent}", remedy
    )


def socket(path: Path, group: str | None, setting: str, serves: str) -> Finding:
    """Which users may connect to one of the daemon's sockets, now or once it is created. `serves`
    says what it is for."""
    if group is not None:
        try:
            wanted = grp.getgrnam(group).gr_gid
        except KeyError:
            line = f"{path.name}: there is no group {group}, so only root may connect"
            return Finding(
                "sockets", "warn", line, f"run `groupadd --system {group}`, or set {setting}: null"
            )
    users = "root only" if group is None else f"root and group {group}"
    line = f"{path.name}: for {users} ({serves})"
    try:
        facts = path.lstat()
    except OSError:
        return Finding(
            "sockets",
            "ok",
            f"{path.name}: not there now; while the daemon runs, it is for {users} ({serves})",
        )
    if group is not None and facts.st_gid != wanted:
        line = f"{path.name}: belongs to gid {facts.st_gid}, not to group {group}"
        return Finding(
            "sockets",
            "warn",
            line,
            "restart the daemon as a user who may give the socket to that group",
        )
    if facts.st_mode & 0o007:
        line = f"{path.name}: every user may connect (mode {facts.st_mode & 0o777:o})"
        return Finding("sockets", "fail", line, f"run `chmod o= {path}`, and restart the daemon")
    return Finding("sockets", "ok", line)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
