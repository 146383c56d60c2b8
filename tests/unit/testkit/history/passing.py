"""Requests and replies made by hand, in the format of a journal."""

import uuid

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch
from ottla.protocol.requests import codec
from ottla.protocol.requests.frames import response_prefix
from ottla.testkit.control.journal import Journal
from ottla.testkit.in_memory.wire import message

K = ApiKey
TOPIC_ID = uuid.UUID(int=7)


class Clock:
    def __init__(self):
        self.ms = 0

    def now_ms(self):
        self.ms += 1
        return self.ms


class Passing:
    """A writer of a journal. A reply is a dict of fields, None while it is out, LOST when none was sent."""

    LOST = object()

    def __init__(self):
        self.journal = Journal(Clock())

    def begin(self, api_key, version, client="client", peer="peer:1", **request):
        frame = codec.encode_request(message(api_key, version, **request), version, 1, client)[4:]
        return self.journal.begin(frame, peer), api_key, version

    def end(self, begun, reply):
        entry, api_key, version = begun
        if reply is self.LOST:
            self.journal.record_refusal(entry, "lost")
            return
        body = bytes(made(codec.response_class(api_key), version, reply).encode(version=version))
        self.journal.record_reply(entry, (response_prefix(api_key, version, 1, len(body)) + body,))

    def ask(self, api_key, version, reply, **request):
        self.end(self.begin(api_key, version, **request), reply)

    def entries(self):
        return list(self.journal.since(0))

    # ---- what producers do

    def init(self, txn_id="tx", pid=5, epoch=0, error=0):
        reply = {"throttle_time_ms": 0, "error_code": error, "producer_id": pid, "producer_epoch": epoch}
        asked = {"transactional_id": txn_id, "transaction_timeout_ms": 1000, "producer_id": -1, "producer_epoch": -1}
        self.ask(K.INIT_PRODUCER_ID, 4, reply, **asked)

    def begin_send(self, *values, sequence=0, pid=5, epoch=0, txn_id="tx", topic="in", at_ms=1, peer="peer:1"):
        records = [(None, value) for value in values]
        batch = bytes(
            build_batch(
                records,
                producer_id=pid,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=txn_id is not None,
                timestamp_ms=at_ms,
            )
        )
        topics = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
        asked = {"transactional_id": txn_id, "acks": -1, "timeout_ms": 1000, "topic_data": topics}
        return self.begin(K.PRODUCE, 9, peer=peer, **asked)

    def send(self, *values, offset=0, error=0, lost=False, **how):
        begun = self.begin_send(*values, **how)
        row = {"index": 0, "error_code": error, "base_offset": -1 if error else offset}
        topics = [{"name": how.get("topic", "in"), "partition_responses": [row]}]
        self.end(begun, self.LOST if lost else {"responses": topics, "throttle_time_ms": 0})

    def end_txn(self, commit=True, pid=5, epoch=0, error=0, lost=False, version=3, told=None, txn_id="tx"):
        asked = {"transactional_id": txn_id, "producer_id": pid, "producer_epoch": epoch, "committed": commit}
        reply = {"throttle_time_ms": 0, "error_code": error}
        if version >= 5:
            reply |= {"producer_id": told[0] if told else -1, "producer_epoch": told[1] if told else -1}
        self.ask(K.END_TXN, version, self.LOST if lost else reply, **asked)

    def commit_offsets(self, offset, pid=5, epoch=0, error=0, lost=False):
        rows = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}]
        asked = {"transactional_id": "tx", "group_id": "g", "producer_id": pid, "producer_epoch": epoch}
        told = [{"name": "in", "partitions": [{"partition_index": 0, "error_code": error}]}]
        reply = {"throttle_time_ms": 0, "topics": told}
        self.ask(
            K.TXN_OFFSET_COMMIT, 3, self.LOST if lost else reply, **asked, topics=[{"name": "in", "partitions": rows}]
        )

    def fetch(self, start, records, isolation=1, aborted=(), session=(0, -1), new_session=0, partitions=True):
        rows = [{"partition": 0, "fetch_offset": start, "partition_max_bytes": 9}]
        asked = {"max_wait_ms": 1, "min_bytes": 1, "max_bytes": 9, "isolation_level": isolation}
        asked |= {"session_id": session[0], "session_epoch": session[1], "forgotten_topics_data": [], "rack_id": ""}
        listed = [{"producer_id": pid, "first_offset": first} for pid, first in aborted]
        row = {"partition_index": 0, "error_code": 0, "high_watermark": 9, "aborted_transactions": listed}
        told = [{"topic": "in", "partitions": [row | {"records": records, "preferred_read_replica": -1}]}]
        reply = {"throttle_time_ms": 0, "error_code": 0, "session_id": new_session, "responses": told}
        topics = [{"topic": "in", "partitions": rows}] if partitions else []
        self.ask(K.FETCH, 12, reply, **asked, topics=topics)


def made(struct, version, given):
    """Return a message of the library from plain values."""
    values = {}
    for name, value in given.items():
        field = struct.fields[name]
        if field.is_array() and field.is_struct_array() and value is not None:
            value = [made(field.data_class, version, row) for row in value]
        values[name] = value
    return struct(version=version, **values)


def batch(*values, offset=0, pid=-1, epoch=-1, sequence=-1, transactional=False):
    records = [(None, value) for value in values]
    how = {"producer_id": pid, "producer_epoch": epoch, "base_sequence": sequence, "transactional": transactional}
    return bytes(build_batch(records, base_offset=offset, **how))
