"""Three Apache Kafkas answer as recorded. `tests/api/test_three_kafkas.py` compares Ottla with the recording."""

import json

import pytest

from tests.conformance.several_brokers.kafkas import Kafkas
from tests.conformance.several_brokers.library import recording, scripts
from tests.conformance.several_brokers.player import make_coordinators, play

pytestmark = [pytest.mark.conformance, pytest.mark.maven, pytest.mark.slow]


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory):
    with Kafkas(tmp_path_factory.mktemp("kafkas")) as kafkas:
        make_coordinators(kafkas)
        yield kafkas


@pytest.mark.parametrize("name", scripts())
def test_three_kafkas_answer_as_recorded(kafkas, name):
    script, (_digest, answers) = scripts()[name], recording()[name]
    got = json.loads(json.dumps(play(kafkas, script)))
    for number, (step, want, answer) in enumerate(zip(script.steps, answers, got, strict=True)):
        assert answer == want, f"step {number} {step}"
