"""The tests of librdkafka and franz-go with consumers of the consumer protocol pass against Ottla.

`client_suites.py` also runs them against Apache Kafka.
"""

import pytest
from client_suites import FAILED, OF_THREE, OVERRIDES, RUN, TESTS, lacks
from targets import Ottla, OttlaThree

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(7200)]
FAILING = {
    "0109_auto_create_topics": "it needs KAFKA_PATH, the folder of kafka-acls.sh",
}


@pytest.mark.parametrize("suite", TESTS)
@pytest.mark.parametrize("brokers, target, tests", [(1, Ottla, TESTS), (3, OttlaThree, OF_THREE)], ids=["one", "three"])
def test_suite_of_a_client_passes(suite, brokers, target, tests, tmp_path):
    if reason := lacks(suite):
        pytest.skip(reason)
    broker = target(tmp_path / "ottla", OVERRIDES | {"default.replication.factor": str(brokers)}).start()
    try:
        outcomes = {name: outcome for name, outcome, _ in RUN[suite](broker, tests[suite], tmp_path)}
    finally:
        broker.stop()
    assert len(outcomes) >= len(tests[suite]), f"tests are missing, logs are in {tmp_path}"
    failed = {name for name, outcome in outcomes.items() if outcome == FAILED}
    assert failed <= FAILING.keys(), f"logs are in {tmp_path}"
