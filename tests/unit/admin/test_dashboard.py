"""The dashboard for Grafana: every panel queries metrics that exist."""

import json
import re
from pathlib import Path

from ottla.admin.metrics.families import families

DASHBOARD = Path(__file__).parents[3] / "docs" / "grafana" / "ottla.json"
NAME = re.compile(r"\b((?:kafka|ottla|process)_\w+)")


def panels():
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def test_every_panel_queries_existing_series_and_labels():
    known = {f"{each.name}{suffix}": {*each.labels, "job", "le"} for each in families() for suffix in each.suffixes}
    for panel in panels():
        for target in panel["targets"]:
            assert {*NAME.findall(target["expr"])} <= {*known}, panel["title"]
            for name, matchers in re.findall(r"(\w+)\{([^}]*)\}", target["expr"]):
                assert {*re.findall(r"(\w+)[=!]", matchers)} <= known[name], panel["title"]


def test_counters_are_queried_as_rate_or_increase():
    counters = {each.name for each in families() if each.kind == "counter"}
    for panel in panels():
        for target in panel["targets"]:
            for name in counters & {*NAME.findall(target["expr"])}:
                assert re.search(rf"(rate|increase)\({name}\{{", target["expr"]), panel["title"]


def test_panels_do_not_overlap():
    taken = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells


def test_every_ottla_metric_is_on_a_panel_except_the_listed_ones():
    shown = {name for panel in panels() for target in panel["targets"] for name in NAME.findall(target["expr"])}
    unseen = {each.name for each in families() if each.name.startswith("ottla_")} - {
        re.sub(r"_(bucket|sum|count)$", "", name) for name in shown
    }
    assert unseen == {
        "ottla_build_info",
        "ottla_memory_limit_bytes",
        "ottla_metrics_left_out",
        "ottla_partition_open_transactions",
        "ottla_sync_failures_total",
        "ottla_transactional_ids",
        "ottla_volume_bytes",
        "ottla_waits_total",
    }
