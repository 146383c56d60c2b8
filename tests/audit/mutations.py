"""Faults to plant in a sound directory (Kafka's own, `clean`): their effects and the places of their findings."""

import shutil
from collections.abc import Callable
from typing import NamedTuple

from ottla.protocol.batch import ABORT, COMMIT, build_marker, build_record_batch, read_marker
from ottla.protocol.batch_header import assign_offsets, iter_batches, read_header, seal, write_header
from ottla.protocol.internal_topics.transaction_records import (
    decode_transaction_value,
    encode_transaction_value,
    read_transaction_key,
    transaction_key,
)
from ottla.protocol.records import iter_records

PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT = 2, 3, 4


class Place(NamedTuple):
    """Place of the finding: partition, offset, and the position in the file if the fault has one."""

    name: str
    offset: int | None
    position: int | None = None


class Mutation(NamedTuple):
    """`plant(directory)` changes a copy of the directory and says where `check` must find it."""

    name: str
    check: str
    what: str
    plant: Callable[..., Place]


MUTATIONS: list[Mutation] = []


def mutation(check, what):
    def register(plant):
        MUTATIONS.append(Mutation(plant.__name__, check, what, plant))
        return plant

    return register


class Log:
    """Batches of a segment, which are changed and written back."""

    def __init__(self, root, name, base_offset=0):
        self.name = name
        self.path = root / name / f"{base_offset:020d}.log"
        content = self.path.read_bytes()
        self.batches = [bytearray(content[at : at + head.size_bytes]) for at, head in iter_batches(content)]

    def header(self, index):
        return read_header(self.batches[index])

    def position(self, index):
        return sum(map(len, self.batches[:index]))

    def markers(self, kind=None, producer_id=None):
        """Return the indexes of the markers of this kind and producer."""
        found = []
        for index, batch in enumerate(self.batches):
            head = read_header(batch)
            if head.is_control and producer_id in (None, head.producer_id):
                marker = read_marker(batch, head)
                if marker is not None and kind in (None, marker.control_type):
                    found.append(index)
        return found

    def data(self, producer_id=None):
        heads = map(self.header, range(len(self.batches)))
        return [at for at, head in enumerate(heads) if not head.is_control and producer_id in (None, head.producer_id)]

    def first_of(self, marker):
        """Return the index of the first batch of the transaction that the marker at this index ends."""
        producer_id = self.header(marker).producer_id
        before = max((at for at in self.markers(producer_id=producer_id) if at < marker), default=-1)
        return min(at for at in self.data(producer_id) if before < at < marker)

    def with_header(self, index, **changed):
        batch = bytearray(self.batches[index])
        write_header(batch, read_header(batch)._replace(**changed))
        seal(batch)
        return batch

    def rebuild_marker(self, index, **changed):
        """Return the marker at `index` as one of the other kind, or with another epoch or coordinator epoch."""
        head, marker = self.header(index), read_marker(self.batches[index], self.header(index))
        made = build_marker(
            head.producer_id,
            changed.get("epoch", head.producer_epoch),
            changed.get("coordinator_epoch", marker.coordinator_epoch),
            changed.get("commit", marker.control_type != COMMIT),
            head.max_timestamp,
        )
        assign_offsets(made, head.base_offset, head.partition_leader_epoch)
        return made

    def close_up(self):
        """Renumber the offsets as if no batch had been removed or inserted."""
        offset = 0
        for batch in self.batches:
            assign_offsets(batch, offset, read_header(batch).partition_leader_epoch)
            offset = read_header(batch).next_offset
        return self

    def save(self):
        self.path.write_bytes(b"".join(self.batches))

    def place(self, index, *, with_position=True):
        return Place(self.name, self.header(index).base_offset, self.position(index) if with_position else None)


def change(path, at, content):
    whole = bytearray(path.read_bytes())
    whole[at : at + len(content)] = content
    path.write_bytes(whole)


# Torn and hanging transactions


@mutation("torn", "a marker removed, the offsets behind it closed up")
def remove_marker(root):
    log = Log(root, "ledger-2")
    index = log.markers(ABORT, producer_id=6)[3]
    place = log.place(log.first_of(index), with_position=False)
    del log.batches[index]
    log.close_up().save()
    return place


@mutation("torn", "a commit turned into an abort on one partition")
def commit_turned_into_abort(root):
    log = Log(root, "ledger-1")
    index = log.markers(COMMIT)[20]
    log.batches[index] = log.rebuild_marker(index)
    log.save()
    return log.place(index)


@mutation("torn", "an abort turned into a commit on one partition")
def abort_turned_into_commit(root):
    log = Log(root, "audit-log-0")
    index = log.markers(ABORT)[5]
    log.batches[index] = log.rebuild_marker(index)
    log.save()
    return log.place(index)


@mutation("torn", "a commit turned into an abort, transactions V2")
def commit_turned_into_abort_v2(root):
    log = Log(root, "ledger-tv2-0")
    index = log.markers(COMMIT)[7]
    log.batches[index] = log.rebuild_marker(index)
    log.save()
    return log.place(index)


