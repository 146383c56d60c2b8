"""The calls that kafka-ui and Redpanda Console make for their pages, on both brokers: cells of docs/compatibility.md.

Each broker must give what Apache Kafka 4.3.1 gave (`pages.py` records it).
"""

import pytest
from clients import lacks
from pages import PLAYS, RECORDED, TARGETS, BrokerWithContent

pytestmark = [pytest.mark.conformance, pytest.mark.maven]
NAMES = {
    "kafka-ui": "kafka-ui 1.5.0: the calls of its pages, read from its source, by Kafka's Java client",
    "console": "Redpanda Console 3.10.0: the calls of its pages, read from its source, by franz-go",
}


@pytest.fixture(scope="module", params=TARGETS)
def target(request, tmp_path_factory):
    content = BrokerWithContent(request.param, tmp_path_factory.mktemp("pages"))
    yield request.param, content.broker
    content.close()


@pytest.mark.parametrize("application", PLAYS)
def test_each_page_gets_the_recorded_answers(target, application, cell, tmp_path):
    name, broker = target
    cell(name, NAMES[application])
    if application == "console" and (reason := lacks("franz-go")):
        pytest.skip(reason)
    assert PLAYS[application](broker, tmp_path) == (RECORDED / f"{application}.txt").read_text().splitlines()
