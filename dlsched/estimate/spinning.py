"""Whether a container's threads spin to its harm, from samples of what they do.

Threads of OpenMP, of a BLAS, of ONNX Runtime and of others wait for each other in loops. That is
right where each has a CPU of its own. Where they have less, others need what one thread spins. So
three things must come together, in most samples: several threads compute, they have to wait for
CPU, and much of the CPU that they get is spent in loops that only wait. Work with many threads that
sleep while they wait (a compiler, a database, a video encoder) lacks the last of these, a pool on
idle CPUs the second."""

from __future__ import annotations

from collections import deque

from dlsched.estimate.tuning import MOSTLY
from dlsched.model.facts import ThreadsFact
from dlsched.model.state import Spinning
from dlsched.model.units import counted, same_cores
from dlsched.report.fitting import threads_for

SPUN_RATIO = 0.15
"""Least part of the CPU time in wait loops. Measured on two cores, at a limit of one and beside
busy neighbours: ONNX Runtime 0.2 to 0.37 (it also looks for work meanwhile), libgomp, OpenBLAS
and PyTorch 0.5 to 0.96; numpy and OpenMP with a passive wait 0 to 0.1, gcc and ffmpeg 0. Alarms
are in benchmarks/results/spinning.json."""
WAITED_RATIO = 0.25
"""Least number of threads that wait for CPU, of those that compute."""
AT_LIMIT_RATIO = 0.75
"""With less of its limit in use, its neighbours are why the threads wait. A judgement: threads that
spin use all that they may. Once they were found at the limit, `MOSTLY` suffices."""
BUSY_LEAST = 2
SAMPLES = 3
SPIN_IN = 2
"""So many of the last `SAMPLES` samples must spin, and an alarm lasts until none does."""
FORGOTTEN_S = 60.0
"""A sample counts so long. Without a new one nothing suggests that the threads lack CPU."""


def spins(sample: ThreadsFact) -> bool:
    """Whether the threads spun to their harm in that sample."""
    return (
        sample.spun_ratio is not None
        and sample.spun_ratio >= SPUN_RATIO
        and sample.busy >= BUSY_LEAST
        and sample.waited_cores >= WAITED_RATIO * sample.used_cores
    )


class SpinJudge:
    """Samples of one start of a container."""

    def __init__(self) -> None:
        self.spinning: Spinning | None = None
        """The same object while nothing new is known."""
        self.sample: ThreadsFact | None = None
        """The last one; None: it is too old to say something."""
        self._samples: deque[ThreadsFact] = deque(maxlen=SAMPLES)

    def update(
        self, sample: ThreadsFact | None, limit_cores: float | None, cores: float, now_s: float
    ) -> None:
        """Take in the last sample (None: there is none), the container's limit, and the CPUs of the
        host."""
        if sample is None or now_s - sample.at_s > FORGOTTEN_S:
            self._samples.clear()
            self.sample = self.spinning = None
        elif sample is not self.sample:
            self.sample = sample
            self._samples.append(sample)
            found = [one for one in self._samples if spins(one)]
            if len(found) >= SPIN_IN or (found and self.spinning is not None):
                was_limited = self.spinning is not None and self.spinning.limited
                now = _spinning(found, limit_cores, cores, was_limited=was_limited)
                if self.spinning is None or _differ(now, self.spinning):
                    self.spinning = now
            elif not found:
                self.spinning = None


def _differ(now: Spinning, before: Spinning) -> bool:
    """Whether there is news for people: figures that are measured again always vary."""
    limits = (now.cores, before.cores) if now.limited else (0.0, 0.0)
    same = (now.limited, now.library) == (before.limited, before.library)
    return not (same and same_cores(*limits))


def _spinning(
    found: list[ThreadsFact], limit_cores: float | None, cores: float, *, was_limited: bool
) -> Spinning:
    used = sum(one.used_cores for one in found) / len(found)
    least = MOSTLY if was_limited else AT_LIMIT_RATIO
    limited = limit_cores is not None and limit_cores < cores and used >= least * limit_cores
    return Spinning(
        threads=round(sum(one.busy for one in found) / len(found)),
        cores=limit_cores if limited and limit_cores is not None else used,
        limited=limited,
        spun_ratio=sum(one.spun_ratio or 0.0 for one in found) / len(found),
        library=found[-1].spins_in,
    )


def spinning_text(spinning: Spinning) -> str:
    """What was measured, and the one line that mends it."""
    cores = f"{spinning.cores:.2f} cores"
    have = f"a limit of {cores}" if spinning.limited else f"{cores}, which neighbours leave it"
    where = f" ({spinning.library})" if spinning.library else ""
    return (
        f"{spinning.threads} threads spin in {have}: at least {100 * spinning.spun_ratio:.0f} % of "
        f"its CPU time goes into loops that only wait{where}. "
        f"{remedy(spinning.library, threads_for(spinning.cores))}"
    )


_REMEDIES: tuple[tuple[str, str], ...] = (
    ("openblas", "Set OPENBLAS_NUM_THREADS={n}."),
    (
        "onnxruntime",
        "Set the option intra_op_num_threads to {n}, or session.intra_op.allow_spinning to 0.",
    ),
    ("iomp", "Set OMP_NUM_THREADS={n}, or KMP_BLOCKTIME=0."),
    ("libomp", "Set OMP_NUM_THREADS={n}, or KMP_BLOCKTIME=0."),
    ("gomp", "Set OMP_NUM_THREADS={n}, or OMP_WAIT_POLICY=passive."),
    ("ggml", "Start it with --threads {n}."),
    ("llama", "Start it with --threads {n}."),
)
"""What ends the spinning, by a part of the library's name."""
_OTHER = "Start it with {threads}; with OpenMP by OMP_NUM_THREADS={n}."


def remedy(library: str, threads: int) -> str:
    """The one line that mends it."""
    known = library.lower()
    line = next((line for name, line in _REMEDIES if name in known), _OTHER)
    return line.format(n=threads, threads=counted(threads, "thread"))
