"""Starts that fail, with their reason; starts that repeat; what a container is given."""

from __future__ import annotations

import secrets

import pytest

from dlsched.model import ContainerState, Limits, Restart, Start
from tests.runtime.docker.rig import SLEEP, Rig, fact, job_spec
from tools.base_image import BASE

pytestmark = pytest.mark.engine


def begin(rig: Rig, name: str, command: tuple[str, ...] = SLEEP, **container: object) -> None:
    spec = job_spec(name, command, **container)
    assert rig.apply(Start(spec, Limits(0.5), 1024)).status == "begun"


def test_a_command_that_does_not_exist_fails_and_leaves_nothing(rig: Rig) -> None:
    begin(rig, "nosuch", ("no-such-program",))
    failed = rig.until_failed("nosuch")
    assert "no-such-program" in failed.detail and "\n" not in failed.detail
    assert not failed.retryable
    rig.until(lambda seen: fact(seen, "nosuch") is None)


def test_a_name_that_somebody_else_has_is_left_to_him(rig: Rig) -> None:
    name = f"dlsched-{rig.options.instance}-taken"
    other = rig.client.create_container(BASE, list(SLEEP), name=name)["Id"]
    try:
        begin(rig, "taken")
        failed = rig.until_failed("taken")
        assert f"the name {name} is taken by container {other[:12]}" in failed.detail
        assert not failed.retryable
        assert rig.client.inspect_container(other)["State"]["Status"] == "created"
    finally:
        rig.client.remove_container(other, force=True)


def test_an_older_container_in_the_way_is_worth_trying_again(rig: Rig) -> None:
    rig.start(job_spec("older"))
    begin(rig, "older", ("sleep", "601"))
    failed = rig.until_failed("older")
    assert "older spec" in failed.detail
    assert failed.retryable


def test_an_image_that_may_not_be_pulled(rig: Rig) -> None:
    image = f"dlsched-test/{secrets.token_hex(4)}:1"
    begin(rig, "never", image=image, pull_policy="never")
    failed = rig.until_failed("never")
    assert failed.detail == f"image {image} is not on this host, and pull_policy is never"
    assert not failed.retryable


def test_an_image_whose_registry_does_not_answer(rig: Rig) -> None:
    image = f"127.0.0.1:9/{secrets.token_hex(4)}:1"
    begin(rig, "noregistry", image=image)
    failed = rig.until_failed("noregistry")
    assert failed.detail.startswith(f"image {image} cannot be pulled: ")
    assert "\n" not in failed.detail
    assert failed.retryable


@pytest.mark.parametrize(
    ("volume", "reason"),
    [
        ("./here:/there", "is neither an absolute path nor the name of a volume"),
        ("/no/such/folder:/there", "/no/such/folder"),
        ("/tmp:there", "is not an absolute path"),
    ],
)
def test_a_volume_that_cannot_be(rig: Rig, volume: str, reason: str) -> None:
    begin(rig, "volume", volumes=(volume,))
    failed = rig.until_failed("volume")
    assert reason in failed.detail
    assert not failed.retryable


def test_what_a_container_is_given(rig: Rig) -> None:
    look = (
        "import os, pathlib as p; import dlsched.report;"
        "print(os.environ['DLSCHED_JOB'], os.environ['MODE']);"
        "print(p.Path('/run/dlsched/in/allotment.json').read_text().strip());"
        "print(os.access('/run/dlsched/in', os.W_OK), os.access('/run/dlsched/out', os.W_OK));"
        "print('tmp', os.access('/scratch', os.W_OK), os.access('/etc', os.W_OK), os.getuid())"
    )
    spec = job_spec(
        "given",
        ("python", "-c", look),
        environment=(("MODE", "try"),),
        user="65534",
        read_only=True,
        tmpfs=("/scratch:mode=1777",),
        labels=(("team", "vision"), ("dlsched.job", "another")),
    )
    rig.apply(Start(spec, Limits(0.5), 1024, "given.yaml"))
    found = rig.until_state("given", ContainerState.EXITED)
    lines = rig.client.logs(found.container_id).decode().splitlines()
    assert found.exit_code == 0, lines
    assert lines[0] == "given try"
    assert '"cpu_cores": 0.5' in lines[1]
    assert lines[2:] == ["False True", "tmp True False 65534"]
    assert found.source == "given.yaml"
    labels = rig.client.inspect_container(found.container_id)["Config"]["Labels"]
    assert labels["team"] == "vision"


def test_exit_code_and_last_lines(rig: Rig) -> None:
    tell = (
        "import os, time; f = open(os.environ['DLSCHED_METRICS_FILE'], 'a');"
        'f.write(\'{"t": 1, "step": 1, "loss": 0.5}\\n\'); f.flush(); time.sleep(1);'
        'f.write(\'{"t": 2, "step": 2, "loss": 0.25}\\nnonsense\\n\'); f.flush();'
        "raise SystemExit(7)"
    )
    rig.apply(Start(job_spec("tells", ("python", "-c", tell)), Limits(None), 1024))
    steps: list[int | None] = []
    bad_lines = 0

    def ended(seen: object) -> bool:
        nonlocal bad_lines
        found = fact(seen, "tells")  # type: ignore[arg-type]
        if found is None:
            return False
        steps.extend(report.sample.step for report in found.reports if report.sample)
        bad_lines = max(bad_lines, found.bad_lines)
        return found.state is ContainerState.EXITED

    found = fact(rig.until(ended), "tells")
    assert found is not None and found.exit_code == 7
    assert steps == [1, 2]
    assert bad_lines == 1


def test_an_out_of_memory_kill_is_told(rig: Rig) -> None:
    eat = "x = []\nwhile True: x.append(bytearray(1 << 20))"
    spec = job_spec("eater", ("python", "-c", eat), memory_bytes=32 << 20)
    rig.apply(Start(spec, Limits(None), 1024))
    found = rig.until_state("eater", ContainerState.EXITED)
    assert found.oom_killed
    assert found.exit_code == 137


def test_docker_gives_up_a_crash_loop(rig: Rig) -> None:
    spec = job_spec("crashes", ("sh", "-c", "exit 3"), restart=Restart("on-failure", 2))
    rig.apply(Start(spec, Limits(None), 1024))
    seen = rig.until(
        lambda s: (
            (f := fact(s, "crashes")) is not None
            and f.state is ContainerState.EXITED
            and f.starts == 3
        )
    )
    found = fact(seen, "crashes")
    assert found is not None and found.exit_code == 3


def test_removing_ends_a_crash_loop(rig: Rig) -> None:
    spec = job_spec("loops", ("sh", "-c", "exit 3"), restart=Restart("always"))
    rig.apply(Start(spec, Limits(None), 1024))
    found = rig.until_state("loops", ContainerState.RESTARTING)
    assert found.exit_code == 3
    rig.remove(found, grace_s=5)
    rig.until(lambda seen: fact(seen, "loops") is None)


def test_a_paused_container_can_be_removed(rig: Rig) -> None:
    trap = "trap 'exit 0' TERM; while :; do sleep 0.1; done"
    found = rig.start(job_spec("paused", ("sh", "-c", trap)))
    rig.client.pause(found.container_id)
    paused = rig.until_state("paused", ContainerState.PAUSED)
    assert paused.actual == Limits(0.5)
    rig.remove(paused, grace_s=30)
    rig.until(lambda seen: fact(seen, "paused") is None, within_s=15)
