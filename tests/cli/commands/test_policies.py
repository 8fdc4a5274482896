"""The list of policies, and where their parameters' words come from."""

from __future__ import annotations

import json

from dlsched.cluster.core.registry import CLUSTER
from dlsched.policies.registry import NODE, known
from tests.cli.conftest import Program


def test_each_has_its_first_line(program: Program) -> None:
    node, cluster = program("policies").stdout.split("\n\n")
    several, *rest = cluster.splitlines()
    assert several == "These need several hosts: they place and move jobs between them."
    for lines, group in ((node.splitlines(), NODE), (rest, CLUSTER)):
        assert [line.split(maxsplit=1) for line in lines] == [
            list(one) for one in known(group).items()
        ]


def test_what_it_divides_is_told(program: Program) -> None:
    node = program("policies").stdout.partition("\n\n")[0]
    lines = dict(line.split(maxsplit=1) for line in node.splitlines())
    assert lines["fair"].endswith(" [CPU and shared GPUs]")
    assert lines["none"].endswith(" [CPU alone]")


def test_verbose_tells_parameters_with_defaults_and_words(program: Program) -> None:
    found = json.loads(program("policies", "--verbose", "-o", "json").stdout)["policies"]
    parameters = {one["name"]: one for one in found["dqoes-published"]["parameters"]}
    assert parameters["beta"]["default"] == 0.10
    assert parameters["interval_s"]["help"].startswith("Seconds between decisions")
    # A docstring over two lines comes as one.
    assert "\n" not in parameters["floor_ratio"]["help"]
    assert "    beta = 0.1\n" in program("policies", "--verbose").stdout
    assert json.loads(program("policies", "--json").stdout)["policies"] == found, "always whole"


def test_every_parameter_of_every_policy_is_explained(program: Program) -> None:
    found = json.loads(program("policies", "--verbose", "-o", "json").stdout)
    bare = [
        f"{name}.{one['name']}"
        for name, policy in [*found["policies"].items(), *found["cluster_policies"].items()]
        for one in policy["parameters"]
        if not one["help"]
    ]
    assert bare == []
