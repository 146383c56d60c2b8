"""Requests that only the leader serves, or a replica, in every version at each broker, before and after moves."""

from ottla.protocol.api_keys import ApiKey as K
from tests.conformance.several_brokers.steps import (
    BROKERS,
    FOLLOWER,
    LEADER,
    LEDGER,
    STRANGER,
    Script,
    ask,
    create,
    delete_records,
    describe,
    describe_producers,
    epoch_end,
    fetch,
    list_offsets,
    move,
    produce,
    start,
    stop,
    versions_of,
    write_markers,
)

PAIR = create([LEADER, FOLLOWER])
WRONG_FIRST = (STRANGER, FOLLOWER, LEADER)
EPOCHS = (-1, 0, 1, 2)
FROM_FOLLOWERS = range(9, 19)
WITH_EPOCH = {list_offsets: range(4, 12), epoch_end: range(2, 5)}


def scripts():
    return [*_every_version(), *_leader_moves(), *_hints(), *_no_leader()]


def _every_version():
    by_id = describe(LEADER, version=12)
    for acks in (-1, 1, 0):
        asked = [produce(at, version, acks) for version in versions_of(K.PRODUCE) for at in WRONG_FIRST]
        yield Script(f"produce, acks {acks}", [PAIR, by_id, *asked, fetch(LEADER)])
    for make, api in (
        (fetch, K.FETCH),
        (list_offsets, K.LIST_OFFSETS),
        (epoch_end, K.OFFSET_FOR_LEADER_EPOCH),
        (write_markers, K.WRITE_TXN_MARKERS),
    ):
        asked = [make(at, version) for version in versions_of(api) for at in WRONG_FIRST]
        yield Script(api.title, [PAIR, by_id, produce(LEADER), *asked])
    timestamps = [list_offsets(at, 11, timestamp=each) for each in (-2, -3, -4, -5, -6, 5) for at in WRONG_FIRST]
    yield Script("ListOffsets, timestamps", [PAIR, produce(LEADER), *timestamps])
    deleted = [
        delete_records(at, version, offset)
        for version in versions_of(K.DELETE_RECORDS)
        for offset in (1, 9)
        for at in WRONG_FIRST
    ]
    yield Script("DeleteRecords", [PAIR, produce(LEADER, count=2), *deleted, list_offsets(LEADER, timestamp=-2)])
    yield Script("DescribeProducers", [PAIR, *map(describe_producers, WRONG_FIRST)])
    unknown = [
        *(produce(at, version, topic="~none") for version in (9, 12) for at in BROKERS),
        *(produce(at, partition=7) for at in BROKERS),
        *(fetch(at, topic="~none") for at in BROKERS),
        *(write_markers(at, topic="~none") for at in BROKERS),
    ]
    yield Script("unknown topics and partitions", [PAIR, *unknown])


def _leader_moves():
    for name, moves in {"moved": [2], "moved and back": [2, 1], "moved three times": [2, 1, 2]}.items():
        steps = [PAIR, describe(LEADER, version=12), produce(LEADER)]
        for to in moves:
            steps += [move(LEDGER, to), produce(to)]
        steps += [describe(at) for at in BROKERS]
        steps += [
            fetch(at, version, epoch, last_epoch=-1) for version in FROM_FOLLOWERS for epoch in EPOCHS for at in BROKERS
        ]
        steps += [fetch(at, 12, epoch=-1, offset=1, last_epoch=last) for last in EPOCHS for at in BROKERS]
        for make, versions in WITH_EPOCH.items():
            steps += [make(at, version, epoch) for version in versions for epoch in EPOCHS for at in BROKERS]
        steps += [epoch_end(at, 4, asked=asked) for asked in (0, 1, 2, 3, 9) for at in BROKERS]
        yield Script(name, steps)
    last = [fetch(at, 12, offset=offset, last_epoch=epoch) for offset in range(4) for epoch in EPOCHS for at in BROKERS]
    yield Script(
        "Fetch: the epoch of the last record", [PAIR, produce(LEADER, count=2), move(LEDGER, 2), produce(2), *last]
    )
    others = [
        *(step(at) for step in (delete_records, describe_producers) for at in BROKERS),
        *(write_markers(at, version) for version in (1, 2) for at in BROKERS),
        *(fetch(at, offset=99) for at in BROKERS),
        *(produce(at, version) for version in versions_of(K.PRODUCE) for at in (LEADER, STRANGER)),
    ]
    yield Script("moved: the rest", [PAIR, describe(LEADER, version=12), produce(LEADER), move(LEDGER, 2), *others])


def _hints():
    """Produce 10 and later names the leader and its address."""
    versions = range(9, 14)
    everywhere = create([1, 2, 3])
    asked = [produce(at, version) for version in versions for at in BROKERS]
    yield Script(
        "hints over moves",
        [everywhere, describe(1, version=12), *asked, move(LEDGER, 3), *asked, move(LEDGER, 2), *asked],
    )
    left = [produce(at, version) for version in versions for at in (1, 3)]
    yield Script(
        "hints over a stop",
        [create([2, 3, 1]), describe(1, version=12), *left, stop(2), *left, start(2), *asked],
    )
    rows = [{"index": index, "records": {"count": 1}} for index in range(3)]
    several = [
        ask(
            at,
            K.PRODUCE,
            version,
            transactional_id=None,
            acks=-1,
            timeout_ms=5_000,
            topic_data=[{"name": LEDGER, "partition_data": rows}],
        )
        for version in (9, 10, 11, 12)
        for at in BROKERS
    ]
    yield Script("hints of several partitions", [create([1, 2], [2, 3], [3, 1]), *several])


def _no_leader():
    """The only replica, or the last one in sync, is stopped."""
    others = (1, 3)
    asked = [
        *(describe(at, version=version) for version in versions_of(K.METADATA) for at in others),
        *(produce(at, version) for version in (9, 10, 12) for at in others),
        *(fetch(at, version, epoch) for version in FROM_FOLLOWERS for epoch in (-1, 0, 1) for at in others),
        *(list_offsets(at, 6, epoch) for epoch in (-1, 0) for at in others),
        *(epoch_end(at, 4, epoch) for epoch in (-1, 0) for at in others),
        *(step(at) for step in (delete_records, describe_producers, write_markers) for at in others),
    ]
    back = [*(describe(at) for at in BROKERS), produce(2), fetch(2), fetch(2, 11, 0), fetch(2, 11, 1), fetch(2, 11, 2)]
    yield Script(
        "the only replica stops", [create([2]), describe(2, version=12), produce(2), stop(2), *asked, start(2), *back]
    )
    yield Script(
        "the last replica in sync stops",
        [
            create([1, 2]),
            produce(1),
            stop(1),
            produce(2),
            stop(2),
            *(describe(3, version=9), fetch(3)),
            start(1),
            describe(1),
            produce(1),
            fetch(1),
            list_offsets(1),
            start(2),
            *back,
            *map(describe, BROKERS),
        ],
    )
