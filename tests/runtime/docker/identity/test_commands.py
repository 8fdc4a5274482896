"""What `dlsched adopt`, `drop` and `export` take for whose, by labels, images and ids."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlsched.model.errors import AdoptionRefused
from dlsched.runtime.cgroup.exclusive import ExclusiveClaims
from dlsched.runtime.docker.background import Patience
from dlsched.runtime.docker.engine import EngineRefused
from dlsched.runtime.docker.identity import commands
from dlsched.runtime.docker.identity.commands import AdoptionCommands
from dlsched.runtime.docker.listing import Listings
from dlsched.simulation.clock import VirtualClock
from dlsched.store.adoptions import Adopted, Adoptions
from tests.runtime.docker.fake_engine import FakeEngine, Faulty
from tests.runtime.docker.fake_host import FakeHost
from tests.runtime.docker.identity.test_claims import image
from tests.runtime.docker.making import instance_of
from tests.runtime.docker.test_listing import seen, stranger

pytestmark = pytest.mark.usefixtures("without_threads")

WEB, OTHER, OWN = "a" * 64, "b" * 64, "e" * 64
NUMBER = "com.docker.compose.container-number"
COMPOSE = {
    "com.docker.compose.project": "shop",
    "com.docker.compose.service": "web",
    NUMBER: "1",
    "com.docker.compose.oneoff": "False",
}


class Node:
    """The commands of instance `i` on an engine with containers of strangers."""

    def __init__(self, state: Path) -> None:
        self.engine = Faulty(FakeEngine(state / "host"))
        self.adoptions = Adoptions(state)
        self.host = FakeHost(state / "host").claimable()
        writer: Any = SimpleNamespace(claims=ExclusiveClaims(self.host.proc))
        instance = instance_of(
            self.engine,
            state,
            adoptions=self.adoptions,
            left_out=frozenset({OWN}),
            proc=self.host.proc,
        )
        self.listings = Listings(instance, Patience(0.0, now_s=instance.clock.now_s))
        self.commands = AdoptionCommands(instance, self.listings, writer)

    def run(self, container: str, name: str, labels: Mapping[str, str]) -> None:
        """Somebody starts that container."""
        stranger(self.engine, name, labels, container)

    def jobs(self, changed: str | None = None) -> dict[str, str]:
        """The listed containers' jobs by id, after an event of that one, or of any."""
        self.listings.want(changed)
        seen(self.listings)
        return {container: one.job for container, one in self.listings.last.containers.items()}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_an_adopted_container_is_dropped_and_exported_by_the_short_id_that_ps_shows(
    node: Node,
) -> None:
    node.run(WEB, "Web", {})
    node.commands.adopt(WEB, {"dlsched.weight": "2"})
    assert node.commands.labels(WEB[:12]) == {"dlsched.weight": "2"}
    assert node.commands.drop(WEB[:12]).container_id == WEB
    assert node.adoptions.is_dropped(WEB)
    assert node.jobs() == {}


@pytest.mark.parametrize(
    ("instance", "why"),
    [
        (
            {"dlsched.instance": "other"},
            "the container's label dlsched.instance names instance 'other'",
        ),
        ({}, "without a label dlsched.instance the container belongs to instance default"),
    ],
)
def test_a_container_that_its_labels_give_to_another_instance_is_neither_dropped_nor_adopted(
    node: Node, instance: Mapping[str, str], why: str
) -> None:
    node.run(WEB, "web", {"dlsched.enable": "true", **instance})
    for command in (node.commands.drop, lambda name: node.commands.adopt(name, {})):
        with pytest.raises(AdoptionRefused, match=why):
            command(WEB)
    assert not node.adoptions.any


def test_a_container_that_another_instance_changes_is_not_adopted(node: Node) -> None:
    node.run(WEB, "web", {})
    with closing(ExclusiveClaims(node.host.proc)) as other:
        assert other.take(WEB)
        with pytest.raises(AdoptionRefused, match="web: another dlsched instance on this host has"):
            node.commands.adopt("a" * 64, {"dlsched.weight": "2"})
    assert node.jobs() == {}
    node.commands.adopt("a" * 64, {"dlsched.weight": "2"})
    assert node.jobs() == {WEB: "web"}


def test_labels_of_the_image_do_not_keep_a_container_from_being_adopted_by_command(
    node: Node,
) -> None:
    enable = {"dlsched.enable": "true"}
    node.run(WEB, "web", enable)
    node.engine.answers[f"image image-of-{WEB}"] = image(enable)
    with pytest.raises(AdoptionRefused, match="not adopted, so nothing is dropped"):
        node.commands.drop(WEB)
    node.commands.adopt(WEB, {"dlsched.weight": "2"})
    assert node.jobs() == {WEB: "web"}


def test_a_containers_own_label_forbids_measuring_after_a_command_too(node: Node) -> None:
    node.run(WEB, "web", {"dlsched.wire": "false"})
    latency = {"dlsched.target.latency": "50ms"}
    with pytest.raises(AdoptionRefused, match="forbids to measure the container's sockets"):
        node.commands.adopt(WEB, latency)
    node.commands.adopt(WEB, {**latency, "dlsched.metrics.port": "8000"})
    assert node.jobs() == {WEB: "web"}
    adopted = node.listings.last.containers[WEB].adopted
    assert adopted is not None
    assert adopted.wire is None


