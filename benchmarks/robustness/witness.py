"""A training that has a witness: it reports each start and each checkpoint through a socket that
stays open while it lives, and holds a lock. So no start is missed, whatever becomes of engines."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tools.hosts import saving_job

TOGETHER = "at the same time"
"""In each line that says that the job ran twice."""
SOCKET, LOCK = "witness", "lock"
"""In the folder that all hosts share; containers may only read it."""

_TRAINS = """
import fcntl, json, os, signal, socket, sys, time
folder, asked, ended = "/ckpt", [], []
saved = folder + "/step"
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
witness = socket.socket(socket.AF_UNIX)
witness.connect("/shared/witness")
def say(word, step):
    witness.sendall(f"{word} {step}\\n".encode())
def tell(**what):
    with open(os.environ["DLSCHED_METRICS_FILE"], "a") as file:
        file.write(json.dumps(dict(what, t=time.time())) + "\\n")
step = int(open(saved).read()) if os.path.exists(saved) else 0
lock = open("/shared/lock")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    say("locked-out", step)
say("begins", step)
if witness.recv(8) == b"fail":
    sys.exit(1)
while not ended:
    step += 1
    tell(step=step, accuracy=0.5, total_steps=10_000_000)
    if asked:
        asked.clear()
        with open(folder + "/weights", "wb") as file:
            file.write(os.urandom(SIZE))
        with open(saved + ".new", "w") as file:
            file.write(str(step))
        os.rename(saved + ".new", saved)
        say("saved", step)
        tell(checkpoint={"step": step, "path": saved})
    time.sleep(0.1)
sys.exit(143)
"""


def watched_training(job: str, image: str, shared: Path, size_bytes: int) -> str:
    """The job file of such a training, which makes ten steps a second."""
    code = _TRAINS.replace("SIZE", str(size_bytes))
    return saving_job(job, image, code, [f"{job}:/ckpt", f"{shared}:/shared:ro"])


@dataclass
class Seen:
    """What one job reported."""

    living: int = 0
    """Its processes that run now."""
    starts: int = 0
    saved: int = 0
    """The last checkpoint that it finished."""
    wrong: list[str] = field(default_factory=list)
    """Starts below that checkpoint, two processes at a time, a lock that another one holds."""


class Witness:
    """Listens for one job until it is closed."""

    def __init__(self, shared: Path, fails: Callable[[int], bool]) -> None:
        """`fails` is asked, with the process, whether a start should fail."""
        self.seen = Seen()
        self._fails = fails
        self._lock = threading.Lock()
        (shared / LOCK).touch()
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(shared / SOCKET))
        self._listening.listen(16)
        threading.Thread(target=self._accept, name="witness", daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):  # it was closed
            while True:
                talking, _ = self._listening.accept()
                threading.Thread(target=self._listen, args=(talking,), daemon=True).start()

    def _listen(self, talking: socket.socket) -> None:
        with self._lock:
            self.seen.living += 1
            if self.seen.living > 1:
                self.seen.wrong.append(f"{self.seen.living} processes of it {TOGETHER}")
        try:
            with talking, talking.makefile() as lines:
                for line in lines:
                    word, step = line.split()
                    self._heard(word, int(step))
                    if word == "begins":
                        talking.sendall(b"fail" if self._fails(_pid(talking)) else b"go")
        except (OSError, ValueError):
            pass  # it was killed
        finally:
            with self._lock:
                self.seen.living -= 1

    def _heard(self, word: str, step: int) -> None:
        with self._lock:
            seen = self.seen
            if word == "saved":
                seen.saved = step
            elif word == "locked-out":
                seen.wrong.append("its lock was taken twice")
            else:
                seen.starts += 1
                if step < seen.saved:
                    seen.wrong.append(f"began at step {step}, had saved {seen.saved}")


def _pid(talking: socket.socket) -> int:
    """The process at the other end."""
    credentials = talking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[:4], "little")
