"""Everything else that a host does to an agent: a full disk, a broken journal, a stepping clock,
a folder that goes, an engine that is restarted, too little memory."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import dockerd_of
from tests.torture.acts import job, wish
from tests.torture.ceilings import CAPACITY_CORES
from tests.torture.kernel import lives
from tests.torture.launcher import MEMORY, STEPPING
from tests.torture.play import stage
from tests.torture.world import Adopted, Ended, Runs, World
from tests.waiting import until
from tools.base_image import ensure_base
from tools.private_engine import Engine, private_engine
from tools.session import Session

pytestmark = [pytest.mark.slow, pytest.mark.engine]

BOTH = {"alpha": Runs(0.5), "beta": Runs(0.5)}


@pytest.fixture
def world(docker_host: str, base_image: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    with stage("fair") as one:
        yield one


def begin(world: World) -> dict[str, tuple[str, int]]:
    """Two jobs run; returns their containers and processes."""
    wish(world, alpha=job("alpha"), beta=job("beta"))
    world.agent.start()
    assert world.becomes(BOTH) == []
    return identities(world)


def identities(world: World) -> dict[str, tuple[str, int]]:
    return {body["Name"]: (body["Id"], body["State"]["Pid"]) for body in world.containers()}


def alarms(world: World) -> list[str]:
    status = world.agent.status()
    return [] if status is None else list(status["alarms"])


def cycle(world: World) -> int:
    """The agent's present one; 0: it does not answer."""
    return int((world.agent.status() or {"cycle": 0})["cycle"])


# ----------------------------------------------------------------------------- the full disk


@pytest.fixture
def small(
    docker_host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[World, Path]]:
    """A world on a file system of its own, and the file that fills it.

    Its engine starts after the mount: one in a mount namespace of its own would not see it.
    """
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    root = Path(tempfile.mkdtemp(prefix="dlsched-"))
    mount = ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(root)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        root.rmdir()
        pytest.skip(f"no small file system can be mounted: {done.stderr.strip()}")
    try:
        with private_engine(tmp_path / "engines") as engine:
            ensure_base(engine.host)
            monkeypatch.setenv("DOCKER_HOST", engine.host)
            one = Session(root, engine.host, CAPACITY_CORES)
            world = World(one, "fair")
            try:
                yield world, root / "filling"
            finally:
                world.close()
                one.close()
    finally:
        subprocess.run(["umount", "-l", str(root)], check=False)
        root.rmdir()


def fill(file: Path) -> bool:
    """Whether anything fitted still."""
    before = file.stat().st_size if file.exists() else 0
    with file.open("ab", buffering=0) as filling:
        for size in (65_536, 4096, 1):
            try:
                while True:
                    filling.write(b"x" * size)
            except OSError:
                continue
    return file.stat().st_size > before


def test_on_a_full_disk_nothing_is_half_done_and_words_are_written_as_soon_as_it_takes_them(
    small: tuple[World, Path],
):
    world, filling = small
    wish(
        world,
        alpha=job("alpha"),
        once=job("once", script="trap 'exit 0' TERM; sleep 1000 & wait $!", restart="on-failure"),
    )
    world.agent.start()
    assert world.becomes({"alpha": Runs(0.5), "once": Runs(0.5)}) == []
    fill(filling)
    # What the agent was writing just then makes room once more when it fails.
    last = cycle(world)
    until(lambda: cycle(world) >= last + 2 and not fill(filling), "the disk to be full")
    world.adopt("web", NanoCpus=900_000_000, CpuShares=512)
    until(
        lambda: any("original limits cannot be recorded" in alarm for alarm in alarms(world)),
        "the refusal to touch what cannot be given back",
    )
    (once,) = [body for body in world.containers() if body["Name"].endswith("-once")]
    world.session.engine.api.kill(once["Id"], "SIGTERM")
    until(
        lambda: any("a job has ended cannot be written" in alarm for alarm in alarms(world)),
        "the end that cannot be recorded",
    )
    assert [line for line in world.limits_left({}) if line.startswith("web")] == []
    record = world.session.state_dir / "ended" / "once.json"
    assert not record.exists()

    wished = {"alpha": Runs(0.5), "web": Adopted(0.5), "once": Ended("finished", container=True)}
    filling.unlink()
    assert world.becomes(wished) == []
    assert record.exists()
    world.agent.kill()
    world.agent.start()
    assert world.becomes(wished) == []
    assert world.left_behind() == []
    assert world.agent.stop() == 0
    assert world.wrongs_at_rest({"alpha": Runs(0.5), "web": Adopted(0.5)}) == []


# ------------------------------------------------------------------------------- the journal


def garbage(file: Path) -> None:
    file.write_bytes(b"\x00\xff" * 20_000)


def truncated(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 3])


def half_a_page(file: Path) -> None:
    content = bytearray(file.read_bytes())
    for start in range(0, len(content), 8192):
        content[start + 100 : start + 4096] = b"\xa5" * (4096 - 100)
    file.write_bytes(bytes(content))


@pytest.mark.parametrize("damage", [garbage, truncated, half_a_page])
def test_a_broken_journal_is_moved_aside_and_told_and_no_job_notices(
    world: World, damage: Callable[[Path], None]
):
    before = begin(world)
    assert world.agent.stop() == 0
    damage(world.session.state_dir / "journal.db")
    world.agent.start()
    told: list[str] = []

    def moved() -> bool:
        told[:] = [alarm for alarm in alarms(world) if alarm.startswith("the journal ")]
        return any("moved to" in alarm for alarm in told)

    until(moved, "the word of the journal")
    (alarm,) = told
    assert "and a new one begun: " in alarm
    until(lambda: world.wrongs(BOTH) == [f"alarm: {alarm}"], "everything else as before")
    assert identities(world) == before
    assert list(world.session.state_dir.glob("journal.db.corrupt-1"))
    world.agent.kill()
    world.agent.start()
    assert world.becomes(BOTH) == []


