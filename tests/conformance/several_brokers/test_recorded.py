"""Three Apache Kafkas, and one, answer as recorded.

`tests/api/test_three_kafkas.py` compares Ottla with the recording.
"""

import json

import pytest

from tests.conformance.several_brokers.kafkas import Kafkas, OneKafka
from tests.conformance.several_brokers.library import recording, scripts
from tests.conformance.several_brokers.player import make_coordinators, play, play_alone

pytestmark = [pytest.mark.conformance, pytest.mark.maven, pytest.mark.slow]


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory):
    with Kafkas(tmp_path_factory.mktemp("kafkas")) as kafkas:
        make_coordinators(kafkas)
        yield kafkas


@pytest.fixture(scope="module")
def one_kafka(tmp_path_factory):
    with OneKafka(tmp_path_factory.mktemp("kafka")) as kafka:
        yield kafka


@pytest.mark.parametrize("name", scripts())
def test_three_kafkas_answer_as_recorded(kafkas, name):
    _compare(scripts()[name], recording()[name], play(kafkas, scripts()[name]))


@pytest.mark.parametrize("name", scripts(1))
def test_one_kafka_answers_as_recorded(one_kafka, name):
    _compare(scripts(1)[name], recording(1)[name], play_alone(one_kafka, scripts(1)[name]))


def _compare(script, recorded, got):
    _digest, answers = recorded
    got = json.loads(json.dumps(got))
    for number, (step, want, answer) in enumerate(zip(script.steps, answers, got, strict=True)):
        assert answer == want, f"step {number} {step}"