def test_a_latency_needs_no_source_but_the_sockets(node: Node) -> None:
    node.run(WEB, "web", {})
    node.commands.adopt(WEB, {"dlsched.target.latency": "50ms", "dlsched.wire": "8000"})
    node.jobs()
    adopted = node.listings.last.containers[WEB].adopted
    assert adopted is not None
    assert (adopted.wire, adopted.sources) == ((8000,), ())


@pytest.mark.parametrize("label", ["dlsched.enable", "dlsched.instance"])
def test_a_command_does_not_ask_for_labels_that_an_export_would_then_contradict(
    node: Node, label: str
) -> None:
    node.run(WEB, "web", {})
    with pytest.raises(
        AdoptionRefused, match="`enable` and `instance` can only be given as labels"
    ):
        node.commands.adopt(WEB, {label: "false", "dlsched.weight": "2"})
    assert not node.adoptions.any


@pytest.mark.parametrize(
    "labels",
    [
        {**COMPOSE, "com.docker.compose.oneoff": "True"},
        {key: value for key, value in COMPOSE.items() if key.endswith(("project", "service"))},
    ],
    ids=["docker compose run", "docker run of an image that Compose built"],
)
def test_only_a_container_that_serves_takes_the_place_of_a_services_adopted_one(
    node: Node, labels: Mapping[str, str]
) -> None:
    node.run(WEB, "shop-web-1", COMPOSE)
    assert node.commands.adopt(WEB, {"dlsched.weight": "2"}).successors == "shop/web"
    assert node.jobs() == {WEB: "shop-web-1"}
    del node.engine.all[WEB]
    node.run(OTHER, "task", labels)
    assert node.jobs() == {}
    node.run("c" * 64, "shop-web-2", COMPOSE)
    assert node.jobs() == {"c" * 64: "shop-web-1"}


def test_other_replicas_are_inspected_only_when_the_adopted_one_is_gone(node: Node) -> None:
    third = "c" * 64
    for number, container in enumerate((WEB, OTHER, third), 1):
        node.run(container, f"shop-web-{number}", {**COMPOSE, NUMBER: str(number)})
    node.commands.adopt(WEB, {"dlsched.weight": "2"})
    assert node.jobs() == {WEB: "shop-web-1"}
    node.engine.asked.clear()
    for _ in range(3):
        assert node.jobs("elsewhere") == {WEB: "shop-web-1"}
    assert node.engine.of("inspect") == []
    del node.engine.all[WEB]
    assert node.jobs("elsewhere") == {OTHER: "shop-web-1"}
    assert node.engine.of("inspect") == [OTHER, third]
    node.jobs("elsewhere")
    node.engine.asked.clear()
    assert node.jobs("elsewhere") == {OTHER: "shop-web-1"}
    assert node.engine.of("inspect") == []
    del node.engine.all[OTHER]
    assert node.jobs("elsewhere") == {third: "shop-web-1"}


def test_a_container_with_labels_does_not_take_the_name_of_an_adopted_job(node: Node) -> None:
    enable = {"dlsched.enable": "true", "dlsched.instance": "i"}
    node.run(WEB, "Web", {})
    node.commands.adopt(WEB, {"dlsched.weight": "2"})
    assert node.jobs() == {WEB: "web"}
    node.run(OTHER, "web", enable)
    assert node.jobs() == {WEB: "web"}


def test_the_drop_of_a_namesake_leaves_the_adoption_of_the_other(tmp_path: Path) -> None:
    adoptions = Adoptions(tmp_path)
    adoptions.adopt(Adopted("web", WEB, "Web"))
    adoptions.drop(OTHER, "web")
    assert adoptions.by_id(WEB) is not None


def test_only_containers_that_no_instance_manages_are_listed_as_others(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = VirtualClock()
    monkeypatch.setattr(
        commands, "time", SimpleNamespace(monotonic=clock.now_s, sleep=clock.advance)
    )
    node.run(WEB, "web", {})
    node.commands.adopt(WEB, {"dlsched.background": "true"})
    node.run(OTHER, "other", {})
    node.run(OWN, "dlsched", {})
    node.run("1" * 64, "labelled", {"dlsched.enable": "true", "dlsched.instance": "i"})
    node.run("2" * 64, "of-another", {"dlsched.enable": "true", "dlsched.instance": "x"})
    node.run("3" * 64, "job-of-another", {"dlsched.instance": "x", "dlsched.job": "j"})
    node.run("4" * 64, "ended", {})
    node.engine.all["4" * 64].status = "exited"
    node.run("5" * 64, "gone", {})
    node.engine.refused[f"inspect {'5' * 64}"] = EngineRefused(404, "No such container")
    node.run("6" * 64, "claimed", {})
    node.jobs()
    with closing(ExclusiveClaims(node.host.proc)) as other:
        assert other.take("6" * 64)
        found = node.commands.found()
    assert [one.name for one in found.others] == ["other"]
    assert [one.name for one in found.adopted] == ["labelled", "web"]


def test_an_adoption_whose_container_is_gone_is_listed(node: Node) -> None:
    node.run(WEB, "web", {})
    node.commands.adopt(WEB, {"dlsched.background": "true"})
    del node.engine.all[WEB]
    node.jobs()
    assert [(one.name, one.image) for one in node.commands.found().adopted] == [("web", "")]
    assert node.commands.drop(WEB).container_id == WEB
    assert node.commands.found().adopted == ()
