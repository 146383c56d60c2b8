"""Steps that read what the coordinators logged: records of the transactional id, offsets of the group."""

from struct import unpack_from

from differential.asking import Asker

from ottla.protocol.batch import read_marker
from ottla.protocol.batch_header import iter_batches
from ottla.protocol.errors import ErrorCode
from ottla.protocol.hashing import coordinator_partition
from ottla.protocol.internal_topics.offsets_records import OffsetKey, decode_offset_value, read_offsets_key
from ottla.protocol.internal_topics.transaction_records import decode_transaction_value, read_transaction_key
from ottla.protocol.records import iter_records
from ottla.protocol.requests import codec

FETCH, LIST_OFFSETS = 1, 2
TRANSACTIONS, OFFSETS = "__transaction_state", "__consumer_offsets"
# As the brokers are configured (`OVERRIDES`).
COORDINATOR_PARTITIONS = 4
STATUSES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
ROWS_KEPT = 60
STEP_BYTES = 1 << 20


class LogSteps(Asker):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._begins = {topic: self._ends_of(topic) for topic in (TRANSACTIONS, OFFSETS)}

    def _logged(self, step):
        """The values logged for a transactional id since the script began, the last ones of many."""
        name, rows = self._name(step["id"]), []
        for header, position, data in self._batches(TRANSACTIONS, name):
            for record in iter_records(data, header, position):
                if read_transaction_key(record.key) == name:
                    rows.append(self._transaction_row(record.value))
        return rows[-ROWS_KEPT:]

    def _transaction_row(self, content):
        if content is None:
            return None
        value = decode_transaction_value(content)
        producers = (value.producer_id, value.previous_producer_id, value.next_producer_id)
        current, previous, following = map(self._answers.producer, producers)
        places = [(topic, index) for topic, indexes in value.partitions or () for index in indexes]
        partitions = sorted(str(index) if topic == self._topic else topic for topic, index in places)
        started = "clock" if value.start_ms > 0 else value.start_ms
        ahead = [unpack_from(">h", content)[0], current, value.producer_epoch, STATUSES[value.status]]
        return [
            *ahead,
            value.timeout_ms,
            None if value.partitions is None else partitions,
            started,
            previous,
            following,
            value.client_version,
        ]

    def _logged_group(self, step):
        """The committed offsets of a group and the markers of the script's producers in the group's partition."""
        name, rows = self._name(step["group"]), []
        for header, position, data in self._batches(OFFSETS, name):
            producer = [self._answers.known(header.producer_id), header.producer_epoch]
            if header.is_control:
                marker = read_marker(data, header, position)
                if producer[0] is not None:
                    kind = "COMMIT" if marker.control_type else "ABORT"
                    rows.append([kind, *producer, marker.coordinator_epoch])
                continue
            begins = [*producer, header.base_sequence, header.attributes]
            records = [self._offset_row(name, record) for record in iter_records(data, header, position)]
            rows += [[*begins, *record] for record in records if record]
        return rows[-ROWS_KEPT:]

    def _offset_row(self, group, record):
        """Return the row of a committed offset of the group; None for other records, such as those about members."""
        key = read_offsets_key(record.key)
        if not isinstance(key, OffsetKey) or key.group != group:
            return None
        value = record.value and decode_offset_value(record.value)
        place = key.partition if key.topic == self._topic else [key.topic, key.partition]
        version = record.value and unpack_from(">h", record.value)[0]
        return [version, place, value and [value.offset, value.leader_epoch, value.metadata]]

    def _ends_of(self, topic):
        topic_class = codec.request_class(LIST_OFFSETS).ListOffsetsTopic
        asked = [
            topic_class.ListOffsetsPartition(partition_index=index, timestamp=-1)
            for index in range(COORDINATOR_PARTITIONS)
        ]
        topics = [topic_class(name=topic, partitions=asked)]
        reply = self._ask(
            LIST_OFFSETS,
            6,
            lambda reply: {row.error_code for row in reply.topics[0].partitions},
            replica_id=-1,
            isolation_level=0,
            topics=topics,
        )
        return {row.partition_index: row.offset for row in reply.topics[0].partitions}

    def _batches(self, topic, key):
        """(header, position, bytes) of every batch that came since the script began."""
        index = coordinator_partition(key, COORDINATOR_PARTITIONS)
        offset, end = self._begins[topic][index], self._ends_of(topic)[index]
        topic_class = codec.request_class(FETCH).FetchTopic
        while offset < end:
            asked = topic_class.FetchPartition(
                partition=index, fetch_offset=offset, log_start_offset=-1, partition_max_bytes=STEP_BYTES
            )
            reply = self._ask(
                FETCH,
                11,
                lambda reply: {reply.responses[0].partitions[0].error_code},
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=STEP_BYTES,
                isolation_level=0,
                topics=[topic_class(topic=topic, partitions=[asked])],
                forgotten_topics_data=[],
                rack_id="",
            )
            row = reply.responses[0].partitions[0]
            assert row.error_code == ErrorCode.NONE and row.records, (topic, index, offset, end, row.error_code)
            data = memoryview(row.records)
            for position, header in iter_batches(data):
                yield header, position, data
                offset = header.last_offset + 1
