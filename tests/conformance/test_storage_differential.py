"""Configs, partitions, log ends and deletion, answer by answer: the same requests to Ottla and to Apache Kafka."""

import pytest
from storage_requests import StorageRequests
from storage_scripts import SCRIPTS


def transcript(broker, script):
    requests = StorageRequests(broker.bootstrap, script.__name__.replace("_", "-"))
    try:
        script(requests)
    finally:
        requests.close()
    return requests.lines


@pytest.mark.conformance
@pytest.mark.maven
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_ottla_answers_as_kafka_does(ensemble, script):
    ours, theirs = (transcript(ensemble.broker(target), script) for target in ("ottla", "apache"))
    differences = [
        (step, our_line, their_line)
        for step, (our_line, their_line) in enumerate(zip(ours, theirs, strict=True))
        if our_line != their_line
    ]
    assert not differences, "\n".join(f"{step}: {us}\n{' ' * 4}{they}" for step, us, they in differences)