# --------------------------------------------------------------- the clock, memory, the folder


def test_a_wall_clock_that_steps_by_days_moves_no_limit_and_ends_no_job(world: World):
    (world.agent.orders / STEPPING).touch()
    before = begin(world)
    wish(world, alpha=job("alpha"), beta=job("beta"), gamma=job("gamma"))
    third = Runs(1 / 3)
    assert world.becomes({"alpha": third, "beta": third, "gamma": third}) == []
    world.agent.kill()
    wish(world, alpha=job("alpha"), beta=job("beta"))
    world.agent.start()
    assert world.becomes(BOTH) == []
    assert identities(world) == before
    assert world.starts.count(("alpha", before[f"/dlsched-{world.session.instance}-alpha"][0])) == 1


@pytest.mark.parametrize("more_bytes", [4 << 20, 16 << 20, 48 << 20])
def test_where_memory_is_short_nothing_is_half_done(world: World, more_bytes: int):
    wish(world, alpha=job("alpha"), beta=job("beta"))
    (world.agent.orders / MEMORY).write_text(str(more_bytes))
    world.agent.start()
    world.becomes(BOTH, 5.0)  # it may end, it may get nowhere, and it may go on
    world.agent.kill()
    (world.agent.orders / MEMORY).unlink()
    world.agent.start()
    assert world.becomes(BOTH) == []
    assert world.left_behind() == []
    for name, container in set(world.starts):
        assert world.starts.count((name, container)) == 1
    assert world.agent.stop() == 0
    assert world.wrongs_at_rest(BOTH) == []


@pytest.mark.gate
def test_a_watch_folder_that_goes_ends_no_job_also_over_a_restart(world: World):
    before = begin(world)
    folder = world.session.watch
    away = folder.with_name("away")
    folder.rename(away)
    until(lambda: any("cannot be listed" in alarm for alarm in alarms(world)), "the alarm")
    world.agent.kill()
    world.agent.start()
    until(lambda: any("cannot be listed" in alarm for alarm in alarms(world)), "the alarm")
    assert identities(world) == before
    away.rename(folder)
    assert world.becomes(BOTH) == []
    assert identities(world) == before


# -------------------------------------------------------------------------------- the engine


@pytest.fixture
def beside() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that outlive the world, and are ended after it."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.terminate()
        process.wait(60)


@pytest.fixture
def private(
    beside: list[subprocess.Popen[bytes]], own_engine: Engine
) -> Iterator[tuple[World, Engine]]:
    """A world on an engine that nobody else uses; it ends before what is beside it."""
    with stage("fair") as world:
        yield world, own_engine


@pytest.mark.gate
@pytest.mark.contract
def test_an_engine_that_is_restarted_gets_its_limits_again_and_runs_no_job_twice(
    private: tuple[World, Engine],
):
    world, engine = private
    wish(
        world,
        alpha=job("alpha"),
        beta=job("beta"),
        once=job("once", script="exit 0", restart="on-failure"),
        told=job("told"),
    )
    world.agent.start()
    wished = {
        **BOTH,
        "once": Ended("finished", container=True, starts=1),
        "told": Ended("stopped", container=False),
    }
    world.agent.answers()
    world.agent.ask(lambda client: client.stop("told"))
    assert world.becomes(wished) == []
    containers = {name: one for name, (one, _) in identities(world).items()}
    assert engine.restart is not None
    engine.restart()
    assert world.becomes(wished, 60.0) == []
    assert {name: one for name, (one, _) in identities(world).items()} == containers
    assert world.agent.stop() == 0
    assert world.wrongs_at_rest(BOTH) == []


def test_containers_that_live_through_their_engines_restart_are_taken_up_as_they_are(
    private: tuple[World, Engine], beside: list[subprocess.Popen[bytes]]
):
    world, engine = private
    dockerd = dockerd_of(engine)
    words = dockerd.cmdline()
    file = next(word for word in words if word.startswith("--config-file=")).partition("=")[2]
    Path(file).write_text('{"live-restore": true}')
    dockerd.send_signal(signal.SIGHUP)
    api = world.session.engine.api
    until(lambda: api.info()["LiveRestoreEnabled"], "live-restore to be on")
    before = begin(world)
    # The shims' sockets are in that engine's mount namespace, which the next one has to share.
    inside = ["nsenter", "--mount", "--target", str(dockerd.pid), "--"]
    beside.append(subprocess.Popen([*inside, "sleep", "300"]))
    spaces = [Path(f"/proc/{pid}/ns/mnt") for pid in (beside[0].pid, dockerd.pid)]
    until(lambda: len({space.readlink() for space in spaces}) == 1, "the namespace to be shared")
    inside[3] = str(beside[0].pid)
    dockerd.terminate()
    until(lambda: any("engine" in alarm for alarm in alarms(world)), "the loss to be told")
    until(lambda: not lives(dockerd.pid), "its end")
    beside.append(subprocess.Popen([*inside, *words], stderr=subprocess.DEVNULL))
    assert world.becomes(BOTH, 60.0) == []
    assert identities(world) == before
    assert world.agent.stop() == 0
    assert world.wrongs_at_rest(BOTH) == []
