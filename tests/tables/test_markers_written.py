"""WriteTxnMarkers and the effect of a marker on a partition: the tables WRITE and ENDM, on real logs."""

from types import SimpleNamespace

from lab.metadata import create_internal_topic
from ottla.broker.group.commits import CommitRow
from ottla.broker.group.members import Caller
from ottla.broker.log.results import FetchIsolation
from ottla.protocol.batch import build_batch, build_marker, read_marker
from ottla.protocol.batch_header import assign_offsets, iter_batches
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.requests.produced import check_produced_batch
from ottla.protocol.values import ProducerIdAndEpoch, TransactionMarker
from tests.fetching import fetch
from tests.replies import message_of
from tests.tables.rows import EPOCH, row, rows

MARKERS, PRODUCERS = 27, 61
LEDGER = ("ledger", 0)
PID = 77


def marker(*topics, producer_id=PID, epoch=5, commit=True, coordinator_epoch=2, generation=0):
    """Return a marker of a request, as decoded; topics are (name, partitions)."""
    return SimpleNamespace(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        coordinator_epoch=coordinator_epoch,
        transaction_version=generation,
        topics=[SimpleNamespace(name=name, partition_indexes=list(indexes)) for name, indexes in topics],
    )


def ask(parts, *markers, version=2):
    """Send markers and return [(producer id, [(topic, [(partition, error)])])]."""
    replies = parts.begin(MARKERS, version, SimpleNamespace(markers=list(markers)))
    parts.clock.settle()
    message = message_of(replies[0], MARKERS, version)
    return [
        (
            each.producer_id,
            [(t.name, [(p.partition_index, E(p.error_code)) for p in t.partitions]) for t in each.topics],
        )
        for each in message.markers
    ]


def to_ledger(parts, **more):
    """Send a marker to the ledger and return the error."""
    ((_, ((_, ((_, error),)),)),) = ask(parts, marker(("ledger", [0]), **more))
    return error


