"""What one container leaves to another."""

from __future__ import annotations

from typing import Any

import pytest

from dlsched.runtime.docker.identity.heritage import Heritage, heritage_of

BODY = {
    "Id": "first",
    "Image": "sha256:1234",
    "Config": {"Hostname": "first", "Labels": {}},
    "HostConfig": {"NetworkMode": "default"},
    "Mounts": [
        {"Type": "bind", "Source": "/data", "Destination": "/data"},
        {"Type": "volume", "Name": "models", "Destination": "/models"},
        {"Type": "volume", "Name": "f00d", "Destination": "/scratch"},
    ],
}


def with_(**changes: Any) -> dict[str, Any]:
    return {**BODY, **changes}


def create_body(*mounts: dict[str, Any], **host: Any) -> dict[str, Any]:
    return {"HostConfig": {"Mounts": list(mounts), "Tmpfs": {}, **host}}


def test_the_origin_is_the_first_container_however_often_it_was_moved() -> None:
    assert heritage_of(BODY).origin == "first"
    third = with_(Id="third", Config={"Hostname": "x", "Labels": {"dlsched.origin": "first"}})
    assert heritage_of(third).origin == "first"


@pytest.mark.parametrize(
    ("mode", "name"),
    [("default", "first"), ("none", "first"), ("host", None), ("container:abc", None)],
)
def test_the_host_name_goes_over_where_it_is_its_own(mode: str, name: str | None) -> None:
    body = create_body()
    heritage_of(with_(HostConfig={"NetworkMode": mode})).give(body)
    assert body.get("Hostname") == name


def test_volumes_that_have_no_name_in_the_spec_go_over() -> None:
    by_name = {"Type": "volume", "Source": "other", "Target": "/models", "ReadOnly": True}
    nameless = {"Type": "volume", "Source": "", "Target": "/scratch"}
    body = create_body(by_name, nameless)
    heritage_of(BODY).give(body)
    taken_over = {"Type": "volume", "Source": "f00d", "Target": "/scratch"}
    assert body["HostConfig"]["Mounts"] == [by_name, taken_over]


def test_what_the_spec_mounts_there_comes_first() -> None:
    heritage = Heritage("first", "image", None, {"/a": "one", "/b": "two", "/c": "three"})
    bind = {"Type": "bind", "Source": "/host", "Target": "/a"}
    body = create_body(bind, Binds=["/host:/b:z"], Tmpfs={"/c": ""})
    heritage.give(body)
    assert body["HostConfig"]["Mounts"] == [bind]
