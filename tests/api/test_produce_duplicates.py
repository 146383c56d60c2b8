"""Duplicates that differ from the batch in the log: they are logged, and refused if so configured."""

import errno
from dataclasses import replace
from types import SimpleNamespace

import pytest

from lab.in_memory.disk_errors import FOR_EVER, BadDisk
from lab.simulation.charged import MOST_EVENT_US
from ottla.broker.api import duplicates
from ottla.broker.api.duplicates import Duplicate
from ottla.broker.api.request import Request
from ottla.broker.log.partition import Partition
from ottla.broker.log.results import AppendResult, FetchIsolation
from ottla.broker.security.session import Session
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch
from ottla.protocol.batch_header import HEADER_SIZE, assemble, read_header
from ottla.protocol.compression import NAMES
from ottla.protocol.errors import ErrorCode as E
from ottla.testkit.in_memory.schedule import START_MS
from ottla.testkit.in_memory.wire import message
from tests.memory_broker import MemoryBroker

RECORDS = [(b"k", b"v", (("h", b"1"), ("i", b"2"))), (None, b"w")]
OTHERS = [(b"k", b"v", (("i", b"2"), ("h", b"1"))), (None, b"w")]
MOST_UNCHARGED_CALLS = 2_000
REQUEST = Request(ApiKey.PRODUCE, 12, 1, "", Session(peer="client"), SimpleNamespace(transactional_id=None))


def batch(records=RECORDS, sequence=0, **given):
    fields = {"timestamp_ms": START_MS, "producer_id": 7, "producer_epoch": 0} | given
    return bytes(build_batch(records, base_sequence=sequence, **fields))


class Ledger:
    """A broker in memory with one topic."""

    def __init__(self, refuse, partitions=1, **configs):
        self.broker = MemoryBroker(producer_sequence_reuse_refuse=refuse, max_decompressed_message_bytes=1 << 25)
        (self.partition, *_) = self.broker.create_topic("ledger", partitions, **configs)
        self.parts = self.broker.assembly.broker

    def request(self, *batches, acks=-1, transactional_id=None):
        rows = [{"index": index, "records": data} for index, data in enumerate(batches)]
        topics = [{"name": "ledger", "partition_data": rows}]
        return message(ApiKey.PRODUCE, 9, transactional_id=transactional_id, acks=acks, timeout_ms=1, topic_data=topics)

    def rows(self, *batches, **given):
        reply = self.broker.ask(ApiKey.PRODUCE, 9, self.request(*batches, **given))
        return reply.responses[0].partition_responses

    def send(self, data, **given):
        """Send a batch and return (error, base offset)."""
        (row,) = self.rows(data, **given)
        return E(row.error_code), row.base_offset

    def judge(self, data, answers):
        """Compare a duplicate with the batch at offset 0, up to the first yield."""
        started = []
        duplicate = Duplicate(self.partition, read_header(data), memoryview(data), AppendResult(E.NONE, 0, 0))
        judged = duplicates.judge(self.parts, REQUEST, duplicate, [])
        turns = self.broker.turns
        turns.event(lambda: started.append(turns.start(judged, answers.append, self.broker.bugs.append)))
        return started[0]

    @property
    def counted(self):
        return self.parts.metrics.differing_duplicates

    def holds_nothing(self):
        return self.parts.long_work.is_idle and self.parts.memory.replies.held_bytes == 0


@pytest.fixture
def lines(caplog):
    """Return the log lines about Produce."""
    return lambda: [record.getMessage() for record in caplog.records if record.name.startswith("ottla.broker.api.")]


@pytest.mark.parametrize("codec", NAMES)
@pytest.mark.parametrize("kept", ["producer", "lz4"])
def test_a_differing_duplicate_is_acknowledged_and_logged(kept, codec, lines):
    ledger = Ledger(refuse=False, compression_type=kept)
    assert ledger.send(batch(sequence=5, compression=codec)) == (E.NONE, 0)
    assert ledger.send(batch(OTHERS, sequence=5, compression=codec)) == (E.NONE, 0)
    assert (ledger.partition.log_end_offset, ledger.counted) == (2, 1)
    (line,) = lines()
    assert line.startswith("Acknowledged records of client:0 that are not in the log: 'ledger'-0: ")
    assert "producer 7 at epoch 0 with no transactional id sent sequences 5 to 6 again" in line
    assert line.endswith("the batch at offset 0; 1 such batches since the start")


