"""A cluster's hosts on the page of its manager: what is shown, what is old, what is hostile."""

from __future__ import annotations

import re

import pytest

from tests.browser.conftest import Open
from tests.browser.driver import expect
from tests.browser.scenes import MARKUP

pytestmark = [pytest.mark.browser]


def test_nodes_jobs_moves_and_the_queue(visit: Open) -> None:
    one = visit("cluster")
    one.state("hosts", "4")
    one.shows("#hosts-note", "2 of 4 hosts ready, 11 jobs, 1 move under way, 1 waiting", "adaptive")
    nodes = one.page.locator("#nodes tbody tr")
    # Two nodes have the same host's name.
    assert nodes.locator("th").all_inner_texts() == ["gpu-1", "gpu-2", "n3", "n4"]
    assert [node.all_inner_texts() for node in (nodes.nth(at).locator("td") for at in (0, 1))] == [
        ["●ready", "9", "7.8 / 8", "14 min", "2 s old"],
        ["◆silent", "0", "?", "?", "none yet"],
    ]
    jobs = one.page.locator("#cluster-jobs tbody tr")
    assert jobs.nth(0).locator("th, td").all_inner_texts() == [
        *("resnet", "gpu-1 → n3", "↷moving, 12 s", "accuracy 0.9, 0.97"),
        *("0.71", "2.00", "1", "gains 190 s"),
    ]
    assert jobs.nth(1).locator("th").inner_text() == "vit"
    assert jobs.count() == 11
    one.shows("#queue tbody", "gpu-1: the job's floor is 64.00 cores, the node has 8.00")
    one.shows("#hosts-lines", "a.yaml:3:9: weight: 'no' is not a number", "no report: refu")
    expect(one.page.locator("#hosts-trouble")).to_be_hidden()
    assert one.page.locator("#hosts-card").get_attribute("data-old") == "false"


def test_a_key_leads_to_the_hosts_and_they_scroll_by_keys(visit: Open) -> None:
    one = visit("cluster-many")
    one.state("hosts", "240")
    one.press("h")
    expect(one.page.locator("#hosts-scroll")).to_be_focused()
    selected = one.now("selected")
    one.press("ArrowDown")
    expect(one.page.locator("#hosts-scroll")).not_to_have_js_property("scrollTop", 0)
    assert one.now("selected") == selected, "no job of this host"
    one.press("Tab", "Tab")
    expect(one.page.get_by_role("region", name="Jobs of the cluster")).to_be_focused()
    for table, more in (("#nodes", 40), ("#cluster-jobs", 50)):
        assert one.page.locator(f"{table} tbody tr").count() == 201
        one.shows(
            f"{table} tbody tr:last-child",
            f"{more} more rows not shown here: run dlsched cluster status",
        )
    assert one.page.locator("#hosts-lines li").count() == 201
    one.shows("#hosts-lines li:last-child", "more lines not shown here: run dlsched cluster status")


def test_without_a_cluster_there_is_no_section(visit: Open) -> None:
    one = visit("example")
    one.state("hosts", "none")
    expect(one.page.locator("#hosts-card")).to_be_hidden()
    one.press("h")
    assert one.now("selected") == "None"


def test_a_controller_that_ended_and_one_that_does_not_lead_say_so(visit: Open) -> None:
    one = visit("cluster-old")
    one.state("hosts", "0")
    one.shows(
        "#hosts-trouble",
        re.compile("This view of the cluster is 10.* min old: the controller on this host has"),
        "Manager n1 leads, and shows more than this one, n2.",
    )
    expect(one.page.locator("#hosts-note")).to_have_text("policy adaptive")
    assert one.page.locator("#hosts-card").get_attribute("data-old") == "true"


def test_markup_of_another_host_is_text(visit: Open) -> None:
    one = visit("cluster-hostile")
    one.state("hosts", "4")
    for selector in ("#nodes", "#cluster-jobs", "#queue", "#hosts-lines", "#hosts-note"):
        one.shows(selector, MARKUP)
    assert one.page.locator("img").count() == 0
    assert one.page.locator("body").get_attribute("data-owned") is None
