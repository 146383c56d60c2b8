"""The consumer protocol of KIP-848 is refused with a message that says what to do, so that its clients do not wait."""

import pytest

from ottla.broker.api.table import list_versions
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.testkit.in_memory.wire import message
from tests.memory_broker import MemoryBroker

HEARTBEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT


@pytest.mark.parametrize("version", [0, 1])
def test_consumer_group_heartbeat_is_refused_with_the_setting_to_change(version, caplog):
    assert (HEARTBEAT, 0, 1) in list_versions()
    broker = MemoryBroker()
    asked = message(
        HEARTBEAT, version, group_id="g" * 1000, member_id="m", member_epoch=0, subscribed_topic_names=["t"]
    )
    answer = broker.ask(HEARTBEAT, version, asked)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answer.error_message == "the consumer protocol (KIP-848) is not served: set group.protocol=classic"
    assert (answer.member_id, answer.assignment) == (None, None)
    (line,) = [record.getMessage() for record in caplog.records if "KIP-848" in record.getMessage()]
    assert line.startswith(f"Refused ConsumerGroupHeartbeat of group {'g' * 100} from client client at client:0: ")
    assert line.endswith("set group.protocol=classic")
