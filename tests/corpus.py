"""A broker on the log directory of a case, with its answers in the form of case.json; the digests of all cases."""

import hashlib
import json
import time
from base64 import b64decode
from pathlib import Path

from kafka import KafkaConsumer, TopicPartition

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.batch_header import iter_batches
from ottla.protocol.errors import ErrorCode as E
from ottla.testkit.corpus.case import files_of
from ottla.testkit.corpus.catalogue import CASES
from ottla.testkit.in_memory.wire import message
from ottla.wire.connection import BlockingConnection
from tests.timeout import EVENT_TIMEOUT_S

DIGESTS = Path(__file__).parent / "data" / "corpus.json"
PRODUCER_FIELDS = (
    "producer_id",
    "producer_epoch",
    "last_sequence",
    "last_timestamp",
    "coordinator_epoch",
    "current_txn_start_offset",
)
EMPTY_BATCHES = {"compacted-transactions-later": (4,)}
"""Offsets of batches that are there without a record."""
KEEPING = {
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 2**31 - 1,
    "transaction_remove_expired_transaction_cleanup_interval_ms": 2**31 - 1,
    "offsets_retention_minutes": 2**31 - 1,
}
"""As in the server.properties of a case."""
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
EARLIEST, LATEST = -2, -1


def digest(files):
    """Return the SHA-256 of every path and every byte."""
    whole = hashlib.sha256()
    for path, content in sorted(files.items()):
        whole.update(f"{path} {len(content)}\n".encode() + content)
    return whole.hexdigest()


def write_files(files, directory):
    """Put {path: content} into a directory."""
    for path, content in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(content)
    return directory


def expected_of(files):
    return json.loads(files["case.json"])


def is_internal(partition):
    return partition["topic"].startswith("__")


def raw(shown):
    """Return the bytes that a case.json encodes."""
    if shown is None:
        return None
    return b64decode(shown["base64"]) if isinstance(shown, dict) else shown.encode()


def records_of(partition, isolation):
    """[(offset, timestamp type, timestamp, key, value, headers)] that a consumer of it gets, as case.json says."""
    offsets = set(partition[isolation])
    return [
        (
            row["offset"],
            TIMESTAMP_TYPES.index(row["timestamp_type"]),
            row["timestamp"],
            raw(row["key"]),
            raw(row["value"]),
            [(header["key"], raw(header["value"])) for header in row["headers"]],
        )
        for row in partition["records"]
        if row["offset"] in offsets
    ]


def aborted_of(partition):
    """[(first offset, producer id)] of the aborted transactions of which a batch is left, as case.json says.

    An index goes on to name those that compaction has emptied; the segments alone do not tell of them.
    """
    gone = {
        offset
        for gap in partition["gaps"]
        if gap["why"] == "compacted"
        for offset in range(gap["first_offset"], gap["last_offset"] + 1)
    }
    told = [(row["first_offset"], row["producer_id"]) for row in partition["aborted_transactions"]]
    empty = EMPTY_BATCHES.get(partition["topic"], ())
    return [entry for entry in told if entry[0] not in gone or entry[0] in empty]


def having_open(producers):
    """Return the producers with an open transaction: a broker expires other old ones, at or soon after its start."""
    opened = [each for each in producers if each["current_txn_start_offset"] >= 0]
    return sorted(opened, key=lambda each: each["producer_id"])