@mutation("torn", "offsets of a group committed without their marker")
def offsets_without_marker(root):
    log = Log(root, "__consumer_offsets-1")
    index = log.markers(COMMIT, producer_id=11)[2]
    place = log.place(log.first_of(index), with_position=False)
    del log.batches[index]
    log.close_up().save()
    return place


@mutation("torn", "offsets of a group aborted, its output committed")
def abort_offsets(root):
    log = Log(root, "__consumer_offsets-1")
    index = log.markers(COMMIT, producer_id=11)[4]
    log.batches[index] = log.rebuild_marker(index)
    log.save()
    return log.place(index)


@mutation("torn", "a marker that no coordinator has decided")
def marker_without_decision(root):
    log = Log(root, "ledger-tv2-1")
    index = log.markers()[-1]
    made = log.rebuild_marker(index, commit=True, epoch=log.header(index).producer_epoch + 1)
    assign_offsets(made, log.header(-1).next_offset, 0)
    log.batches.append(made)
    log.save()
    return log.place(len(log.batches) - 1)


def coordinator_of(root, transactional_id):
    """Return the log of the coordinator's partition with the id, and the indexes of the id's records in it."""
    for folder in sorted(root.glob("__transaction_state-*")):
        log = Log(root, folder.name)
        found = [at for at in range(len(log.batches)) if record_of(log, at)[0] == transactional_id]
        if found:
            return log, found
    raise LookupError(transactional_id)


def record_of(log, index):
    (record,) = iter_records(log.batches[index], log.header(index))
    return read_transaction_key(record.key), decode_transaction_value(record.value)


def decision(log, indexes, status, which):
    return [at for at in indexes if record_of(log, at)[1].status == status][which]


def rewrite(log, index, transactional_id, value):
    head = log.header(index)
    made = build_record_batch(transaction_key(transactional_id), encode_transaction_value(value), head.max_timestamp)
    assign_offsets(made, head.base_offset, head.partition_leader_epoch)
    log.batches[index] = made


def id_of(root, producer_id):
    for folder in sorted(root.glob("__transaction_state-*")):
        log = Log(root, folder.name)
        for index in range(len(log.batches)):
            name, value = record_of(log, index)
            if value.producer_id == producer_id:
                return name
    raise LookupError(producer_id)


def marker_of(root, name, value):
    """Return the log and the index of a decision's marker."""
    log = Log(root, name)
    later = (
        index
        for index in log.markers(producer_id=value.producer_id)
        if log.header(index).max_timestamp >= value.last_update_ms
    )
    return log, next(later)


@mutation("torn", "the coordinator's decision dropped from its log, the offsets closed up")
def drop_decision(root):
    name = id_of(root, 14)
    log, indexes = coordinator_of(root, name)
    index = decision(log, indexes, PREPARE_COMMIT, 5)
    value = record_of(log, index)[1]
    place = f"{value.partitions[0][0]}-{value.partitions[0][1][0]}"
    other, marker = marker_of(root, place, value)
    del log.batches[index]
    log.close_up().save()
    return other.place(marker)


@mutation("torn", "the coordinator's decision turned round")
def turn_decision(root):
    name = id_of(root, 5)
    log, indexes = coordinator_of(root, name)
    index = decision(log, indexes, PREPARE_COMMIT, 8)
    value = record_of(log, index)[1]
    rewrite(log, index, name, value._replace(status=PREPARE_ABORT))
    log.save()
    place = f"{value.partitions[0][0]}-{value.partitions[0][1][0]}"
    other, marker = marker_of(root, place, value)
    return other.place(marker)


@mutation("hanging", "the last marker of a partition removed: completed there, open here")
def remove_last_marker(root):
    log = Log(root, "audit-log-1")
    index = log.markers()[-1]
    place = log.place(log.first_of(index), with_position=False)
    del log.batches[index]
    log.close_up().save()
    return place


@mutation("hanging", "the coordinator forgot an open transaction")
def coordinator_forgot(root):
    log, indexes = coordinator_of(root, "hanging-01")
    del log.batches[indexes[-1]]
    log.close_up().save()
    return Place("ledger-2", 898)


def forget_the_coordinator(root):
    for folder in root.glob("__transaction_state-*"):
        shutil.rmtree(folder)


@mutation("torn", "a commit turned into an abort on one partition, transactions V2, `__transaction_state` not at hand")
def commit_turned_into_abort_alone(root):
    forget_the_coordinator(root)
    return commit_turned_into_abort_v2(root)


@mutation("torn", "an abort turned into a commit on one partition, transactions V2, `__transaction_state` not at hand")
def abort_turned_into_commit_alone(root):
    forget_the_coordinator(root)
    log, other = Log(root, "ledger-tv2-1"), Log(root, "ledger-tv2-0")
    elsewhere = {other.header(index).producer_epoch for index in other.markers(ABORT)}
    index = next(at for at in log.markers(ABORT) if log.header(at).producer_epoch in elsewhere)
    log.batches[index] = log.rebuild_marker(index)
    log.save()
    return log.place(index)


