"""Idempotence and transactions over the raw protocol: the same scripts to Ottla and to Apache Kafka 4.3.1.

Kafka's answers are recorded, so that Ottla is held against them without Java. When asked for, Kafka is asked again,
and must answer as recorded.
"""

import pytest
from differential.kept import KEPT
from differential.library import recording, scripts
from differential.stage import OVERRIDES, KafkaAtLevel1, play_all
from targets import Ottla

BROKERS = {"ottla": Ottla, "apache": KafkaAtLevel1}
SCRIPTS = {script.name: script for script in scripts()}


@pytest.fixture(scope="session")
def answers(request, tmp_path_factory):
    """Asks a broker all the selected scripts when the first answer is wanted."""
    known = {}

    def get(target, name):
        if target not in known:
            names = {item.callspec.params["name"] for item in request.session.items if _plays(item, target)}
            known[target] = _play(BROKERS[target], tmp_path_factory.mktemp(target), names | {name})
        return known[target][name]

    return get


def _plays(item, target):
    callspec = getattr(item, "callspec", None)
    return item.path.name == "test_differential.py" and callspec and callspec.params.get("target") == target


def _play(target, directory, names):
    broker = target(directory, OVERRIDES).start()
    try:
        return play_all(broker, [script for script in scripts() if script.name in names])
    finally:
        broker.stop()


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("target", ["ottla", pytest.param("apache", marks=pytest.mark.conformance)])
def test_answers_are_those_recorded_of_kafka(answers, target, name):
    digest, expected = recording()[name]
    assert digest == SCRIPTS[name].digest, "the script has changed: record Kafka's answers anew (record.py)"
    if target == "ottla" and name in KEPT:
        expected = [KEPT[name].answers.get(number, answer) for number, answer in enumerate(expected)]
        assert expected != recording()[name][1], "Kafka answers as Ottla does: this difference is gone"
    for number, (step, want, got) in enumerate(
        zip(SCRIPTS[name].all_steps, expected, answers(target, name), strict=True)
    ):
        assert got == want, f"step {number} {step}"


def test_kept_differences_belong_to_scripts():
    assert SCRIPTS.keys() >= KEPT.keys() and all(kept.reason for kept in KEPT.values())


def test_every_script_is_recorded():
    assert recording().keys() == SCRIPTS.keys()
