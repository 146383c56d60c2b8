"""Idempotence and transactions over the raw protocol: the same scripts to Ottla and to Apache Kafka 4.3.1 and 4.4.0.

The answers of 4.3.1 are recorded, so that Ottla is held against them without Java. When asked for, Kafka is asked
again, and must answer as recorded. 4.4.0 gives the same answers.
"""

import pytest
from differential.kept import REUSED_AT_LEVEL_2, kept_at
from differential.library import LEVELS, SETTINGS, recorded_lines, recording, scripts
from differential.play import (
    OVERRIDES,
    OttlaInThread,
    kafka_at,
    next_kafka_at,
    ottla_at,
    ottla_refusing_at,
    play_all,
)

BROKERS = {
    "ottla": ottla_at,
    "ottla that refuses reuse": ottla_refusing_at,
    "apache": kafka_at,
    "apache 4.4.0": next_kafka_at,
}
SCRIPTS = {level: {script.name: script for script in scripts(level)} for level in SETTINGS}


@pytest.fixture(scope="session")
def answers(request, tmp_path_factory):
    """Asks a broker all the selected scripts when the first answer is wanted."""
    known = {}

    def get(target, level, name):
        if (target, level) not in known:
            names = {item.callspec.params["name"] for item in request.session.items if _plays(item, target, level)}
            directory = tmp_path_factory.mktemp(f"{target}-{level}")
            known[target, level] = _play(target, level, directory, names | {name})
        return known[target, level][name]

    return get


def _plays(item, target, level):
    callspec = getattr(item, "callspec", None)
    if item.path.name != "test_differential.py" or not callspec:
        return False
    return callspec.params.get("target") == target and callspec.params.get("level") == level


def _play(target, level, directory, names):
    asked = [script for script in scripts(level) if script.name in names]
    counting = [script for script in asked if target == "ottla" and _counts(script)]
    answers = _play_on(BROKERS[target](level)(directory, OVERRIDES), [each for each in asked if each not in counting])
    if counting:
        answers |= _play_on(OttlaInThread(level, directory / "counting"), counting)
    return answers


def _play_on(broker, asked):
    broker.start()
    try:
        return play_all(broker, asked)
    finally:
        broker.stop()


def _counts(script):
    return any(step["op"] == "init_many" for step in script.steps)


def _is_rare(level, script):
    """Not for every day: what counts to the last epoch, and what no level makes a difference to."""
    if level not in LEVELS:
        return False
    if _counts(script) and (level < max(LEVELS) or script.name.startswith(("exhaustion", "marker"))):
        return True
    others = [recorded_lines(other).get(script.name) for other in LEVELS if other > level]
    return any(other and other == recorded_lines(level).get(script.name) for other in others)


def _cases():
    return [
        pytest.param(level, name, marks=[pytest.mark.conformance] if _is_rare(level, script) else [])
        for level in SETTINGS
        for name, script in SCRIPTS[level].items()
    ]


@pytest.mark.parametrize(("level", "name"), _cases())
@pytest.mark.parametrize(
    "target", ["ottla", *(pytest.param(each, marks=pytest.mark.conformance) for each in ("apache", "apache 4.4.0"))]
)
def test_answers_are_those_recorded_of_kafka(answers, target, level, name):
    digest, expected = recording(level)[name]
    assert digest == SCRIPTS[level][name].digest, "the script has changed: record Kafka's answers anew (record.py)"
    kept = kept_at(level)
    if target == "ottla" and name in kept:
        expected = [kept[name].answers.get(number, answer) for number, answer in enumerate(expected)]
        assert expected != recording(level)[name][1], "Kafka answers as Ottla does: this difference is gone"
    for number, (step, want, got) in enumerate(
        zip(SCRIPTS[level][name].all_steps, expected, answers(target, level, name), strict=True)
    ):
        assert got == want, f"step {number} {step}"


@pytest.mark.parametrize("name", REUSED_AT_LEVEL_2)
@pytest.mark.parametrize(("target", "level"), [("ottla that refuses reuse", 2)])
def test_a_reused_sequence_is_refused_and_nothing_else_is_otherwise_than_in_kafka(answers, target, level, name):
    _digest, recorded = recording(level)[name]
    expected = [REUSED_AT_LEVEL_2[name].get(number, answer) for number, answer in enumerate(recorded)]
    assert answers(target, level, name) == expected


@pytest.mark.parametrize("level", LEVELS)
def test_kept_differences_belong_to_scripts(level):
    assert SCRIPTS[level].keys() >= kept_at(level).keys() and all(kept.reason for kept in kept_at(level).values())


@pytest.mark.parametrize("level", SETTINGS)
def test_every_script_is_recorded(level):
    assert recording(level).keys() == SCRIPTS[level].keys()
