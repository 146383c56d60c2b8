"""A broker under bad input: hostile sockets, an ordinary client next to them, and the lines that the broker logs."""

import itertools
import re
import socket
import struct
import time
from pathlib import Path

from ottla.protocol.batch import build_batch
from ottla.protocol.batch_header import iter_batches
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records import iter_records
from ottla.protocol.requests import codec
from ottla.wire.connection import BlockingConnection
from tests.timeout import EVENT_TIMEOUT_S

PRODUCE, FETCH, LIST_OFFSETS, METADATA, FIND_COORDINATOR, CREATE_TOPICS, INIT_PRODUCER_ID = 0, 1, 2, 3, 10, 19, 22
CLOSED = "the connection is closed"
OUR_LOG_LINE = re.compile(r"^\[.{23}\] [A-Z]+ ")


def wait_until(is_so):
    """Wait until `is_so()`: Kafka finishes some work a moment after its response."""
    deadline = time.monotonic() + EVENT_TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Peer:
    """A socket that sends anything."""

    def __init__(self, bootstrap):
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=EVENT_TIMEOUT_S)
        self.name = "{}:{}".format(*self.socket.getsockname())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        """Send data. The broker may close the connection before it has read everything: this is no error here."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return

    def _read(self, size_bytes):
        data = b""
        while len(data) < size_bytes:
            try:
                chunk = self.socket.recv(size_bytes - len(data))
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                assert not data, "closed inside a reply"
                return CLOSED
            data += chunk
        return data

    def frame(self):
        """Return the payload of the next reply, or CLOSED."""
        size = self._read(4)
        return CLOSED if size is CLOSED else self._read(struct.unpack(">i", size)[0])

    def reply(self, api_key, version):
        """Return the next reply, decoded strictly, or CLOSED."""
        payload = self.frame()
        return CLOSED if payload is CLOSED else codec.decode_response(api_key, version, payload)[1]


class Rig:
    """A running broker, its ordinary client and its topics."""

    def __init__(self, broker):
        self.broker = broker
        self.is_ours = broker.name == "Ottla"
        self._names = (f"bad-input-{number}" for number in itertools.count())
        self._control = self.client()
        self.topic = self.new_topic()
        self._beside = self.new_topic()
        self._bystander = self.client()
        self._rounds = 0
        self._log_start = 0
        self._end_before = 0

    @property
    def pid(self):
        return self.broker.process.pid

    def client(self):
        host, _, port = self.broker.bootstrap.rpartition(":")
        return BlockingConnection(host, int(port), timeout_s=EVENT_TIMEOUT_S)

    def connect(self):
        return Peer(self.broker.bootstrap)

    def stop(self):
        self._bystander.close()
        self._control.close()
        assert not self.is_ours or self.broker.stop() == 0
        self.broker.stop()

    def begin_log(self):
        """Let `log` return only the lines logged from now on."""
        self._log_start = self.broker.log_file.stat().st_size

    def begin(self):
        self.begin_log()
        self._end_before = self.end_offset(self.topic)
        self.bystander_round()

    def end(self):
        """Check that no refused batch was appended, the bystander still works, and no traceback was logged."""
        self.bystander_round()
        assert self.end_offset(self.topic) == self._end_before
        if self.is_ours:
            assert "Traceback" not in self.log()
            assert all(OUR_LOG_LINE.match(line) for line in self.log().splitlines()), self.log()

    def log(self):
        with self.broker.log_file.open(errors="replace") as file:
            file.seek(self._log_start)
            return file.read()

    def lines_about(self, peer):
        """Return the log lines of this case that name the peer."""
        return [line for line in self.log().splitlines() if re.search(re.escape(peer.name) + r"\b", line)]

    def peak_bytes(self):
        """Return the peak memory of the broker since `reset_peak`."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) * 1024

    def reset_peak(self):
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def new_topic(self, partitions=1, **configs):
        name = next(self._names)
        request = codec.request_class(CREATE_TOPICS)
        topic = request.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=[],
            configs=[
                request.CreatableTopic.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        reply = self._control.send(request(topics=[topic], timeout_ms=10_000, validate_only=False))
        assert reply.topics[0].error_code == ErrorCode.NONE, reply
        wait_until(lambda: all(self.end_offset(name, index) == 0 for index in range(partitions)))
        return name

    def end_offset(self, topic, partition=0):
        """Return the end offset; None while the partition has no leader here."""
        request = codec.request_class(LIST_OFFSETS)
        asked = request.ListOffsetsTopic.ListOffsetsPartition(
            partition_index=partition, current_leader_epoch=-1, timestamp=-1
        )
        topics = [request.ListOffsetsTopic(name=topic, partitions=[asked])]
        row = self._control.send(request(replica_id=-1, isolation_level=0, topics=topics), 6).topics[0].partitions[0]
        return None if row.error_code else row.offset

    def bystander_round(self):
        """Produce a record with the ordinary client and read it back, on a connection that stays open."""
        value = f"round {self._rounds}".encode()
        self._produce(value)
        assert self._fetch() == value
        self._rounds += 1

    def _produce(self, value):
        request = codec.request_class(PRODUCE)
        topic = request.TopicProduceData
        records = bytes(build_batch([(b"k", value)]))
        data = topic(name=self._beside, partition_data=[topic.PartitionProduceData(index=0, records=records)])
        reply = self._bystander.send(request(transactional_id=None, acks=-1, timeout_ms=10_000, topic_data=[data]), 9)
        row = reply.responses[0].partition_responses[0]
        assert (row.error_code, row.base_offset) == (ErrorCode.NONE, self._rounds)

    def _fetch(self):
        request = codec.request_class(FETCH)
        topic = request.FetchTopic
        partition = topic.FetchPartition(
            partition=0, fetch_offset=self._rounds, log_start_offset=-1, partition_max_bytes=1 << 20
        )
        topics = [topic(topic=self._beside, partitions=[partition])]
        asked = request(
            replica_id=-1,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=topics,
            forgotten_topics_data=[],
            rack_id="",
        )
        row = self._bystander.send(asked, 11).responses[0].partitions[0]
        assert row.error_code == ErrorCode.NONE
        ((position, header),) = iter_batches(row.records)
        (record,) = iter_records(row.records, header, position)
        return record.value
