"""The wheel, installed into an environment that has nothing else, beside a real engine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest

from tests.conftest import group_for
from tests.inside import run_inside
from tools.environment import ROOT
from tools.session import wait_for
from tools.wheels import debian_wheels

JOB = """
name: shell
image: {image}
network: none
command:
  - sh
  - -c
  - |
    while :; do
      echo "{{\\"t\\": $(date +%s), \\"latency_s\\": [0.05, 0.07]}}" >> "$DLSCHED_METRICS_FILE"
      sleep 0.2
    done
cpus: {{min: 0.05, max: 1}}
target: {{latency: 60ms}}
stop: {{grace: 1s}}
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built wheel, in a folder of its own."""
    folder = tmp_path_factory.mktemp("wheel")
    build = ["-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run([sys.executable, *build, str(ROOT)], check=True, cwd=folder)
    (built,) = folder.glob("dlsched-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, docker_client: docker.APIClient) -> Path:
    """A virtual environment with the built wheel and what it depends on, without any index."""
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the kept wheels are for Python 3.11")
    folder = wheel.parent
    wheels = debian_wheels(str(docker_client.version()["Arch"]))
    environment = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "-q", "--no-index"]
    subprocess.run([*pip, "--find-links", str(wheels), str(wheel)], check=True, cwd=folder)
    return environment


@pytest.fixture
def outside(tmp_path: Path, docker_host: str) -> dict[str, str]:
    """The variables of somebody who knows nothing of this checkout."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**kept, "DOCKER_HOST": docker_host, "DLSCHED_RUN_DIR": str(tmp_path / "run")}


@pytest.fixture
def containers(docker_client: docker.APIClient, instance: str) -> Iterator[str]:
    """An instance of its own, whose containers are gone at the end."""
    own = f"{instance}-wheel"
    yield own
    label = {"label": f"dlsched.instance={own}"}
    for container in docker_client.containers(all=True, filters=label):
        docker_client.remove_container(container["Id"], force=True, v=True)


