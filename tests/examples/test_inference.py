"""examples/images/inference: what runs without ONNX Runtime here, the models in containers."""

from __future__ import annotations

import hashlib
import http.client
import itertools
import json
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import docker
import numpy as np
import pytest
import uvicorn

from dlsched import report
from tests.examples.modules import example
from tests.waiting import until

FOLDER = Path(__file__).parents[2] / "examples" / "images" / "inference"
MODELS = FOLDER / "models"
CATALOGUE = json.loads((MODELS / "MODELS.json").read_text())
DEADLINE_S = 120.0


@pytest.fixture(autouse=True)
def example_on_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example's modules are found as in its container, and forgotten afterwards."""
    for name in ("MODEL", "BATCH", "THREADS", "HOST", "PORT", "UDS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.syspath_prepend(FOLDER)
    yield
    for path in FOLDER.glob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room in the 108 characters of a socket's."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


# ---- models and data


def test_models_are_the_ones_that_the_catalogue_describes() -> None:
    assert sorted(CATALOGUE["models"]) == ["inception", "mobilenet", "resnet", "vgg", "xception"]
    described = [CATALOGUE["test_split"], *CATALOGUE["models"].values()]
    for entry in described:
        content = (MODELS / entry["file"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == entry["sha256"], entry["file"]
    assert {path.name for path in MODELS.iterdir()} == {
        "MODELS.json",
        *(entry["file"] for entry in described),
    }


def test_models_are_accurate_small_and_name_no_folder_of_their_maker() -> None:
    assert sum(path.stat().st_size for path in MODELS.iterdir()) < 2 << 20
    for name, entry in CATALOGUE["models"].items():
        assert 0.97 <= entry["accuracy"] < 1, name
        content = (MODELS / entry["file"]).read_bytes()
        assert b".py" not in content, name
        assert b"site-packages" not in content, name


def test_readme_tells_the_catalogues_figures() -> None:
    readme = (FOLDER / "README.md").read_text()
    for name, entry in CATALOGUE["models"].items():
        (row,) = [line for line in readme.splitlines() if line.startswith(f"| `{name}`")]
        cells = [cell.strip() for cell in row.split("|")]
        cost = f"{entry['cpu_ms_per_batch_of_64']:.1f}"
        assert cells[3:6] == [f"{entry['accuracy']:.4f}"[1:], f"{entry['parameters']:,}", cost]


@pytest.mark.parametrize("from_environment", [False, True])
def test_an_unknown_network_is_refused_with_those_that_there_are(
    from_environment: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if from_environment:
        monkeypatch.setenv("MODEL", "lenet")
    with pytest.raises(SystemExit) as ended:
        example.runner.parse([] if from_environment else ["--model", "lenet"])
    assert ended.value.code == 2
    assert "'lenet' is none of inception, mobilenet, resnet, vgg" in capsys.readouterr().err


# ---- runner


def loop_that_says_seven(batch: int) -> Any:
    """A runner's loop over the digits 7, 8, 7, 9 whose network knows only the 7."""

    images = example.digits.Digits(np.zeros((4, 1, 32, 32), np.float32), np.array([7, 8, 7, 9]))
    return example.runner.Loop(lambda inputs: np.full(len(inputs), 7), images, batch)


def test_runner_measures_each_batch_and_tells_its_accuracy() -> None:
    measured: list[str] = []

    @contextmanager
    def measure() -> Iterator[None]:
        measured.append("begin")
        yield
        measured.append("end")

    told: list[str] = []
    example.runner.run(
        loop_that_says_seven(4), measure, threading.Event(), 3, told.append, lambda: 0.0
    )
    assert measured == ["begin", "end"] * 3
    assert told == ["accuracy 0.5000 over 12 images in 3 batches"]


def test_runner_ends_after_the_batch_in_which_it_was_told_to() -> None:
    stop = threading.Event()

    @contextmanager
    def measure() -> Iterator[None]:
        stop.set()
        yield

    told: list[str] = []
    example.runner.run(loop_that_says_seven(2), measure, stop, None, told.append, lambda: 0.0)
    assert told == ["accuracy 0.5000 over 2 images in 1 batches"]


# ---- reports


def test_without_reporter_everything_runs_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "dlsched.report", None)
    with example.reporting.measure():
        pass
    assert capsys.readouterr().err == "dlsched.report is not here: running without reports\n"
    app = object()
    assert example.reporting.LatencyMiddleware(app, path_prefix="/predict") is app


def test_reporter_is_used_where_there_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert example.reporting.measure == report.latency.measure
    assert example.reporting.LatencyMiddleware is report.LatencyMiddleware
    assert capsys.readouterr().err == ""


# ---- server and client


@contextmanager
def serving(folder: Path, predict: Callable[[Any], Any], queue: int = 64) -> Iterator[str]:
    """The service over `predict` on a unix socket; gives the socket's path."""

    path = str(folder / "http")
    config = uvicorn.Config(
        example.service.build_app(predict, example.digits.load(), queue),
        uds=path,
        http="h11",
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_level="warning",
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started or not thread.is_alive(), "the server starts")
        yield path
    finally:
        server.should_exit = True
        thread.join(DEADLINE_S)
    assert not thread.is_alive()


def ask(socket_path: str, method: str, path: str, body: bytes | str = b"") -> tuple[int, Any]:
    """Status and JSON of one request."""

    connection = example.client.UnixConnection(socket_path, DEADLINE_S)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def all_sevens(inputs: Any) -> Any:
    """A network that sees a 7 everywhere."""
    return np.full(len(inputs), 7)


@pytest.mark.timed
def test_predict_answers_images_and_test_images(short_folder: Path) -> None:
    share = float((example.digits.load().batch(0, 100).labels == 7).mean())
    black = [[[0] * 8] * 8]
    with serving(short_folder, all_sevens) as path:
        assert ask(path, "POST", "/predict", json.dumps({"images": black * 2})) == (
            200,
            {"labels": [7, 7], "accuracy": None},
        )
        status, answer = ask(path, "POST", "/predict", '{"count": 100}')
    assert (status, answer["accuracy"]) == (200, share)
    assert answer["labels"] == [7] * 100


@pytest.mark.timed
def test_bad_requests_are_refused_with_a_sentence_and_harm_nothing(short_folder: Path) -> None:
    row = "[0,0,0,0,0,0,0,0]"
    rows = ",".join([row] * 7)

    def image(last_row: str) -> str:
        return f'{{"images": [[{rows},{last_row}]]}}'

    bad = [
        "",
        "{",
        "[]",
        "null",
        '"count"',
        "[" * 100_000,
        '{"count": 0}',
        '{"count": 1025}',
        '{"count": true}',
        '{"count": 1.5}',
        '{"count": 1, "images": []}',
        '{"images": []}',
        '{"images": {}}',
        '{"images": [1]}',
        image("[0,0,0,0,0,0,0]"),
        image("[0,0,0,0,0,0,0,17]"),
        image("[0,0,0,0,0,0,0,-1]"),
        image("[0,0,0,0,0,0,0,NaN]"),
        image('[0,0,0,0,0,0,0,"1"]'),
        image("[0,0,0,0,0,0,0,null]"),
        image("[0,0,0,0,0,0,0.5," + "9" * 400 + "]"),
    ]
    with serving(short_folder, all_sevens) as path:
        for body in bad:
            status, answer = ask(path, "POST", "/predict", body)
            assert (status, list(answer)) == (400, ["error"]), body[:80]
        assert ask(path, "POST", "/predict", b" " * ((1 << 20) + 1))[0] == 413
        assert ask(path, "POST", "/predict", image("[0,0,0,0,0,0,0,16]"))[0] == 200


@pytest.mark.timed
def test_full_queue_refuses_while_health_still_answers(short_folder: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(inputs: Any) -> Any:
        begun.set()
        assert go_on.wait(DEADLINE_S)
        return all_sevens(inputs)

    answers: list[tuple[int, Any]] = []
    with serving(short_folder, slow, queue=1) as path:
        first = threading.Thread(
            target=lambda: answers.append(ask(path, "POST", "/predict", '{"count": 1}'))
        )
        first.start()
        assert begun.wait(DEADLINE_S)
        try:
            assert ask(path, "GET", "/healthz") == (200, {"status": "ok", "waiting": 1})
            assert ask(path, "POST", "/predict", '{"count": 1}')[0] == 503
        finally:
            go_on.set()
            first.join(DEADLINE_S)
    assert [status for status, _ in answers] == [200]


def test_arrivals_are_poisson_and_the_same_for_a_seed() -> None:
    def first(count: int, seed: int) -> list[float]:
        return list(itertools.islice(example.client.arrivals(20.0, seed), count))

    assert first(50, seed=3) == first(50, seed=3) != first(50, seed=4)
    gaps = np.diff(first(20_000, seed=3))
    assert gaps.mean() == pytest.approx(1 / 20, rel=0.03)
    assert gaps.std() == pytest.approx(1 / 20, rel=0.03)


def test_tally_reads_mean_and_95th_percentile() -> None:
    row = example.client.Tally(sent=100, latencies_s=[i / 100 for i in range(100, 0, -1)]).row()
    assert (row["mean_s"], row["p95_s"], row["answered"]) == (0.505, 0.95, 100)
    assert example.client.Tally(sent=1, errors=1).row()["p95_s"] is None


@pytest.mark.timed
def test_client_never_waits_for_answers_and_counts_what_it_dropped() -> None:
    go_on = threading.Event()

    class Blocked(http.client.HTTPConnection):
        """A connection whose server answers when the test says so."""

        def request(self, *_: object, **__: object) -> None:
            assert go_on.wait(DEADLINE_S)

        def getresponse(self) -> Any:
            return types.SimpleNamespace(status=200, read=bytes)

    def due_s() -> Iterator[float]:
        yield from [0.0] * 5
        go_on.set()  # all five arrived though none was answered
        yield 1e9

    loop = example.client.OpenLoop(lambda: Blocked("localhost"), b"", in_flight=2)
    total = loop.run(due_s(), 0.001, threading.Event())
    assert (total.sent, total.dropped, len(total.latencies_s), total.errors) == (2, 3, 2, 0)


@pytest.mark.timed
def test_client_counts_every_answer_of_a_real_server(short_folder: Path) -> None:
    with serving(short_folder, all_sevens) as path:
        connect = example.client.connector(f"unix:{path}", DEADLINE_S)
        loop = example.client.OpenLoop(connect, b'{"count": 4}', in_flight=64)
        total = loop.run(iter([0.0] * 20 + [1e9]), 0.001, threading.Event())
    assert (total.sent, len(total.latencies_s), total.errors) == (20, 20, 0)


@pytest.mark.timed
def test_client_reports_each_request_that_failed_or_was_answered(short_folder: Path) -> None:
    told: list[tuple[float, float | None]] = []

    def each(due_s: float, latency_s: float | None) -> None:
        told.append((due_s, latency_s))

    with serving(short_folder, all_sevens) as path:
        for target, answered in ((f"unix:{path}", True), (f"unix:{path}-absent", False)):
            told.clear()
            connect = example.client.connector(target, DEADLINE_S)
            loop = example.client.OpenLoop(connect, b'{"count": 4}', 4, each)
            loop.run(iter([0.0] * 3 + [1e9]), 0.001, threading.Event())
            assert [latency_s is not None for _, latency_s in told] == [answered] * 3
            assert len({due_s for due_s, _ in told}) == 1  # all were due at one moment


# ---- in containers

Start = Callable[..., str]


@pytest.fixture
def start(
    docker_client: docker.APIClient, inference_image: str, instance: str, cgroup_parent: str
) -> Start:
    """Start a container as strict as one can be; what bears the instance's label is removed."""

    def start(
        command: list[str], binds: list[str] | None = None, cpu_quota: int | None = None
    ) -> str:
        host = docker_client.create_host_config(
            network_mode="none",
            read_only=True,
            cap_drop=["ALL"],
            binds=binds,
            cgroup_parent=cgroup_parent,
            cpu_quota=cpu_quota,
        )
        made = docker_client.create_container(
            inference_image,
            ["python", *command],
            host_config=host,
            labels={"dlsched.instance": instance},
        )
        docker_client.start(made["Id"])
        return str(made["Id"])

    return start


def ended(client: docker.APIClient, container: str) -> tuple[int, str, list[str]]:
    """Exit code, stdout and the lines of stderr of a container, waited for."""
    code = client.wait(container, timeout=int(DEADLINE_S))["StatusCode"]
    stdout = client.logs(container, stderr=False).decode()
    return code, stdout, client.logs(container, stdout=False).decode().splitlines()


@pytest.mark.engine
@pytest.mark.parametrize("model", sorted(CATALOGUE["models"]))
def test_each_model_answers_the_test_images_in_a_container(
    model: str, docker_client: docker.APIClient, start: Start
) -> None:
    once = ["runner.py", "--model", model, "--batch", "90", "--batches", "5"]
    code, _, told = ended(docker_client, start(once))
    assert code == 0, told
    accuracy = float(told[-1].split()[2])
    assert told == [
        "dlsched.report is not here: running without reports",
        f"{model}: accuracy {accuracy:.4f} over 450 images in 5 batches",
    ]
    # Another processor rounds otherwise: one image of 450 may fall on the other side.
    assert accuracy == pytest.approx(CATALOGUE["models"][model]["accuracy"], abs=1.5 / 450)


@pytest.mark.engine
def test_runner_under_a_small_quota_ends_cleanly_on_sigterm(
    docker_client: docker.APIClient, start: Start
) -> None:
    container = start(["runner.py", "--model", "resnet"], cpu_quota=10_000)
    # The loop begins right after this line.
    until(
        lambda: b"without reports" in docker_client.logs(container, stdout=False),
        "the line on its output",
    )
    docker_client.kill(container, "SIGTERM")
    code, _, told = ended(docker_client, container)
    assert (code, told[-1].split()[:2]) == (0, ["resnet:", "accuracy"])


@pytest.mark.engine
def test_server_in_a_container_answers_the_client(
    short_folder: Path, docker_client: docker.APIClient, start: Start
) -> None:
    short_folder.chmod(0o777)
    serve = ["serve.py", "--model", "xception", "--uds", "/sockets/http"]
    container = start(serve, binds=[f"{short_folder}:/sockets"])
    path = str(short_folder / "http")
    until(lambda: healthy(path), "it is healthy")
    ran = subprocess.run(
        [sys.executable, "client.py", f"unix:{path}", "--rate", "40", "--seconds", "1"],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    total = json.loads(ran.stdout.splitlines()[-1])
    assert total["total"] is True
    assert total["answered"] == total["sent"] > 0
    status, answer = ask(path, "POST", "/predict", '{"count": 450}')
    assert (status, answer["accuracy"] > 0.97) == (200, True)
    docker_client.kill(container, "SIGTERM")
    code, _, told = ended(docker_client, container)
    assert code == 0, told


def healthy(path: str) -> bool:
    """Whether the server behind the socket answers /healthz."""
    try:
        return ask(path, "GET", "/healthz")[0] == 200
    except OSError:
        return False
