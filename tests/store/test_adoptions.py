"""Records of adoptions and drops."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlsched.store.adoptions import Adopted, Adoptions

FIRST, SECOND, THIRD = "a" * 64, "b" * 64, "c" * 64
WEB = Adopted("web", FIRST, "Web", "shop/web", {"dlsched.weight": "2"})


@pytest.fixture
def adoptions(tmp_path: Path) -> Adoptions:
    """With one that was adopted."""
    made = Adoptions(tmp_path)
    made.adopt(WEB)
    return made


def test_an_adoption_is_found_by_id_under_any_name_also_after_a_restart(
    adoptions: Adoptions, tmp_path: Path
) -> None:
    again = Adoptions(tmp_path)
    assert again.of(FIRST, "renamed", None, {FIRST}) == WEB
    assert again.job("web") == WEB
    assert again.asks(FIRST, ["renamed"], None)


@pytest.mark.parametrize(("name", "service"), [("Web", None), ("web-2", "shop/web")])
def test_the_next_container_follows_once_the_adopted_one_is_gone(
    adoptions: Adoptions, tmp_path: Path, name: str, service: str | None
) -> None:
    assert adoptions.of(SECOND, name, service, {FIRST, SECOND}) is None
    asked = adoptions.of(SECOND, name, service, {SECOND, THIRD})
    assert asked == WEB
    adoptions.follow(asked, SECOND, name)
    assert adoptions.of(THIRD, name, service, {SECOND, THIRD}) is None, "one at a time"
    assert Adoptions(tmp_path).of(SECOND, "any", None, {SECOND}) is not None


def test_another_name_or_service_is_not_followed(adoptions: Adoptions, tmp_path: Path) -> None:
    assert adoptions.of(SECOND, "web-2", "other/web", {SECOND}) is None
    assert not adoptions.asks(SECOND, ["web-2"], None)


def test_a_drop_ends_the_adoption_until_the_next_one(adoptions: Adoptions, tmp_path: Path) -> None:
    adoptions.drop(FIRST, "web")
    again = Adoptions(tmp_path)
    assert again.is_dropped(FIRST)
    assert again.of(FIRST, "Web", "shop/web", {FIRST}) is None
    again.adopt(WEB)
    assert not Adoptions(tmp_path).is_dropped(FIRST)


def test_a_drop_removes_the_adoption_of_that_container_alone(adoptions: Adoptions) -> None:
    adoptions.drop(SECOND, "web")
    assert adoptions.job("web") == WEB
    adoptions.drop(FIRST, "web")
    assert adoptions.job("web") is None


def test_a_container_whose_own_labels_count_again_is_not_dropped(adoptions: Adoptions) -> None:
    adoptions.drop(FIRST, "web")
    adoptions.readmit(FIRST)
    assert not adoptions.is_dropped(FIRST)


def test_drops_of_containers_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    adoptions = Adoptions(tmp_path)
    adoptions.drop(FIRST, "web")
    adoptions.drop(SECOND, "api")
    adoptions.forget({SECOND, THIRD})
    assert not Adoptions(tmp_path).is_dropped(FIRST)
    assert Adoptions(tmp_path).is_dropped(SECOND)


def test_a_drop_that_was_cut_short_counts(adoptions: Adoptions, tmp_path: Path) -> None:
    record = tmp_path / "adopted" / "web.json"
    text = record.read_text()
    adoptions.drop(FIRST, "web")
    record.write_text(text)  # as if the daemon had been killed before it was removed
    again = Adoptions(tmp_path)
    assert again.of(FIRST, "Web", "shop/web", {FIRST}) is None
    assert not again.asks(SECOND, ["Web"], None)
    again.forget({SECOND})
    assert Adoptions(tmp_path).of(SECOND, "Web", None, {SECOND}) is None


def test_a_read_only_one_writes_nothing(tmp_path: Path) -> None:
    Adoptions(tmp_path).adopt(WEB)
    before = sorted(path.read_bytes() for path in tmp_path.rglob("*.json"))
    adoptions = Adoptions(tmp_path, read_only=True)
    asked = adoptions.of(SECOND, "Web", None, {SECOND})
    assert asked is not None
    adoptions.follow(asked, SECOND, "Web")
    adoptions.forget(set())
    assert sorted(path.read_bytes() for path in tmp_path.rglob("*.json")) == before


def test_a_broken_record_is_an_alarm(tmp_path: Path) -> None:
    Adoptions(tmp_path).adopt(WEB)
    (tmp_path / "adopted" / "web.json").write_text("{")
    adoptions = Adoptions(tmp_path)
    assert adoptions.job("web") is None
    (alarm,) = adoptions.alarms
    assert "the container is no longer adopted: run `dlsched adopt` again" in alarm.text
