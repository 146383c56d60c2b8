"""Topic configs that change while the broker runs take effect at once, for the next writes and for deletion."""

import sys
import time
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewPartitions, NewTopic

sys.path.insert(0, str(Path(__file__).parents[2] / "conformance"))

from targets import Ottla
from test_written_files import dump, written

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch_header import iter_batches
from ottla.protocol.compression import NAMES
from ottla.protocol.requests import codec
from ottla.wire.connection import BlockingConnection
from tests.timeout import EVENT_TIMEOUT_S

CODECS = {"uncompressed": 0} | {name: codec for codec, name in NAMES.items() if codec}
OVERRIDES = {"log.retention.check.interval.ms": "200", "auto.create.topics.enable": "false"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    broker = Ottla(tmp_path_factory.mktemp("configs-act"), OVERRIDES).start()
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def admin(broker):
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield admin
    admin.close()


@pytest.fixture
def topic(admin, request):
    name = request.node.name.replace("[", "-").replace("]", "")
    admin.create_topics([NewTopic(name, 1, 1)])
    return name


def alter(admin, topic, **configs):
    changed = {key.replace("_", "."): value for key, value in configs.items()}
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, changed)])


def send(broker, topic, values, **more):
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, **more)
    sent = [producer.send(topic, value=value, key=b"k", headers=[("h", b"1")]) for value in values]
    producer.flush()
    producer.close()
    return [future.get(EVENT_TIMEOUT_S) for future in sent]


def read(broker, topic, count):
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, consumer_timeout_ms=EVENT_TIMEOUT_S * 1000)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    found = [next(consumer) for _ in range(count)]
    consumer.close()
    return found


def batches(broker, topic):
    return [
        header for file in written(broker.data_dir, topic, {".log"}) for _, header in iter_batches(file.read_bytes())
    ]


def wait_until(is_so):
    deadline = time.monotonic() + EVENT_TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("codec", CODECS)
def test_batches_are_kept_in_the_codec_of_the_topic(broker, admin, topic, codec):
    values = [b"value %d " % number * 50 for number in range(20)]
    send(broker, topic, values, compression_type="gzip" if codec != "gzip" else None, linger_ms=50)
    alter(admin, topic, compression_type=codec)
    send(broker, topic, values, compression_type="gzip" if codec != "gzip" else None, linger_ms=50)
    found = read(broker, topic, 40)
    assert [record.value for record in found] == values + values
    assert {(record.key, tuple(record.headers)) for record in found} == {(b"k", (("h", b"1"),))}
    assert {header.compression for header in batches(broker, topic) if header.base_offset >= 20} == {CODECS[codec]}
    assert CODECS[codec] not in {header.compression for header in batches(broker, topic) if header.base_offset < 20}


def test_timestamps_are_those_of_the_broker_from_the_change_on(broker, admin, topic):
    alter(admin, topic, retention_ms="-1")
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    producer.send(topic, b"then", timestamp_ms=1_000).get(EVENT_TIMEOUT_S)
    alter(admin, topic, retention_ms="-1", message_timestamp_type="LogAppendTime")
    producer.send(topic, b"now", timestamp_ms=1_000).get(EVENT_TIMEOUT_S)
    producer.close()
    then, now = read(broker, topic, 2)
    assert (then.timestamp, then.timestamp_type) == (1_000, 0)
    assert now.timestamp > 1_600_000_000_000
    assert now.timestamp_type == 1


def test_largest_message_changes_both_ways(broker, admin, topic):
    alter(admin, topic, max_message_bytes="500")
    with pytest.raises(Exception, match="MessageSizeTooLarge"):
        send(broker, topic, [b"x" * 600])
    alter(admin, topic, max_message_bytes="5000")
    assert send(broker, topic, [b"x" * 600])[0].offset == 0


def test_configs_of_the_broker_act_on_the_topics_that_inherit_them(broker, admin, topic):
    """At once, at either level, and on open logs; a topic's own value has precedence."""
    own = f"{topic}-own"
    admin.create_topics([NewTopic(own, 1, 1, topic_configs={"message.timestamp.type": "CreateTime"})])

    def set_by(resource, value):
        """Set a config through the protocol: the library's client does not support cluster defaults."""
        row = codec.request_class(ApiKey.ALTER_CONFIGS).AlterConfigsResource
        configs = [row.AlterableConfig(name="log.message.timestamp.type", value=value)] if value else []
        asked = row(resource_type=ConfigResourceType.BROKER, resource_name=resource, configs=configs)
        host, _, port = broker.bootstrap.rpartition(":")
        with BlockingConnection(host, int(port), timeout_s=EVENT_TIMEOUT_S) as connection:
            message = codec.request_class(ApiKey.ALTER_CONFIGS)(resources=[asked], validate_only=False)
            assert connection.send(message, 2).responses[0].error_code == 0

    def stamps(name):
        send(broker, name, [b"v"])
        return "LogAppendTime" if batches(broker, name)[-1].is_log_append_time else "CreateTime"

    assert stamps(topic) == stamps(own) == "CreateTime"
    set_by("", "LogAppendTime")
    wait_until(lambda: stamps(topic) == "LogAppendTime")
    assert stamps(own) == "CreateTime"
    set_by("1", "CreateTime")
    wait_until(lambda: stamps(topic) == "CreateTime")
    set_by("1", "")
    wait_until(lambda: stamps(topic) == "LogAppendTime")
    set_by("", "")
    wait_until(lambda: stamps(topic) == "CreateTime")


def test_expired_segments_are_deleted_soon_after_a_retention_change(broker, admin, topic):
    send(broker, topic, [b"old"])
    alter(admin, topic, retention_ms="1", file_delete_delay_ms="0")
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap)
    partition = TopicPartition(topic, 0)
    wait_until(lambda: consumer.beginning_offsets([partition])[partition] == 1)
    consumer.close()
    wait_until(lambda: [file.name for file in written(broker.data_dir, topic, {".log"})] == [f"{1:020d}.log"])
    wait_until(lambda: not list(broker.data_dir.glob(f"{topic}-0/*.deleted")))
    assert send(broker, topic, [b"new"])[0].offset == 1


def test_segments_roll_by_time_and_delete_records_removes_them(broker, admin, topic):
    alter(admin, topic, segment_ms="1", segment_jitter_ms="1")
    for number in range(3):
        send(broker, topic, [b"%d" % number])
        time.sleep(0.01)
    assert len(written(broker.data_dir, topic, {".log"})) == 3
    partition = TopicPartition(topic, 0)
    admin.delete_records({partition: 2})
    assert [record.value for record in read(broker, topic, 1)] == [b"2"]
    wait_until(lambda: len(written(broker.data_dir, topic, {".log"})) == 1)


def test_partitions_are_added_under_clients(broker, admin, topic):
    admin.create_partitions({topic: NewPartitions(3)})
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    assert producer.send(topic, b"there", partition=2).get(EVENT_TIMEOUT_S).partition == 2
    producer.close()


@pytest.mark.slow
@pytest.mark.maven
def test_kafka_reads_what_was_recompressed_and_rolled(broker, admin, topic):
    """Check its own files and those of the tests above. Runs last."""
    alter(admin, topic, compression_type="zstd")
    send(broker, topic, [b"recompressed"])
    files = [
        file for file in written(broker.data_dir, "test_*", {".log", ".index", ".timeindex"}) if file.stat().st_size
    ]
    assert "compresscodec: zstd" in dump(broker.data_dir, files, "--deep-iteration")