@pytest.mark.slow
@pytest.mark.engine
def test_it_runs_jobs_from_a_clean_environment(
    tmp_path: Path, installed: Path, outside: dict[str, str], containers: str, base_image: str
) -> None:
    def run(name: str, *words: str) -> str:
        command = [str(installed / "bin" / name), *words]
        done = subprocess.run(
            command, env=outside, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        return done.stdout

    assert run("python", "-c", "import dlsched; print(dlsched)").find(str(installed)) > 0
    unit = (installed / "share" / "dlsched" / "dlsched.service").read_text()
    assert "ExecStart=/usr/local/bin/dlsched run\n" in unit
    for shipped in ("grafana/dlsched.json", "prometheus/prometheus.yml", "completion/dlsched.zsh"):
        assert (installed / "share" / "dlsched" / shipped).read_bytes()
    assert next(installed.glob("lib/python3.*/site-packages/dlsched-*/licenses/LICENSE"))
    assert "dqoes" in run("dlsched", "policies")
    assert "vllm-ttft" in run("dlsched", "presets")

    (tmp_path / "jobs").mkdir()
    outside |= {
        "DLSCHED_STATUS_GROUP": "null",
        "DLSCHED_CONTROL_GROUP": "null",
        "DLSCHED_ENGINE_CGROUP_PARENT": group_for("").removesuffix("/dlsched-") or "null",
    }
    options = ["--policy", "dqoes", "--watch", "jobs", "--state-dir", "state"]
    command = [str(installed / "bin" / "dlsched"), "run", *options, "--instance", containers]
    log = (tmp_path / "log").open("w")
    daemon = subprocess.Popen(command, env=outside, cwd=tmp_path, stderr=log)
    try:
        (tmp_path / "jobs" / "shell.yaml").write_text(JOB.format(image=base_image))

        def measured() -> float | None:
            told = run("dlsched", "ps", "-o", "json")
            jobs = json.loads(told)["jobs"] if told else ()
            return next((job["measured_s"] for job in jobs if job["state"] == "running"), None)

        latency_s = pytest.approx(0.06, rel=0.02)
        wait_for(lambda: measured() == latency_s, 60, "the latency that the shell reports")
        assert json.loads(run("dlsched", "ps", "-o", "json"))["policy"].startswith("dqoes")
    except (RuntimeError, AssertionError) as error:
        raise AssertionError(f"{error}\n{(tmp_path / 'log').read_text()}") from error
    finally:
        daemon.terminate()
        assert daemon.wait(timeout=60) == 0
        log.close()


@pytest.fixture
def guest(
    tmp_path: Path,
    wheel: Path,
    docker_client: docker.APIClient,
    docker_host: str,
    base_image: str,
) -> Iterator[Callable[..., tuple[int | None, str]]]:
    """Commands of a user without any right, in a container with an environment of the wheel. With
    `group` it is a member of the group of the engine's socket."""
    if not docker_host.startswith("unix://"):
        pytest.skip(f"the engine's socket cannot be mounted: {docker_host}")
    socket = Path(docker_host.removeprefix("unix://"))
    kept = debian_wheels(str(docker_client.version()["Arch"]))
    shutil.copytree(kept, tmp_path / "wheels")
    shutil.copy(wheel, tmp_path / "wheels")
    shutil.copytree(ROOT / "examples" / "jobs", tmp_path / "jobs")
    shutil.copytree(ROOT / "examples" / "traces", tmp_path / "traces")
    for path in (tmp_path, *tmp_path.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    made: dict[bool, str] = {}

    def call(*words: str, group: bool = False) -> tuple[int | None, str]:
        if group not in made:
            host = docker_client.create_host_config(
                network_mode="none",
                binds=[f"{tmp_path}:/given:ro", f"{socket}:/var/run/docker.sock"],
                group_add=[str(socket.stat().st_gid)] if group else [],
                init=True,
            )
            container = docker_client.create_container(
                base_image,
                ["sleep", "600"],
                user="65534:65534",
                environment={"HOME": "/tmp", "PATH": f"/tmp/venv/bin:{os.defpath}"},
                host_config=host,
            )
            made[group] = container["Id"]
            docker_client.start(container["Id"])
            install = (
                "cd /tmp && python3 -m venv --without-pip venv && "
                "python3 $(ls /given/wheels/pip-*.whl)/pip --python venv/bin/python "
                "install -q --no-cache-dir --no-index --find-links /given/wheels dlsched"
            )
            code, said = run_inside(docker_client, made[group], ["sh", "-c", install])
            assert code == 0, said.decode()
        code, said = run_inside(docker_client, made[group], list(words))
        return code, said.decode()

    yield call
    for container in made.values():
        docker_client.remove_container(container, force=True, v=True)


@pytest.mark.slow
@pytest.mark.engine
def test_it_can_be_installed_for_looking_only(
    guest: Callable[..., tuple[int | None, str]], docker_client: docker.APIClient
) -> None:
    def look(*words: str) -> str:
        code, said = guest("dlsched", *words)
        assert code == 0, f"{words}: {said}"
        return said

    assert "adaptive" in look("policies")
    assert "ollama" in look("presets")
    assert json.loads(look("schema", "status"))
    assert "ok" in look("check", "/given/jobs/face-unlock.yaml")
    assert "adaptive" in look("simulate", "/given/traces/three-jobs.yaml", "--policy", "adaptive")

    code, said = guest("dlsched", "ps")
    assert code == 3
    assert said == (
        "error: no daemon answers on /run/dlsched/status.sock; "
        "start it with `systemctl start dlsched` or `dlsched run`\n"
    )
    code, said = guest("dlsched", "probe")
    assert (code, said.count("\n")) == (3, 1)
    assert "Permission denied; run as root" in said
    code, said = guest("dlsched", "probe", "--no-http", group=True)
    assert code == 0, said
    assert "nothing has been changed" in said
