"""Conversion of a case into a log directory and properties with which Apache Kafka starts. free

It works as `ottla graduate`, for a Kafka whose properties name the voters: the directory contains no addresses.
"""

from typing import Final

from ottla.broker.cluster.image import MetadataImage
from ottla.broker.cluster.kraft import BOOTSTRAP
from ottla.broker.cluster.kraft_bootstrap import bootstrap_records
from ottla.broker.cluster.kraft_log import METADATA_TOPIC
from ottla.protocol import checkpoints
from ottla.protocol.internal_topics.kraft_records import build_snapshot
from ottla.protocol.internal_topics.metadata_records import encode_metadata_record
from ottla.protocol.java.properties import read_properties

NODE_ID: Final = 1
# The highest version of Apache Kafka 4.0, so that every 4.x accepts it.
METADATA_VERSION: Final = 25
PROPERTIES: Final = """\
# Both take this file, in its directory: `ottla serve server.properties` and Apache Kafka's kafka-server-start.sh.
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
advertised.listeners=PLAINTEXT://localhost:9092
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs=data
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
# The case is from the past: what is open stays open, and no id or offset expires while a broker runs.
transaction.abort.timed.out.transaction.cleanup.interval.ms=2147483647
transaction.remove.expired.transaction.cleanup.interval.ms=2147483647
offsets.retention.minutes=2147483647
"""


def as_kafka_keeps_it(files: dict[str, bytes], image: MetadataImage, now_ms: int) -> dict[str, bytes]:
    """Return {path: content}, with the metadata as the first records of a quorum that has not started."""
    kept = {path: content for path, content in files.items() if not path.startswith(f"{METADATA_TOPIC}-0/")}
    kept.pop(checkpoints.LOCK, None)
    identity = read_properties(files[checkpoints.META_PROPERTIES])
    records = bootstrap_records(image, NODE_ID, checkpoints.decode_id(identity["directory.id"]), METADATA_VERSION)
    kept[BOOTSTRAP] = build_snapshot([], [encode_metadata_record(record) for record in records], now_ms)
    for name in (checkpoints.RECOVERY_POINTS, checkpoints.LOG_STARTS, checkpoints.HIGH_WATERMARKS):
        if name in kept:
            offsets = checkpoints.decode_offsets(kept[name])
            offsets.pop((METADATA_TOPIC, 0), None)
            kept[name] = checkpoints.encode_offsets(offsets)
    return kept
