"""`adopt`, `drop` and `export` against a daemon that only notes what is asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dlsched.cli import main
from dlsched.cli.commands.adopting import _labels
from tests.cli.conftest import Program
from tests.status_source import FakeSource


def asked(**given: object) -> dict[str, str]:
    names = [
        "latency",
        "quantile",
        "of",
        "max_failed",
        "reach",
        "good_enough",
        "deadline",
        "minimum",
        "maximum",
        "weight",
        "wire",
    ]
    return _labels(metrics=given.pop("metrics", ()), **{**dict.fromkeys(names), **given})  # type: ignore[arg-type]


def test_options_become_labels() -> None:
    given = {"latency": "300ms", "quantile": "p95", "max_failed": "0.05", "weight": "2"}
    assert asked(**given, metrics=("vllm", "port=9000")) == {
        "dlsched.target.latency": "300ms",
        "dlsched.target.max_failed": "0.05",
        "dlsched.target.quantile": "p95",
        "dlsched.weight": "2",
        "dlsched.metrics": "vllm",
        "dlsched.metrics.port": "9000",
    }


@pytest.mark.parametrize(
    ("reach", "good_enough", "deliver"),
    [
        ("accuracy=0.9", None, "0.891"),
        ("val_loss=2", None, "2.02"),
        ("score=10", "8", "8"),
        ("score=10", "score=8", "8"),
    ],
)
def test_good_enough_is_nearly_what_is_to_be_reached(
    reach: str, good_enough: str | None, deliver: str
) -> None:
    assert asked(reach=reach, good_enough=good_enough)["dlsched.target.deliver"] == deliver


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            (),
            "nothing is asked of the container: give --latency, --reach, ",
        ),
        (("--others-background",), "NAME and --others-background exclude each other"),
        (("--background", "--yes"), "--yes goes with --others-background"),
        (("--metrics", "vllm", "--metrics", "fastapi"), "vllm is given already"),
        (("--reach", "map"), "--reach 'map': write METRIC=VALUE"),
        (("--reach", "map=high"), "'high' is not a number"),
        (("--reach", "score=3"), "give --good-enough VALUE too"),
        (("--good-enough", "3"), "--good-enough needs --reach METRIC=VALUE"),
    ],
)
def test_wrong_options_are_one_line(tmp_path: Path, words: tuple[str, ...], line: str) -> None:
    done = CliRunner().invoke(main, ["adopt", "web", "--run-dir", str(tmp_path), *words])
    assert done.exit_code == 2
    assert line in done.output.splitlines()[-1]


@pytest.mark.timed
def test_a_refused_adoption_is_one_line_and_ends_with_1(
    daemon: FakeSource, program: Program
) -> None:
    daemon.refuses = "queued: it does not run (exited)"
    done = program("adopt", "queued", "--weight", "2")
    assert (done.exit_code, done.output) == (1, f"error: {daemon.refuses}\n")


@pytest.mark.timed
@pytest.mark.parametrize(
    ("instance", "whose"), [("default", ""), ("lab", "  'dlsched.instance': 'lab'\n")]
)
def test_an_export_names_the_instance_that_is_to_adopt_it(
    daemon: FakeSource, program: Program, instance: str, whose: str
) -> None:
    daemon.instance, daemon.labels = instance, {"asr": {"dlsched.weight": "2", "a": "$x"}}
    done = program("export", "asr")
    enabled = "labels:\n  'dlsched.enable': 'true'\n"
    own = "  'dlsched.weight': '2'\n  'a': '$$x'\n"
    assert (done.exit_code, done.stdout) == (0, f"{enabled}{whose}{own}")


# ------------------------------------------------------------------ several containers


def found(name: str, cpu_cores: float | None = None) -> dict[str, object]:
    return {"container_id": name, "name": name, "image": "app:1", "cpu_cores": cpu_cores}


TWO = ("digits-vgg", "digits-resnet")
"""Of the jobs of the daemon, which knows no other container."""


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlsched.cli.commands.adopting._has_terminal", lambda: True)


@pytest.mark.timed
def test_all_others_go_into_the_background_after_one_question(
    daemon: FakeSource, program: Program, terminal: None
) -> None:
    daemon.others = [found(name, 0.5) for name in TWO]
    done = program("adopt", "--others-background", input="y\n")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "CONTAINER       CPU  IMAGE",
        "digits-vgg     0.50  app:1",
        "digits-resnet  0.50  app:1",
        "digits-vgg: in the background, as job digits-vgg",
        "digits-resnet: in the background, as job digits-resnet",
    ]
    assert "Adopt 2 containers as background jobs, which get only CPU" in done.stderr
    assert daemon.labels == {name: {"dlsched.background": "true"} for name in TWO}


@pytest.mark.timed
@pytest.mark.parametrize("words", [("adopt", "--others-background"), ("drop", "--all")])
def test_nothing_is_done_after_a_no(
    daemon: FakeSource, program: Program, terminal: None, words: tuple[str, ...]
) -> None:
    daemon.others = daemon.adopted = [found(name) for name in TWO]
    done = program(*words, input="n\n")
    assert (done.exit_code, daemon.asked) == (1, [])
    assert done.stderr.endswith("nothing has been changed\n")


@pytest.mark.timed
@pytest.mark.parametrize("words", [("adopt", "--others-background"), ("drop", "--all")])
def test_without_a_terminal_nothing_is_done_without_yes(
    daemon: FakeSource, program: Program, words: tuple[str, ...]
) -> None:
    daemon.others = daemon.adopted = [found(name) for name in TWO]
    for more in ((), ("--json",)):
        done = program(*words, *more)
        assert (done.exit_code, daemon.asked) == (2, [])
        assert (
            done.stderr
            == "error: nothing has been changed: there is no terminal to ask on; give --yes\n"
        )


@pytest.mark.timed
@pytest.mark.parametrize("words", [("adopt", "--others-background"), ("drop", "--all")])
def test_one_failure_keeps_no_other_container_back(
    daemon: FakeSource, program: Program, words: tuple[str, ...]
) -> None:
    daemon.others = daemon.adopted = [found(name) for name in ("vanished", *TWO)]
    done = program(*words, "--yes")
    assert done.exit_code == 1
    assert done.stderr == "vanished: no container 'vanished'; `docker ps` lists them\n"
    assert daemon.asked == [(words[0], name) for name in TWO]


@pytest.mark.timed
def test_all_are_dropped_and_one_without_its_limits_ends_with_1(
    daemon: FakeSource, program: Program
) -> None:
    daemon.adopted = [found(name) for name in TWO]
    daemon.unrestored["digits-vgg"] = "shares is 2, must be 1024"
    done = program("drop", "--all", "--yes", "--json")
    assert done.exit_code == 1
    rows = json.loads(done.stdout)["containers"]
    assert [(row["name"], row["failure"]) for row in rows] == [
        ("digits-vgg", "shares is 2, must be 1024"),
        ("digits-resnet", None),
    ]


@pytest.mark.timed
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ("adopt", "--others-background"),
            "no other container runs that could be adopted; nothing has been changed",
        ),
        (("drop", "--all"), "no container is adopted; nothing has been changed"),
        (("drop", "--all", "--yes"), "no container is adopted; nothing has been changed"),
    ],
)
def test_no_container_is_no_failure(
    daemon: FakeSource, program: Program, words: tuple[str, ...], line: str
) -> None:
    done = program(*words)
    assert (done.exit_code, done.output) == (0, f"{line}\n")


@pytest.mark.timed
def test_an_adoption_into_the_background_says_what_it_means(
    daemon: FakeSource, program: Program
) -> None:
    done = program("adopt", "digits-vgg", "--background")
    assert done.exit_code == 0, done.output
    assert (
        done.stdout.splitlines()[-1]
        == "  in the background: the container gets only CPU that no other job uses, without "
        "a limit"
    )


def test_a_container_or_all_of_them_must_be_named(program: Program) -> None:
    for words, line in (
        (("adopt", "--latency", "50ms"), "which container? Give NAME, or --others-background"),
        (("drop",), "which container? Give NAME, or --all"),
        (("adopt", "--others-background", "--weight", "2"), "give them with NAME"),
    ):
        done = program(*words)
        assert done.exit_code == 2
        assert done.output.splitlines()[-1].endswith(line)
