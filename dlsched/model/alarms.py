"""Alarms for the operator: each key with its meaning and a remedy. Keys are stable across versions.
The log, the status and the troubleshooting page use them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class AlarmKey(StrEnum):
    """Every kind of alarm, with its meaning and a remedy in one line each."""

    meaning: str
    remedy: str

    def __new__(cls, key: str, meaning: str, remedy: str) -> AlarmKey:
        """A member that is equal to its key."""
        member = str.__new__(cls, key)
        member._value_ = key
        member.meaning = meaning
        member.remedy = remedy
        return member

    ENGINE_DOWN = (
        "engine-down",
        "The Docker Engine does not answer. Containers run on under their last limits.",
        (
            "Check `systemctl status docker` and the setting `engine.host`. dlsched goes on by "
            "itself once the engine answers."
        ),
    )
    CAPACITY_UNKNOWN = (
        "capacity-unknown",
        "A CPU quota outside this host, which dlsched cannot see, holds the containers back.",
        "Ask the provider of the host for the quota, and set `capacity` to it.",
    )
    CAPACITY_UNEVEN = (
        "capacity-uneven",
        (
            "A control group around some containers has a CPU quota of its own. dlsched does not "
            "divide that quota."
        ),
        "Raise the quota of the group that the text names, or set `capacity` to it.",
    )
    FOLDER_UNREADABLE = (
        "folder-unreadable",
        "The watch folder cannot be listed. Jobs stay as they are.",
        "Check that the folder of the setting `watch` exists and that dlsched may read it.",
    )
    USER_FOLDER_REFUSED = (
        "user-folder-refused",
        "A user's folder below the watch folder is not read. The user's jobs stay as they are.",
        "Correct the owner, mode or name of the folder, or the user's entry under `tenants`.",
    )
    FILE_WAITS = (
        "file-waits",
        "A job file waits, since another container has the job's name.",
        "Rename the job, or remove that container.",
    )
    JOB_LEFT_ALONE = (
        "job-left-alone",
        (
            "A container has no valid job file, but a rejected file may be its own. The "
            "container is not touched."
        ),
        "Correct the rejected file, or delete it, which ends the job.",
    )
    CONTAINER_LEFT_ALONE = (
        "container-left-alone",
        (
            "A container that asks to be adopted, or has a job's labels, cannot be managed. It is "
            "not touched."
        ),
        "Do what the alarm's text says; a container gets other labels when it is created again.",
    )
    CONTAINER_DOUBLE = (
        "container-double",
        "A second container has the labels of a job's container. The second one is not touched.",
        "Remove the second container, or create it from an image without the labels of dlsched.",
    )
    NAME_TAKEN = (
        "name-taken",
        "A container asks to be adopted, but a job has its name. The container is not touched.",
        "Rename the container or the job.",
    )
    LIMITS_REFUSED = (
        "limits-refused",
        "The limits of a container cannot be changed or read. The limits stay as they are.",
        "Do what the alarm's text says; dlsched tries again every few seconds.",
    )
    BURST_REFUSED = (
        "burst-refused",
        "The kernel refuses CPU bursts. CPU limits apply without them.",
        "Nothing has to be done. With the setting `burst: 0` dlsched no longer tries.",
    )
    IDLE_CLASS_REFUSED = (
        "idle-class-refused",
        "The kernel refuses its idle class. Trainings get low CPU weights instead.",
        "Nothing has to be done. With the setting `idle_class: false` dlsched no longer tries.",
    )
    GPU_DRIVER = (
        "gpu-driver",
        "Some or all GPUs cannot be observed.",
        "Run `nvidia-smi` and `dlsched doctor` on the host.",
    )
    GPU_LOST = (
        "gpu-lost",
        "A GPU cannot be used. No job starts on it.",
        "Look for Xid in `dmesg`; run `nvidia-smi --gpu-reset`, or reboot.",
    )
    GPU_LOST_BY_JOB = (
        "gpu-lost-by-job",
        "A job runs on a GPU that cannot be used.",
        "Repair the GPU; with `gpus.on_loss: move` and a `checkpoint` the job moves by itself.",
    )
    GPU_IDLE = (
        "gpu-idle",
        "A container or process holds memory of a GPU and has not used it for `gpus.idle_after`.",
        (
            "Ask the owner to end the container or process; dlsched only reports it. "
            "`gpus.idle_after: null` turns the alarm off."
        ),
    )
    GPU_TAKEN = (
        "gpu-taken",
        "A CPU update through the engine took a container's GPU away.",
        "Set `gpus.injection: cdi`, then create the container again.",
    )
    GPU_UPDATES_STOPPED = (
        "gpu-updates-stopped",
        (
            "After a CPU update took a container's GPU away, no container with GPUs is updated "
            "through the engine any more."
        ),
        "Set `gpus.injection: cdi`, remove the file that the text names, and restart dlsched.",
    )
    BOTTLENECK = (
        "bottleneck",
        "A service misses its latency target for a cause that more CPU does not solve.",
        "Do what the alarm's text says. It names the cause and what was measured, too.",
    )
    MEMORY_FILLS = (
        "memory-fills",
        (
            "A container's memory in use has grown steadily and will soon reach its limit. Then "
            "the kernel swaps, or kills a process in it."
        ),
        (
            "Raise the limit by the command in the text, let dlsched raise it (`memory.max`), or "
            "let the program use less."
        ),
    )
    MEMORY_NOT_RAISED = (
        "memory-not-raised",
        (
            "A container needs a higher memory limit, and dlsched cannot raise it: the host has no "
            "room, or the limit is at `memory.max`."
        ),
        (
            "Free memory: the text says who uses most; or raise `memory.max`, or let the program "
            "use less."
        ),
    )
    THREADS_SPIN = (
        "threads-spin",
        (
            "A container has more threads than CPU, and those that wait for each other spin: they "
            "use up the CPU that the others need."
        ),
        (
            "Start it with fewer threads, by the line in the text. The policy `adaptive` sets no "
            "CPU limit on it."
        ),
    )
    DIVERGED = (
        "diverged",
        (
            "A training reports nan or inf for its loss or its target's metric. It does not "
            "count as delivered."
        ),
        (
            "Stop the training, or restart it from a checkpoint. A finite value of that metric "
            "ends the alarm."
        ),
    )
    MOVE_FAILED = (
        "move-failed",
        "A job could not be moved to other GPUs. It runs on its old ones.",
        "Do what the alarm's text says; the move is tried again after some minutes.",
    )
    JOB_NOT_NOTIFIED = (
        "job-not-told",
        (
            "The directory in which a job reads its limits cannot be written. The job sees its "
            "old limits."
        ),
        "Free space in `state_dir`, and check its permissions.",
    )
    DELIVER_HOOK_FAILED = (
        "deliver-hook-failed",
        "The command of `deliver_hook` failed for a job.",
        "Run the command by hand, or reload or restart dlsched, which runs it again.",
    )
    RECORD_NOT_WRITTEN = (
        "record-not-written",
        "A record in `state_dir` cannot be written. If the daemon ends meanwhile, it is lost.",
        "Free space in `state_dir`, and check its permissions; dlsched tries in every cycle.",
    )
    RECORD_BROKEN = (
        "record-broken",
        "A record in `state_dir` could not be read when the daemon started. It was moved aside.",
        "Read what the text says is lost, then delete the file that was moved aside.",
    )
    JOURNAL_FAILED = (
        "journal-failed",
        "The journal cannot be written, or a broken one was replaced. Decisions are not affected.",
        "Free space in `state_dir`; a journal that was moved aside can be deleted.",
    )
    API_DOWN = (
        "api-down",
        "The daemon's sockets do not answer, so `ps`, `why` and `stop` do not work. Jobs run on.",
        "Restart the daemon: `systemctl restart dlsched`.",
    )
    CLUSTER_DOWN = (
        "cluster-down",
        "This node cannot answer the cluster's managers. Its jobs run on.",
        (
            "Do what the alarm's text says: join the swarm, or correct `cluster.tls`. Then the "
            "node answers by itself."
        ),
    )
    POLICY_FAILED = (
        "policy-failed",
        "The policy failed. Limits stay as they are, and the next cycle asks the policy again.",
        "Correct the policy or set another one, then reload (SIGHUP).",
    )
    PLAIN_DOCKER = (
        "plain-docker",
        (
            "The policy failed three times in a row. All limits were given back, and "
            "containers run as under plain Docker."
        ),
        "Correct the policy or set another one, then reload (SIGHUP).",
    )
    CYCLE_FAILED = (
        "cycle-failed",
        "A control cycle failed, by a fault of dlsched. Limits stay as they are.",
        "Report the traceback in dlsched's log. The next cycle runs as usual.",
    )
    OBSERVES_ONLY = (
        "observes-only",
        "Ten control cycles in a row failed. All limits were given back; dlsched only observes.",
        (
            "Report the traceback in dlsched's log; `systemctl reload dlsched` (SIGHUP) lets it "
            "act again."
        ),
    )
    SHADOW_FAILED = (
        "shadow-failed",
        "The shadow policy failed. The acting policy is not affected.",
        "Correct the shadow policy, or remove the setting `shadow`.",
    )
    RELEASED = (
        "released",
        "All limits were given back by `dlsched release`, and dlsched changes nothing.",
        "Run `dlsched release --resume`, or reload (SIGHUP).",
    )


@dataclass(frozen=True, slots=True)
class Alarm:
    """One thing that is wrong now."""

    source: str
    """The subject: a job, a container, a GPU's UUID or a holder on it, a file, or a component such
    as `engine`."""
    key: AlarmKey
    text: str
    """The whole line that people read."""

    def __str__(self) -> str:
        return self.text
