"""Three brokers of Ottla answer as three Apache Kafkas 4.3.1 did, in scripts of moves, stops and wrong brokers.

`tests/conformance/several_brokers` has the scripts, and asks Kafka.
"""

import copy
import json

import pytest

from tests.conformance.several_brokers.in_memory import ThreeInMemory
from tests.conformance.several_brokers.kept import KEPT, apply_changes
from tests.conformance.several_brokers.library import recording, scripts
from tests.conformance.several_brokers.player import make_coordinators, play


@pytest.mark.parametrize("name", scripts())
def test_three_brokers_answer_as_recorded_of_three_kafkas(name):
    script, (digest, answers) = scripts()[name], copy.deepcopy(recording()[name])
    assert digest == script.digest, "the script has changed: record Kafka's answers again (record.py)"
    for number, changes in KEPT[name].changes.items() if name in KEPT else ():
        answers[number] = apply_changes(answers[number], changes)
    cluster = ThreeInMemory()
    make_coordinators(cluster)
    got = json.loads(json.dumps(play(cluster, script)))
    for number, (step, want, answer) in enumerate(zip(script.steps, answers, got, strict=True)):
        assert answer == want, f"step {number} {step}"


def test_kept_differences_belong_to_scripts():
    assert scripts().keys() >= KEPT.keys() and all(kept.reason and kept.changes for kept in KEPT.values())


def test_every_script_is_recorded():
    assert recording().keys() == scripts().keys()
