"""Three brokers of Ottla answer as three Apache Kafkas 4.3.1 did, in scripts of moves, stops and wrong brokers; one
broker answers an administrator as one Apache Kafka did.

`tests/conformance/several_brokers` has the scripts, and asks Kafka.
"""

import copy
import json

import pytest

from tests.conformance.several_brokers.in_memory import ThreeInMemory
from tests.conformance.several_brokers.kept import KEPT, KEPT_OF_ONE, apply_changes
from tests.conformance.several_brokers.library import RECORDINGS, recording, scripts
from tests.conformance.several_brokers.player import make_coordinators, play, play_alone


@pytest.mark.parametrize("name", scripts())
def test_three_brokers_answer_as_recorded_of_three_kafkas(name):
    cluster = ThreeInMemory()
    make_coordinators(cluster)
    _compare(scripts()[name], recording()[name], KEPT.get(name), play(cluster, scripts()[name]))


@pytest.mark.parametrize("name", scripts(1))
def test_one_broker_answers_as_recorded_of_one_kafka(name):
    script = scripts(1)[name]
    _compare(script, recording(1)[name], KEPT_OF_ONE.get(name), play_alone(ThreeInMemory(1), script))


def _compare(script, recorded, kept, got):
    digest, answers = copy.deepcopy(recorded)
    assert digest == script.digest, "the script has changed: record Kafka's answers again (record.py)"
    for number, changes in kept.changes.items() if kept else ():
        answers[number] = apply_changes(answers[number], changes)
    got = json.loads(json.dumps(got))
    for number, (step, want, answer) in enumerate(zip(script.steps, answers, got, strict=True)):
        assert answer == want, f"step {number} {step}"


def test_kept_differences_belong_to_scripts():
    assert scripts().keys() >= KEPT.keys() and scripts(1).keys() >= KEPT_OF_ONE.keys()
    assert all(kept.reason and kept.changes for kept in (*KEPT.values(), *KEPT_OF_ONE.values()))


def test_every_script_is_recorded():
    assert all(recording(brokers).keys() == scripts(brokers).keys() for brokers in RECORDINGS)