def test_a_differing_duplicate_is_refused_if_configured(lines):
    ledger = Ledger(refuse=True)
    ledger.send(batch())
    ledger.send(batch(sequence=2))
    (row,) = ledger.rows(batch(OTHERS, sequence=2))
    assert (row.error_code, row.base_offset, row.log_start_offset) == (E.INVALID_RECORD, -1, 0)
    assert "sent sequences 2 to 3 again" in row.error_message
    assert row.error_message.endswith("with other keys, values or headers than those of the batch at offset 2")
    assert (ledger.partition.log_end_offset, ledger.counted) == (4, 1)
    (line,) = lines()
    assert line == f"Refused Produce v9 of client:0: 'ledger'-0 INVALID_RECORD: {row.error_message}"


def test_a_producer_continues_after_a_refused_duplicate():
    ledger = Ledger(refuse=True)
    ledger.send(batch())
    assert ledger.send(batch(OTHERS))[0] is E.INVALID_RECORD
    assert ledger.send(batch()) == (E.NONE, 0)
    assert ledger.send(batch(OTHERS, sequence=2)) == (E.NONE, 2)


def test_several_differing_duplicates_of_a_request_are_logged_in_one_line(lines):
    ledger = Ledger(refuse=False, partitions=3)
    ledger.rows(*[batch()] * 3)
    assert [row.error_code for row in ledger.rows(batch(), batch(OTHERS), batch(OTHERS))] == [0, 0, 0]
    (line,) = lines()
    assert "'ledger'-1: producer 7" in line and line.endswith("(and 1 more); 2 such batches since the start")


def test_a_differing_duplicate_with_acks_0_is_logged(lines):
    ledger = Ledger(refuse=False)
    ledger.send(batch())
    ledger.broker.serve(ledger.request(batch(OTHERS), acks=0), 9)
    assert ledger.counted == 1 and len(lines()) == 1 and ledger.broker.link is not None


def test_a_transaction_that_is_open_is_no_exception(lines):
    ledger = Ledger(refuse=False)
    broker = ledger.broker
    found = message(ApiKey.FIND_COORDINATOR, 1, key="t", key_type=1)
    while broker.ask(ApiKey.FIND_COORDINATOR, 1, found).error_code:
        broker.advance()
    init = message(ApiKey.INIT_PRODUCER_ID, 1, transactional_id="t", transaction_timeout_ms=1_000)
    while (owner := broker.ask(ApiKey.INIT_PRODUCER_ID, 1, init)).error_code:
        broker.advance()
    add = message(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        1,
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=owner.producer_id,
        v3_and_below_producer_epoch=owner.producer_epoch,
        v3_and_below_topics=[{"name": "ledger", "partitions": [0]}],
    )
    broker.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 1, add)
    owned = {"producer_id": owner.producer_id, "producer_epoch": owner.producer_epoch, "transactional": True}
    assert ledger.send(batch(**owned), transactional_id="t") == (E.NONE, 0)
    assert ledger.send(batch(OTHERS, **owned), transactional_id="t") == (E.NONE, 0)
    (line,) = lines()
    assert f"producer {owner.producer_id} at epoch 0 with transactional id 't' sent sequences 0 to 1" in line


# --- what is the same -------------------------------------------------------------------------------------------------


def test_a_retry_of_the_same_bytes_is_not_read(monkeypatch, lines):
    ledger = Ledger(refuse=True)
    ledger.send(batch())
    monkeypatch.setattr(Partition, "batch_bytes", None)
    assert ledger.send(batch()) == (E.NONE, 0)
    assert (ledger.counted, lines()) == (0, [])


