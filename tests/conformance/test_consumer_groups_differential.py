"""Consumer groups, answer by answer: the same raw requests to Ottla and to Apache Kafka 4.3.1 and 4.4.0.

The answers of 4.3.1 are recorded (consumer_group_library.py), so that Ottla is held against them without Java. When
asked for, Kafka is asked again, and must answer as recorded; 4.4.0 too, but for the scripts that it changed.
"""

import pytest
from consumer_group_library import CHANGED_IN_4_4_0, KEPT, SCRIPTS, overrides_of, play_all, recording
from targets import ApacheKafka, ApacheKafkaNext, Ottla

BROKERS = {"ottla": Ottla, "apache": ApacheKafka, "apache 4.4.0": ApacheKafkaNext}


@pytest.fixture(scope="module")
def get_answers(tmp_path_factory, request):
    """Ask a broker all the selected scripts when the first answer is wanted."""
    known = {}

    def get(target, name):
        if (target, name) not in known:
            wanted = {
                item.callspec.params["name"]
                for item in request.session.items
                if item.path == request.path and getattr(item, "callspec", None)
            }
            overrides = overrides_of(name)
            broker = BROKERS[target](tmp_path_factory.mktemp(target) / target, overrides).start()
            try:
                names = sorted(each for each in wanted if overrides_of(each) is overrides)
                known.update({(target, each): answers for each, answers in play_all(broker, names).items()})
            finally:
                broker.stop()
        return known[target, name]

    return get


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize(
    "target", ["ottla", pytest.param("apache", marks=[pytest.mark.conformance, pytest.mark.maven])]
)
def test_consumer_groups_are_answered_as_recorded_of_kafka(get_answers, target, name):
    expected, answers = recording()[name], get_answers(target, name)
    if target == "ottla" and name in KEPT:
        expected = [KEPT[name].get(number, answer) for number, answer in enumerate(expected)]
        assert expected != recording()[name], "Kafka answers as Ottla does: this difference is gone"
    differences = [
        f"{step}: {answer}\n{' ' * 4}{wanted}"
        for step, (answer, wanted) in enumerate(zip(answers, expected, strict=False))
        if answer != wanted
    ]
    assert not differences, "\n".join(differences)
    assert len(answers) == len(expected)


def test_every_script_of_consumer_groups_is_recorded():
    assert recording().keys() == SCRIPTS.keys()


@pytest.mark.conformance
@pytest.mark.maven
@pytest.mark.parametrize("name", SCRIPTS)
def test_kafka_4_4_0_answers_as_recorded_but_for_what_it_changed(get_answers, name):
    changed = {each for names in CHANGED_IN_4_4_0.values() for each in names.split()}
    assert (get_answers("apache 4.4.0", name) != recording()[name]) is (name in changed)