@mutation("torn", "the last marker of a partition removed, transactions V2, `__transaction_state` not at hand")
def remove_last_marker_alone(root):
    forget_the_coordinator(root)
    log = Log(root, "ledger-tv2-0")
    index = log.markers()[-1]
    place = log.place(log.first_of(index), with_position=False)
    del log.batches[index]
    log.close_up().save()
    return place


@mutation("torn", "a marker removed, the offsets behind it closed up, V2, `__transaction_state` not at hand")
def remove_marker_alone(root):
    forget_the_coordinator(root)
    log = Log(root, "ledger-tv2-0")
    index = log.markers(COMMIT)[7]
    producer_id = log.header(index).producer_id
    del log.batches[index]
    log.close_up().save()
    return log.place(next(at for at in log.data(producer_id) if at >= index))


# Sequences and zombies


@mutation("sequence", "a batch twice, in the middle")
def batch_twice(root):
    log = Log(root, "ledger-0")
    index = log.data()[100]
    log.batches.insert(index + 1, bytearray(log.batches[index]))
    log.close_up().save()
    return log.place(index + 1)


@mutation("sequence", "an old batch again, at the end of the log")
def old_batch_again(root):
    log = Log(root, "audit-log-0")
    log.batches.append(bytearray(log.batches[log.data()[7]]))
    log.close_up().save()
    return log.place(len(log.batches) - 1)


@mutation("sequence", "a batch left out, the offsets behind it closed up")
def batch_left_out(root):
    log = Log(root, "ledger-1")
    index = log.data()[60]
    producer_id = log.header(index).producer_id
    del log.batches[index]
    log.close_up().save()
    return log.place(min(at for at in log.data(producer_id) if at >= index))


@mutation("sequence", "a sequence that jumps")
def sequence_jumps(root):
    log = Log(root, "ledger-2")
    index = log.data()[90]
    log.batches[index] = log.with_header(index, base_sequence=log.header(index).base_sequence + 1_000)
    log.save()
    return log.place(index)


@mutation("sequence", "an epoch that does not begin with sequence 0")
def epoch_begins_late(root):
    log = Log(root, "ledger-tv2-0")
    index = log.data()[9]
    log.batches[index] = log.with_header(index, base_sequence=3)
    log.save()
    return log.place(index)


@mutation("zombie", "data of an older epoch behind a marker of a newer one")
def zombie_batch(root):
    log = Log(root, "ledger-tv2-0")
    index = log.data()[12]
    head = log.header(index)
    zombie = log.with_header(index, producer_epoch=head.producer_epoch - 2)
    log.batches.insert(index + 1, zombie)
    log.close_up().save()
    return log.place(index + 1)


@mutation("zombie", "data of an older epoch behind data of a newer one, without transactions")
def zombie_idempotent(root):
    log = Log(root, "ledger-0")
    index = log.data()[50]
    plain = log.header(index).attributes & ~0x10
    newer = log.with_header(index, attributes=plain, producer_id=99, producer_epoch=3, base_sequence=0)
    older = log.with_header(index, attributes=plain, producer_id=99, producer_epoch=2, base_sequence=0)
    log.batches += [newer, older]
    log.close_up().save()
    return log.place(len(log.batches) - 1)


@mutation("zombie", "a marker of an older epoch")
def zombie_marker(root):
    log = Log(root, "ledger-tv2-1")
    index = log.markers()[10]
    log.batches.insert(index + 1, log.rebuild_marker(index, commit=True, epoch=2))
    log.close_up().save()
    return log.place(index + 1)


@mutation("zombie", "a marker of an older coordinator")
def older_coordinator(root):
    log = Log(root, "ledger-1")
    first = log.markers(COMMIT)[0]
    log.batches[first] = log.rebuild_marker(first, commit=True, coordinator_epoch=4)
    log.save()
    return log.place(min(at for at in log.markers(producer_id=log.header(first).producer_id) if at > first))


# Reused sequences


@mutation("reused", "a batch that was acknowledged as a duplicate of an aborted one, and committed")
def reuse_aborted_sequences(root):
    """Remove a batch as a broker would leave it: the next batch has its sequences."""
    log = Log(root, "ledger-1")
    commit = committed_behind_an_abort(log, producer_id=5)
    index = commit - 1
    head = log.header(index)
    for at in log.data(head.producer_id):
        later = log.header(at)
        if at > index and later.producer_epoch == head.producer_epoch:
            log.batches[at] = log.with_header(at, base_sequence=later.base_sequence - head.record_count)
    del log.batches[index]
    log.close_up().save()
    return log.place(commit - 1)


def committed_behind_an_abort(log, producer_id):
    """Return the index of a COMMIT of one batch; the transaction before was aborted, with a single batch as long."""
    markers, data = log.markers(producer_id=producer_id), log.data(producer_id)
    for before, abort, commit in zip(markers, markers[1:], markers[2:], strict=False):
        batches = [at for at in data if before < at < commit]
        counts = {log.header(at).record_count for at in batches}
        kinds = [read_marker(log.batches[at], log.header(at)).control_type for at in (abort, commit)]
        if kinds == [ABORT, COMMIT] and batches == [abort - 1, commit - 1] and len(counts) == 1:
            return commit
    raise LookupError(producer_id)
