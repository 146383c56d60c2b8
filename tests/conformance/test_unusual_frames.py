"""Apache Kafka 4.3.1 gives the recorded answers to the table of odd frames."""

import json

import pytest

from tests.conformance.frames.record import ask_kafka
from tests.unusual_frames import answer_of, read_recording


@pytest.mark.conformance
@pytest.mark.maven
def test_kafka_answers_as_it_was_recorded(tmp_path):
    table = read_recording()
    said = [answer_of(json.dumps(one)) for one in ask_kafka([answer.row for answer in table], tmp_path / "kafka")]
    assert [(one, other) for one, other in zip(said, table, strict=True) if one != other] == []