@pytest.mark.parametrize("kept", ["producer", *(name for codec, name in NAMES.items() if codec), "uncompressed"])
@pytest.mark.parametrize("codec", NAMES)
def test_a_retry_with_other_timestamps_is_the_same_for_every_codec(kept, codec, lines):
    ledger = Ledger(refuse=True, compression_type=kept)
    ledger.send(batch(RECORDS * 300, compression=codec))
    assert ledger.send(batch(RECORDS * 300, compression=codec, timestamp_ms=START_MS + 5)) == (E.NONE, 0)
    assert (ledger.counted, lines()) == (0, [])
    assert ledger.send(batch(OTHERS * 300, compression=codec))[0] is E.INVALID_RECORD


@pytest.mark.parametrize("codec", [0, 4])
def test_a_retry_is_the_same_where_the_broker_sets_the_time(codec, lines):
    ledger = Ledger(refuse=True, message_timestamp_type="LogAppendTime")
    ledger.send(batch(compression=codec))
    assert ledger.send(batch(compression=codec)) == (E.NONE, 0)
    assert (ledger.counted, lines()) == (0, [])
    assert ledger.send(batch(OTHERS, compression=codec))[0] is E.INVALID_RECORD


@pytest.mark.parametrize(
    ("one", "other"), [((None, b""), (b"", b"")), ((b"k", None), (b"k", b""))], ids=["key", "value"]
)
def test_null_is_not_empty(one, other):
    ledger = Ledger(refuse=True)
    ledger.send(batch([one]))
    assert ledger.send(batch([one], timestamp_ms=START_MS + 1)) == (E.NONE, 0)
    assert ledger.send(batch([other]))[0] is E.INVALID_RECORD


# --- batches that cannot be compared ----------------------------------------------------------------------------------


def test_a_duplicate_of_a_deleted_batch_is_not_compared(lines):
    ledger = Ledger(refuse=True)
    ledger.send(batch())
    ledger.partition.raise_log_start(1)
    assert ledger.send(batch(OTHERS)) == (E.NONE, 0)
    assert (ledger.counted, lines()) == (0, [])


def test_a_batch_that_has_lost_records_to_compaction_is_not_compared(lines):
    ledger = Ledger(refuse=True, cleanup_policy="compact")
    partition = ledger.partition
    sent = [(b"a", b"1"), (b"b", b"2")]
    size_bytes = len(batch(sent))
    partition.log.config = replace(partition.log.config, segment_bytes=size_bytes, min_cleanable_dirty_ratio=0.0)
    ledger.send(batch(sent))
    for sequence, value in enumerate((b"3", b"4")):
        ledger.send(batch([(b"a", value), (b"c", value)], 2 * sequence, producer_id=8))
    ledger.broker.turns.event(ledger.broker.assembly._cleaner.start)
    ledger.broker.advance(1_000)
    header = read_header(partition.read(0, 1, isolation=FetchIsolation.LOG_END).records)
    assert (header.base_offset, header.record_count, header.last_offset_delta) == (0, 1, 1)
    assert ledger.send(batch([(b"a", b"1"), (b"b", b"3")])) == (E.NONE, 0)
    assert (ledger.counted, lines()) == (0, [])


@pytest.mark.parametrize("skip", range(3))
@pytest.mark.parametrize(("number", "offline"), [(errno.EIO, True), (errno.EMFILE, False)])
def test_a_disk_that_fails_while_it_is_compared_changes_no_answer(number, offline, skip, lines):
    ledger = Ledger(refuse=True)
    ledger.send(batch())
    disk = ledger.broker.disk
    disk.errors.break_down(BadDisk(frozenset({"pread"}), number, skip, FOR_EVER))
    error, base_offset = ledger.send(batch(OTHERS))
    assert (error, base_offset) == ((E.NONE, 0) if disk.errors.failures else (E.INVALID_RECORD, -1))
    assert disk.errors.failures or skip == 2
    assert (ledger.partition.offline is not None) == (offline and disk.errors.failures > 0)
    assert ledger.holds_nothing()