class Asked:
    """A connection that repeats its requests until a coordinator answers."""

    def __init__(self, bootstrap):
        host, _, port = bootstrap.rpartition(":")
        self._connection = BlockingConnection(host, int(port), timeout_s=EVENT_TIMEOUT_S)

    def call(self, key, version, **fields):
        return self._connection.send(message(key, version, **fields), version)

    def patiently(self, errors_of, key, version, **fields):
        deadline = time.monotonic() + EVENT_TIMEOUT_S
        while True:
            reply = self.call(key, version, **fields)
            errors = {E(code) for code in errors_of(reply)} - {E.NONE}
            if not errors:
                return reply
            assert all(error.retriable for error in errors) and time.monotonic() < deadline, errors
            time.sleep(0.05)

    def list_offset(self, topic, partition, timestamp, committed):
        rows = [{"partition_index": partition, "current_leader_epoch": -1, "timestamp": timestamp}]
        asked = {"replica_id": -1, "isolation_level": int(committed), "topics": [{"name": topic, "partitions": rows}]}
        reply = self.patiently(lambda r: [r.topics[0].partitions[0].error_code], K.LIST_OFFSETS, 5, **asked)
        return reply.topics[0].partitions[0].offset

    def fetch(self, topic, partition, offset):
        rows = [{"partition": partition, "current_leader_epoch": -1, "fetch_offset": offset}]
        rows[0] |= {"last_fetched_epoch": -1, "log_start_offset": -1, "partition_max_bytes": 1 << 20}
        asked = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "isolation_level": 1}
        asked |= {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": ""}
        reply = self.call(K.FETCH, 12, **asked, topics=[{"topic": topic, "partitions": rows}])
        (row,) = reply.responses[0].partitions
        assert E(row.error_code) is E.NONE
        return row

    def producers(self, topic, partition):
        topics = [{"name": topic, "partition_indexes": [partition]}]
        (row,) = self.call(K.DESCRIBE_PRODUCERS, 0, topics=topics).topics[0].partitions
        assert E(row.error_code) is E.NONE
        return having_open({name: getattr(each, name) for name in PRODUCER_FIELDS} for each in row.active_producers)

    def transactions(self, names):
        if not names:
            return []
        reply = self.patiently(
            lambda r: [row.error_code for row in r.transaction_states],
            K.DESCRIBE_TRANSACTIONS,
            0,
            transactional_ids=names,
        )
        return [
            {
                "transactional_id": row.transactional_id,
                "state": row.transaction_state,
                "producer_id": row.producer_id,
                "producer_epoch": row.producer_epoch,
            }
            for row in reply.transaction_states
        ]

    def group_offset(self, row):
        """As OffsetFetch answers: the committed offset, and whether asking for a stable one is refused."""
        topics = [{"name": row["topic"], "partition_indexes": [row["partition"]]}]

        def errors(reply):
            return {reply.error_code, *(each.error_code for each in reply.topics[0].partitions)} - {
                E.UNSTABLE_OFFSET_COMMIT
            }

        asked = {"group_id": row["group"], "topics": topics}
        reply = self.patiently(errors, K.OFFSET_FETCH, 7, **asked, require_stable=False)
        stable = self.patiently(errors, K.OFFSET_FETCH, 7, **asked, require_stable=True)
        offset = reply.topics[0].partitions[0].committed_offset
        unstable = stable.topics[0].partitions[0].error_code == E.UNSTABLE_OFFSET_COMMIT
        return row | {"offset": None if offset < 0 else offset, "unstable": unstable}

    def partition(self, topic, index):
        """Return the leader's answers about a partition, without the records."""
        start = self.list_offset(topic, index, EARLIEST, committed=False)
        stable = self.list_offset(topic, index, LATEST, committed=True)
        high = self.list_offset(topic, index, LATEST, committed=False)
        aborted, offset, told = set(), start, self.fetch(topic, index, start)
        while True:
            assert (told.last_stable_offset, told.high_watermark, told.log_start_offset) == (stable, high, start)
            aborted |= {(row.first_offset, row.producer_id) for row in told.aborted_transactions or ()}
            ends = [header.next_offset for _, header in iter_batches(bytes(told.records or b""))]
            if not ends or ends[-1] >= stable:
                break
            offset = ends[-1]
            told = self.fetch(topic, index, offset)
        return {
            "log_start_offset": start,
            "last_stable_offset": stable,
            "high_watermark": high,
            # Of what is behind the last stable offset it may tell, or not.
            "aborted_transactions": [
                {"producer_id": who, "first_offset": first} for first, who in sorted(aborted) if first < stable
            ],
            "producers": self.producers(topic, index),
        }

    def close(self):
        self._connection.close()


def told_by(bootstrap, expected):
    """Return (the broker's answers, the content of case.json), which must be equal."""
    asked = Asked(bootstrap)
    said, written = {}, {}
    for partition in expected["partitions"]:
        place = partition["topic"], partition["partition"]
        said[place] = asked.partition(*place)
        written[place] = {name: partition[name] for name in said[place]}
        written[place]["producers"] = having_open(written[place]["producers"])
    said["transactions"] = asked.transactions([row["transactional_id"] for row in expected["transactions"]])
    said["group_offsets"] = [asked.group_offset(row) for row in expected["group_offsets"]]
    asked.close()
    return said, written | {name: expected[name] for name in ("transactions", "group_offsets")}


def consume(bootstrap, expected, isolation):
    """Return {place: records} from kafka-python, up to the end offset that the broker gives it."""
    places = [TopicPartition(p["topic"], p["partition"]) for p in expected["partitions"] if not is_internal(p)]
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level=isolation, auto_offset_reset="earliest", enable_auto_commit=False
    )
    consumer.assign(places)
    consumer.seek_to_beginning(*places)
    ends = consumer.end_offsets(places)
    found, deadline = {tuple(place): [] for place in places}, time.monotonic() + EVENT_TIMEOUT_S
    while any(consumer.position(place) < ends[place] for place in places):
        assert time.monotonic() < deadline, {place: consumer.position(place) for place in places}
        for place, records in consumer.poll(timeout_ms=100).items():
            found[tuple(place)] += [
                (r.offset, r.timestamp_type, r.timestamp, r.key, r.value, [*r.headers]) for r in records
            ]
    consumer.close()
    return found


def expected_records(expected, isolation):
    """Return the expected result of `consume`."""
    return {
        (partition["topic"], partition["partition"]): records_of(partition, isolation)
        for partition in expected["partitions"]
        if not is_internal(partition)
    }


if __name__ == "__main__":
    DIGESTS.write_text(json.dumps({case.name: digest(files_of(case)) for case in CASES}, indent=1) + "\n")