def write(parts, epoch=5, sequence=0, transactional=True, producer_id=PID):
    """Append a client's batch, in a transaction or not."""
    batch = memoryview(
        build_batch(
            [(b"k", b"v")],
            timestamp_ms=parts.clock.now_ms(),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
    )
    result = parts.cluster.partition(*LEDGER).append_from_client(check_produced_batch(batch), batch)
    assert result.error is E.NONE
    return result.base_offset


def log(parts, place=LEDGER):
    """Return producer id and epoch of each batch, and for markers also (is commit, coordinator epoch)."""
    data = memoryview(parts.cluster.partition(*place).read(0, 1 << 20, isolation=FetchIsolation.LOG_END).records)
    found = []
    for position, header in iter_batches(data):
        said = read_marker(data[position : position + header.size_bytes], header) if header.is_control else None
        told = None if said is None else (said.control_type == 1, said.coordinator_epoch)
        found.append((header.producer_id, header.producer_epoch, told))
    return found


def known(parts, producer_id=PID):
    return next(each for each in parts.cluster.partition(*LEDGER).producers() if each.producer_id == producer_id)


def list_aborts(parts):
    return parts.cluster.partition(*LEDGER).read(0, 1 << 20, isolation=FetchIsolation.TXN_COMMITTED).aborted


@row("WRITE-2 version 1", "WRITE-2 version 2")
def test_a_request_without_markers_has_an_empty_reply(row, parts):
    assert ask(parts, version=int(row[-1])) == []


@row("WRITE-3 no such topic", "WRITE-3 no such partition", "WRITE-3 a negative partition")
def test_a_partition_that_is_not_here(row, parts):
    name, index = {"topic": ("nowhere", 0), "partition": ("ledger", -1 if "negative" in row else 9)}[row.split()[-1]]
    found = ask(parts, marker((name, [index])), marker(("ledger", [1]), producer_id=8))
    assert found == [(PID, [(name, [(index, E.UNKNOWN_TOPIC_OR_PARTITION)])]), (8, [("ledger", [(1, E.NONE)])])]
    assert log(parts, ("ledger", 1)) == [(8, 5, (True, 2))]


@row("WRITE-3 offline")
def test_a_partition_that_is_offline(row, parts):
    parts.cluster.partition(*LEDGER).take_offline("storage failed")
    assert to_ledger(parts) is E.UNKNOWN_TOPIC_OR_PARTITION
    group = with_groups(parts)
    parts.cluster.partition("__consumer_offsets", group).take_offline("storage failed")
    assert ask(parts, marker(("__consumer_offsets", [group]))) == [
        (PID, [("__consumer_offsets", [(group, E.UNKNOWN_TOPIC_OR_PARTITION)])])
    ]


@row("WRITE-4 commit", "WRITE-4 abort")
def test_one_control_batch_is_appended(row, parts):
    commit = "commit" in row
    write(parts)
    assert to_ledger(parts, commit=commit, coordinator_epoch=9) is E.NONE
    assert log(parts) == [(PID, 5, None), (PID, 5, (commit, 9))]
    assert parts.offsets(LEDGER) == (2, 2)


def with_groups(parts):
    """Create the offsets topic with a pending offset of group g; return the group's partition."""
    create_internal_topic(parts.cluster, "__consumer_offsets")
    parts.clock.settle()
    commits = parts.groups.offsets
    assert commits.commit(Caller("g"), [CommitRow("ledger", 0, 42, -1, "")], ProducerIdAndEpoch(PID, 5)) == [E.NONE]
    return commits.partition_for("g")


def fetch_offset(parts):
    _, ((_, ((_, offset),)),) = fetch(parts.groups.offsets, "g", [("ledger", [0])], False)
    return offset.offset


@row("WRITE-5 commit", "WRITE-5 abort")
def test_a_marker_commits_or_drops_pending_offsets_of_a_group(row, parts):
    commit = "commit" in row
    index = with_groups(parts)
    assert fetch_offset(parts) == -1
    assert ask(parts, marker(("__consumer_offsets", [index]), commit=commit)) == [
        (PID, [("__consumer_offsets", [(index, E.NONE)])])
    ]
    assert log(parts, ("__consumer_offsets", index)) == [(PID, 5, None), (PID, 5, (commit, 2))]
    assert fetch_offset(parts) == (42 if commit else -1)


@row("WRITE-6 loading")
def test_a_group_coordinator_that_loads_takes_no_marker(row, parts):
    index = with_groups(parts)
    parts.groups._manager.loading.add(index)
    told = ask(parts, marker(("__consumer_offsets", [index])))
    assert told == [(PID, [("__consumer_offsets", [(index, E.NOT_LEADER_OR_FOLLOWER)])])]
    parts.groups._manager.loading.clear()
    assert log(parts, ("__consumer_offsets", index)) == [(PID, 5, None)]
    assert fetch_offset(parts) == -1


# name, the batches before (epoch, transactional), the marker's epoch and generation, the answer
EPOCHS = [
    *[(f"WRITE-7 generation {g}", (5, True), 4, g, EPOCH) for g in (0, 1)],
    ("WRITE-7 none open", (5, False), 4, 0, EPOCH),
    *[(f"WRITE-8 generation {g}", (5, True), 5, g, E.NONE) for g in (0, 1)],
    ("WRITE-8 none open", (5, False), 5, 1, E.NONE),
    ("WRITE-9 open", (5, True), 4, 2, EPOCH),
    ("WRITE-9 none open", (5, False), 4, 2, EPOCH),
    ("WRITE-10", (5, True), 5, 2, EPOCH),
    ("WRITE-11", (5, False), 5, 2, E.NONE),
    ("WRITE-12", (32767, True), 32767, 2, E.NONE),
    ("WRITE-13 open", (5, True), 6, 2, E.NONE),
    ("WRITE-13 none open", (5, False), 6, 2, E.NONE),
    ("WRITE-13 unknown producer", None, 3, 2, E.NONE),
    ("ENDM-2 lower", (5, True), 4, 0, EPOCH),
    ("ENDM-2 equal", (5, True), 5, 0, E.NONE),
    ("ENDM-2 higher", (5, True), 6, 0, E.NONE),
    ("ENDM-1 of generation 2", (5, True), 5, 2, EPOCH),
    ("ENDM-1 of generation 1", (5, True), 5, 1, E.NONE),
]


@rows(EPOCHS)
def test_the_epoch_of_a_marker(case, parts):
    _, before, epoch, generation, error = case
    if before is not None:
        write(parts, before[0], transactional=before[1])
    data = log(parts)
    open_before = before is not None and before[1]
    assert to_ledger(parts, epoch=epoch, generation=generation) is error
    if error:
        assert log(parts) == data
        assert (known(parts).epoch, known(parts).current_txn_first_offset >= 0) == (before[0], open_before)
        assert parts.offsets(LEDGER) == (0 if open_before else 1, 1)
    else:
        assert log(parts) == [*data, (PID, epoch, (True, 2))]
        assert (known(parts).epoch, known(parts).current_txn_first_offset) == (epoch, -1)
        assert parts.offsets(LEDGER) == (len(data) + 1, len(data) + 1)


@row("WRITE-14", "ENDM-3")
def test_the_epoch_of_the_coordinator(row, parts):
    write(parts)
    assert to_ledger(parts, coordinator_epoch=7) is E.NONE
    write(parts, sequence=1)
    data = log(parts)
    assert to_ledger(parts, coordinator_epoch=6) is E.TRANSACTION_COORDINATOR_FENCED
    assert (log(parts), parts.offsets(LEDGER)) == (data, (2, 3))
    for coordinator_epoch in (7, 8):
        assert to_ledger(parts, coordinator_epoch=coordinator_epoch) is E.NONE
    assert parts.offsets(LEDGER) == (5, 5)


@row("WRITE-15 known producer", "WRITE-15 unknown producer")
def test_a_marker_without_a_transaction(row, parts):
    if " known" in row:
        write(parts, transactional=False)
    end = parts.offsets(LEDGER)[1]
    assert to_ledger(parts, commit=False) is E.NONE
    assert log(parts)[-1] == (PID, 5, (False, 2))
    assert parts.offsets(LEDGER) == (end + 1, end + 1)
    assert list_aborts(parts) == []


@row("WRITE-16")
def test_one_entry_for_each_producer_id(row, parts):
    found = ask(
        parts,
        marker(("ledger", [0, 1])),
        marker(("ledger", [2]), producer_id=8),
        marker(("ledger", [3]), ("nowhere", [0]), commit=False),
    )
    assert found == [
        (
            PID,
            [
                ("ledger", [(0, E.NONE), (1, E.NONE), (3, E.NONE)]),
                ("nowhere", [(0, E.UNKNOWN_TOPIC_OR_PARTITION)]),
            ],
        ),
        (8, [("ledger", [(2, E.NONE)])]),
    ]
    assert [log(parts, ("ledger", i)) for i in range(4)] == [
        [(PID, 5, (True, 2))],
        [(PID, 5, (True, 2))],
        [(8, 5, (True, 2))],
        [(PID, 5, (False, 2))],
    ]


@row("WRITE-17")
def test_request_version_1_carries_no_transaction_version(row, parts):
    write(parts)
    asked = marker(("ledger", [0]), generation=2)  # a field that version 1 does not have
    assert ask(parts, asked, version=2) == [(PID, [("ledger", [(0, EPOCH)])])]
    assert ask(parts, asked, version=1) == [(PID, [("ledger", [(0, E.NONE)])])]


@row("WRITE-18")
def test_an_administrator_ends_a_hanging_transaction(row, parts):
    write(parts)
    topic = SimpleNamespace(name="ledger", partition_indexes=[0])
    (reply,) = parts.begin(PRODUCERS, 0, SimpleNamespace(topics=[topic]))
    message = message_of(reply, PRODUCERS, 0)
    (hanging,) = message.topics[0].partitions[0].active_producers
    assert hanging.current_txn_start_offset == 0
    told = ask(
        parts,
        marker(
            ("ledger", [0]),
            producer_id=hanging.producer_id,
            epoch=hanging.producer_epoch,
            coordinator_epoch=hanging.coordinator_epoch,
            commit=False,
        ),
        version=1,
    )
    assert told == [(PID, [("ledger", [(0, E.NONE)])])]
    assert (parts.offsets(LEDGER), list_aborts(parts)) == ((2, 2), [(PID, 0)])


# ---- ENDM: what is read from the log, and what a marker leaves behind


@row("ENDM-1 read from the log", "ENDM-2 read from the log", "ENDM-3 read from the log")
def test_markers_that_are_read_from_the_log_are_not_checked(row, logs):
    """Each of these markers would be refused in a request now."""
    partition = logs.partition()
    append = partition.append_own
    data = build_batch([(b"k", b"v")], producer_id=PID, producer_epoch=5, base_sequence=0, transactional=True)
    assert append(bytearray(data)).error is E.NONE
    epoch, coordinator_epoch = {"ENDM-1": (5, 9), "ENDM-2": (4, 9), "ENDM-3": (5, 3)}[row.split()[0]]
    if "ENDM-3" in row:
        partition.append_marker(TransactionMarker(PID, 5, 9, True, 1))
        again = build_batch([(b"k", b"v")], producer_id=PID, producer_epoch=5, base_sequence=1, transactional=True)
        assert append(bytearray(again)).error is E.NONE
    generation = 2 if "ENDM-1" in row else 0
    marker = TransactionMarker(PID, epoch, coordinator_epoch, True, generation)
    assert partition.append_marker(marker).error is not E.NONE
    raw = bytearray(build_marker(PID, epoch, coordinator_epoch, False, logs.clock.now_ms()))
    end = partition.log_end_offset
    assign_offsets(raw, end, 0)
    logs.kill()
    with logs.path("00000000000000000000.log").open("ab") as file:
        file.write(raw)
    logs.start()
    loaded = logs.partition()
    (producer,) = loaded.producers()
    assert (producer.epoch, producer.coordinator_epoch) == (epoch, coordinator_epoch)
    assert producer.current_txn_first_offset == -1
    assert loaded.log_end_offset == loaded.last_stable_offset == end + 1


@row("ENDM-4 commit", "ENDM-4 abort")
def test_a_marker_completes_the_transaction(row, parts):
    write(parts, producer_id=9)  # another one is open before and after
    first = write(parts)
    write(parts, sequence=1)
    assert first == 1
    assert to_ledger(parts, commit="commit" in row) is E.NONE
    assert known(parts).current_txn_first_offset == -1
    assert parts.offsets(LEDGER) == (0, 4)
    # Producer id, first offset, marker, and the last stable offset, which the other transaction holds back.
    entries = parts.cluster.partition(*LEDGER).log.segments.active.aborted
    assert entries == ([] if "commit" in row else [(PID, 1, 3, 0)])


@row("ENDM-5 same epoch", "ENDM-5 new epoch")
def test_a_marker_updates_the_producer_state_of_the_partition(row, parts):
    write(parts)
    parts.clock.advance(500)
    epoch, generation = (6, 2) if "new" in row else (5, 0)
    assert to_ledger(parts, epoch=epoch, generation=generation, coordinator_epoch=4) is E.NONE
    producer = known(parts)
    assert (producer.epoch, producer.coordinator_epoch, producer.current_txn_first_offset) == (epoch, 4, -1)
    assert producer.last_timestamp_ms == parts.clock.now_ms()
    assert producer.last_sequence == (-1 if "new" in row else 0)