@pytest.mark.plain
@pytest.mark.parametrize("change", ["closed", "replaced"])
def test_a_log_that_changes_while_it_is_read_is_not_compared(monkeypatch, change, lines):
    ledger = Ledger(refuse=True, max_message_bytes=str(1 << 23))
    ledger.send(batch([(b"k", bytes(1 << 22))]))
    read, reads = Partition.batch_bytes, []

    def read_and_change(partition, header):
        for step in read(partition, header):
            reads.append(step)
            if change == "closed":
                partition.take_offline("the log is closed")
            else:
                partition.log.segments.replaced += 1
            yield step

    monkeypatch.setattr(Partition, "batch_bytes", read_and_change)
    assert ledger.send(batch([(b"j", bytes(1 << 22))])) == (E.NONE, 0)
    assert len(reads) == 1 and (ledger.counted, lines()) == (0, [])


def test_a_duplicate_that_exceeds_the_memory_is_not_compared(lines):
    ledger = Ledger(refuse=True)
    ledger.send(batch([(b"k", bytes(100_000))]))
    ledger.parts.memory.replies.limit_bytes = 300_000
    assert ledger.send(batch([(b"j", bytes(100_000))])) == (E.NONE, 0)
    assert ledger.holds_nothing()


def test_a_batch_that_is_broken_in_the_log_is_not_compared(lines):
    ledger = Ledger(refuse=True)
    ledger.send(batch(compression=4))
    (path,) = (path for path in ledger.broker.disk.list("/data/ledger-0") if path.endswith(".log"))
    file = ledger.broker.disk.open(f"/data/ledger-0/{path}")
    stored = file.pread(1 << 20, 0)
    file.overwrite(0, assemble(read_header(stored), bytes(len(stored) - HEADER_SIZE)))
    assert ledger.send(batch(OTHERS, compression=4)) == (E.NONE, 0)
    (line,) = lines()
    assert "ledger-0: the batch at offset 0 cannot be compared" in line


# --- cost of the comparison -------------------------------------------------------------------------------------------

LARGE_BYTES = 400_000
BOMBS = {
    "one record": ([(b"k", bytes(10_000_000))], [(b"j", bytes(10_000_000))]),
    "many records": ([(b"k", b"")] * 60_000, [(b"j", b"")] * 60_000),
    "many headers": ([(b"k", b"", (("h", b""),) * 60_000)], [(b"j", b"", (("h", b""),) * 60_000)]),
}


@pytest.mark.slow
@pytest.mark.parametrize("codec", NAMES)
@pytest.mark.parametrize("kind", BOMBS)
def test_a_large_duplicate_is_compared_in_short_turns(kind, codec):
    ledger = Ledger(refuse=True, max_message_bytes=str(1 << 25))
    broker = ledger.broker
    one, other = (batch(records, compression=codec) for records in BOMBS[kind])
    assert ledger.send(one) == (E.NONE, 0)
    weight = broker.weigh(ledger.request(other), 9)
    assert ledger.counted == 1 and broker.bugs == [] and ledger.holds_nothing()
    assert weight.us <= MOST_EVENT_US / 2 and weight.uncharged_calls <= MOST_UNCHARGED_CALLS


@pytest.mark.slow
@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("kind", BOMBS)
def test_a_disconnect_during_a_comparison_frees_its_memory(kind, codec):
    """The client may disconnect after any number of events."""
    ledger = Ledger(refuse=True, max_message_bytes=str(1 << 25))
    broker, memory = ledger.broker, ledger.parts.memory.replies
    one, other = (batch(records, compression=codec) for records in BOMBS[kind])
    ledger.send(one)
    answers, held, events = [], 0, 0
    while not answers:
        activity = ledger.judge(other, answers)
        for _ in range(events):
            broker.schedule.run_next()
        held += memory.held_bytes > 0
        if not answers:
            broker.turns.event(activity.discard)
        broker.advance(0.0)
        assert ledger.holds_nothing() and broker.bugs == []
        events = events * 3 // 2 + 1
    assert answers[0].error is E.INVALID_RECORD
    assert held or len(one) < LARGE_BYTES, "what takes many shares is met with memory in hand"
