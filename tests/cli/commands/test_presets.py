"""`dlsched presets`: a table, and one preset in full, which is a preset file again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from dlsched.cli import main
from dlsched.config.metrics.keys import MetricsKeys
from dlsched.config.metrics.loading import load_presets, package_presets


def run(*arguments: str) -> str:
    done = CliRunner().invoke(main, ["presets", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_the_table_has_every_preset() -> None:
    lines = run().splitlines()
    assert lines[0].split() == ["NAME", "READS", "IMAGE"]
    assert [line.split()[0] for line in lines[1:]] == sorted(package_presets().by_name)


@pytest.mark.parametrize("name", sorted(package_presets().by_name))
def test_one_in_full_is_a_preset_file_with_the_same_sources(name: str, tmp_path: Path) -> None:
    text = run(name)
    (tmp_path / "own.yaml").write_text(text)
    assert list(yaml.safe_load(text)) == [name]
    packaged, own = package_presets(), load_presets(tmp_path)
    via = {"via": "proxy"} if packaged.by_name[name].keys.via else {}
    keys = MetricsKeys(base=name, **via)  # type: ignore[arg-type]
    assert own.by_name[name].file == str(tmp_path / "own.yaml")
    assert own.sources(keys) == packaged.sources(keys)


@pytest.mark.parametrize("name", sorted(package_presets().by_name))
def test_fields_always_come_in_the_same_order(name: str) -> None:
    shown = list(yaml.safe_load(run(name))[name])
    assert shown == sorted(shown, key=list(MetricsKeys.model_fields).index)


def test_json_has_the_fields() -> None:
    told = json.loads(run("triton", "--json"))["presets"]["triton"]
    assert (told["port"], told["unit"], told["per"]) == (8002, "us", "model")


def test_an_unknown_one_is_one_line() -> None:
    done = CliRunner().invoke(main, ["presets", "vlm"])
    assert (done.exit_code, done.output) == (
        1,
        "error: 'vlm' is not a preset; did you mean vllm?\n",
    )
